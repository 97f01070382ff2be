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

import bcnn
from bcnn import card, shipped
from bcnn.cli.app import out
from bcnn.cli.quickstart_page import Sample, figure, image
from bcnn.images import Pixels
from bcnn.program import Program

TOP = 3
# What the two photos show. By danielbuechele on Flickr, CC BY 2.0, distributed with scikit-learn.
CAPTIONS = {"china.jpg": "a palace among trees, in China", "flower.jpg": "a flower"}
STYLE = """
.photos { display: grid; gap: .9rem; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); margin: 1.2rem 0 }
.photos figure { background: var(--card); border-radius: .6rem; padding: .7rem } .photos img { width: 100%; border-radius: .3rem; display: block; margin-bottom: .5rem }
.photos .bar { grid-template-columns: 8.5rem 1fr 3.5rem; margin: .15rem 0 } .photos .track { height: .8rem }
"""


@dataclass(frozen=True)
class Photo:
    pixels: Pixels
    caption: str
    predictions: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Shipped:
    """What the models in the package say."""

    photos: Sequence[Photo]
    knows: tuple[str, ...]  # classes of the photo model
    photo_top1: str
    digits: Sequence[Sample]
    digits_top1: str


def classify(digits: Pixels, labels: Sequence[str]) -> Shipped:
    """Runs the shipped models on the photos and on the given digits; a model that this package lacks is left out."""
    photos, knows, photo_top1 = [], (), ""
    if shipped.DEFAULT in shipped.names():
        from sklearn.datasets import load_sample_images

        engine = bcnn.load(shipped.DEFAULT)
        knows, photo_top1 = engine.program.labels, _top1(engine.program)
        sample = load_sample_images()
        for file, pixels in zip(sample.filenames, sample.images, strict=True):
            name = Path(file).name
            photos.append(Photo(pixels, f"{name}: {CAPTIONS[name]}", engine.predict(pixels, TOP)[0]))
            says = ", ".join(f"{label} {share:.0%}" for label, share in photos[-1].predictions)
            out.print(f"{shipped.DEFAULT}: {photos[-1].caption}; says {says}", highlight=False, soft_wrap=True)
        out.print(f"it knows {len(knows)} classes only: {', '.join(knows)}", highlight=False, soft_wrap=True)
    engine = bcnn.load("digits")
    answers = engine.predict(digits, TOP)
    made = [Sample(*known) for known in zip(digits, labels, answers, strict=True)]
    right = sum(sample.right for sample in made)
    out.print(f"digits: {right} of {len(made)} test images right", highlight=False)
    return Shipped(photos, knows, photo_top1, made, _top1(engine.program))


def _top1(program: Program) -> str:
    found = card.of(program)
    return f"{found.top1:.2%} of {found.images:,} images of {found.data}" if found else ""


# --- the page -------------------------------------------------------------------------------------------------------


def section(found: Shipped) -> str:
    """HTML for the page."""
    return f"""<style>{STYLE}</style>
<h2>The models that come with the package</h2>
{_photos(found) if found.photos else ""}
<p>The shipped <code>digits</code> model, trained before with the same recipe ({html.escape(found.digits_top1)}), on the first test image of every class:</p>
<div class="samples">{"".join(figure(sample) for sample in found.digits)}</div>
"""


def _photos(found: Shipped) -> str:
    figures = "".join(
        f"<figure>{_photo(photo)}<figcaption>{html.escape(photo.caption)}; says</figcaption>{_shares(photo.predictions)}</figure>"
        for photo in found.photos
    )
    return f"""<p><code>bcnn predict photo.jpg</code> asks the <code>imagenette</code> model ({html.escape(found.photo_top1)}).
It knows ten classes and nothing else: {html.escape(", ".join(found.knows))}. <b>A palace and a flower are none of them</b>, so both answers must be wrong;
a classifier has to choose, and its probabilities say how it is divided among the ten, not whether it has seen such a thing.</p>
<div class="photos">{figures}</div>
<p class="soft">Photos by danielbuechele, CC BY 2.0, as distributed with scikit-learn.</p>"""


def _photo(photo: Photo) -> str:
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
