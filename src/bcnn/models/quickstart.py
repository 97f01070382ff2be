"""What `bcnn quickstart` finds out on its walk: answers, times, a picture of section 3, what the shipped models say. `quickstart_page` shows it.

Neither of scikit-learn's two photos shows one of the ten things that the photo model knows: its answers show what a classifier
does then, and the page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bcnn.base.images import Pixels
from bcnn.base.scores import Logits
from bcnn.bench.timing import Times, interleave
from bcnn.counting.counts import CountNode
from bcnn.engine import Engine
from bcnn.models.load import load
from bcnn.packed import card, shipped
from bcnn.packed.packfile import Sizes
from bcnn.program.program import Program
from bcnn.training.run_folder import RunFolder

TOP = 3
ROUNDS = 50  # a few seconds of torch and engine in turns
# What the two photos show. By danielbuechele on Flickr, CC BY 2.0, distributed with scikit-learn.
CAPTIONS = {"china.jpg": "a palace", "flower.jpg": "a flower"}


@dataclass(frozen=True, eq=False)
class Sample:
    """A test image, what it is, and what the engine says, likeliest first."""

    pixels: Pixels
    label: str
    predictions: Sequence[tuple[str, float]]

    @property
    def right(self) -> bool:
        return self.predictions[0][0] == self.label


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


@dataclass(frozen=True, eq=False)
class Quickstart:
    """What one walk found."""

    folder: RunFolder
    counts: CountNode
    products: int  # matrix-matrix products, all 1 x 1 bit
    sizes: Sizes
    float_bytes: int  # of the parameters in float32
    samples: Sequence[Sample]  # the whole test set
    times: dict[str, Times]  # "engine" and "torch": one image, one thread, in turns
    isa: str
    approximator: bytes  # a PNG
    shipped: Shipped


def answers(engine: Engine, pixels: Pixels, labels: Sequence[str]) -> list[Sample]:
    """What the engine says of images whose labels are known."""
    return [Sample(*known) for known in zip(pixels, labels, engine.predict(pixels, TOP), strict=True)]


def race(engine: Engine, torch_logits: Logits, image: Pixels) -> dict[str, Times]:
    """One image, one thread, in turns."""
    import torch

    torch.set_num_threads(1)
    return interleave({"engine": lambda: engine.run(image), "torch": lambda: torch_logits(image)}, ROUNDS)


def approximator(path: Path) -> bytes:
    """The picture of `bcnn approximate sinc`."""
    from bcnn.theory import Approximator
    from bcnn.theory.convergence import Setting, converge, halvings
    from bcnn.theory.examples import EXAMPLES
    from bcnn.theory.plots import draw

    sinc = EXAMPLES["sinc"]
    setting = Setting(sinc.f, sinc.domain, sinc.ends, sinc.jumps)
    points = list(converge(setting, halvings(setting, sinc.d, sinc.Q)))
    draw(setting, Approximator(setting.plan(sinc.d, sinc.Q)), points, sinc.title, path)
    return path.read_bytes()


def classify(digits: Pixels, labels: Sequence[str]) -> Shipped:
    """Run the shipped models on the two photos and on the given digits. A package without the photo model skips the photos."""
    model = load("digits")
    photos, program = _photos() if shipped.DEFAULT in shipped.names() else ([], None)
    samples, knows = answers(model, digits, labels), program.labels if program else ()
    return Shipped(photos, knows, _top1(program), samples, _top1(model.program))


def _photos() -> tuple[list[Photo], Program]:
    from sklearn.datasets import load_sample_images

    engine, both = load(shipped.DEFAULT), load_sample_images()
    names = [Path(file).name for file in both.filenames]
    says = engine.predict(list(both.images), TOP)
    captions = [f"{name}: {CAPTIONS[name]}" for name in names]
    return [Photo(*known) for known in zip(both.images, captions, says, strict=True)], engine.program


def _top1(program: Program | None) -> str:
    found = card.of(program) if program else None
    return f"{found.top1:.2%} of {found.images:,} images of {found.data}" if found else ""
