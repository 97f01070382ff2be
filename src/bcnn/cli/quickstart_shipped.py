"""The shipped models' part of `bcnn quickstart`: photos and digits that come with scikit-learn, and what the models say of them.

Neither photo shows one of the ten things that the photo model knows: its answers show what a classifier does then, and the
page says so.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from bcnn.base.images import Pixels
from bcnn.cli.app import out
from bcnn.cli.quickstart_page import Sample, figure, image
from bcnn.engine import Engine
from bcnn.packed import card, packfile, shipped
from bcnn.program.program import Program

TOP = 3
SHOWN = 7  # digits: one row of the page
# What the two photos show. By danielbuechele on Flickr, CC BY 2.0, distributed with scikit-learn.
CAPTIONS = {"china.jpg": "a palace", "flower.jpg": "a flower"}


@dataclass(frozen=True, eq=False)
class Photo:
    pixels: Pixels
    caption: str
    predictions: Sequence[tuple[str, float]]


@dataclass(frozen=True, eq=False)
class Shipped:
    """What the models in the package say."""

    photos: Sequence[Photo]
    knows: tuple[str, ...]  # classes of the photo model
    photo_top1: str
    digits: Sequence[Sample]  # the whole test set
    digits_top1: str

    @property
    def right(self) -> int:
        return sum(sample.right for sample in self.digits)


def classify(digits: Pixels, labels: Sequence[str]) -> Shipped:
    """Runs the shipped models on the two photos and on the given digits. A package without the photo model skips the photos."""
    model = _engine("digits")
    samples = [Sample(*known) for known in zip(digits, labels, model.predict(digits, TOP), strict=True)]
    photos, photo_program = _photos() if shipped.DEFAULT in shipped.names() else ([], None)
    for photo in photos:
        says = ", ".join(f"{label} {share:.0%}" for label, share in photo.predictions)
        out.print(f"{shipped.DEFAULT}: {photo.caption}; says {says}", highlight=False, soft_wrap=True)
    knows = photo_program.labels if photo_program else ()
    if knows:
        out.print(f"it knows {len(knows)} classes only: {', '.join(knows)}", highlight=False, soft_wrap=True)
    found = Shipped(photos, knows, _top1(photo_program), samples, _top1(model.program))
    out.print(f"digits: {found.right} of {len(samples)} test images right", highlight=False)
    return found


def _engine(name: str) -> Engine:
    return Engine(packfile.read(shipped.find(name)))


def _photos() -> tuple[list[Photo], Program]:
    from sklearn.datasets import load_sample_images

    engine, both = _engine(shipped.DEFAULT), load_sample_images()
    names = [Path(file).name for file in both.filenames]
    answers = engine.predict(list(both.images), TOP)
    made = [
        Photo(pixels, f"{name}: {CAPTIONS[name]}", says)
        for name, pixels, says in zip(names, both.images, answers, strict=True)
    ]
    return made, engine.program


def _top1(program: Program | None) -> str:
    found = card.of(program) if program else None
    return f"{found.top1:.2%} of {found.images:,} images of {found.data}" if found else ""


# --- the page -------------------------------------------------------------------------------------------------------


def section(found: Shipped) -> str:
    """HTML for the page."""
    return f"""<h2>The models that come with the package</h2>
{_photo_part(found) if found.photos else ""}
<p>The shipped <code>digits</code> model, trained before with the recipe of that name ({html.escape(found.digits_top1)}), gets
{found.right} of the {len(found.digits)} test images right; some of them:</p>
<div class="samples">{"".join(figure(sample) for sample in found.digits[-SHOWN:])}</div>
"""


def _photo_part(found: Shipped) -> str:
    figures = "".join(
        f"<figure>{_jpeg(photo)}<figcaption>{html.escape(photo.caption)}; says</figcaption>{_shares(photo.predictions)}</figure>"
        for photo in found.photos
    )
    return f"""<p><code>bcnn predict photo.jpg</code> asks the <code>imagenette</code> model ({html.escape(found.photo_top1)}).
It knows {len(found.knows)} classes and nothing else: {html.escape(", ".join(found.knows))}. <b>A palace and a flower are none of them</b>, so both answers
must be wrong: a classifier has to choose, and its probabilities say how it is divided among what it knows, not whether it has seen such a thing.</p>
<div class="photos">{figures}</div>
<p class="soft">Photos by danielbuechele, CC BY 2.0, as distributed with scikit-learn.</p>"""


def _jpeg(photo: Photo) -> str:
    buffer = io.BytesIO()
    Image.fromarray(photo.pixels).save(buffer, "JPEG", quality=85)
    return image(buffer.getvalue(), photo.caption, "jpeg")


def _shares(predictions: Sequence[tuple[str, float]]) -> str:
    """A bar for each answer, as a share of 1."""
    return "".join(
        f'<div class="bar"><span>{html.escape(label)}</span><span class="track"><i class="bit" style="width:{share:.1%}"></i></span>'
        f"<span>{share:.1%}</span></div>"
        for label, share in predictions
    )
