"""The trained models inside the package: a name -> its packed file. No torch.

`zoo/NAME.bcnn` is a packed file like any other; what it is, how it was trained and what it reaches stands in the file
itself, see `card`. `python -m tools.release.ship` makes them from finished runs.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "zoo"
DEFAULT = "imagenette"  # of `bcnn predict`: photos are what people have
# Of `bcnn learn`, the best first: the more classes a network was trained on, the more its features know of others.
STARTS = ("tinyimagenet", "imagenette", "cifar10", "digits")


def names() -> tuple[str, ...]:
    """The shipped models, in the order of the alphabet."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.bcnn")))


def start() -> str:
    """The shipped model that new classes are best learned from."""
    return next(name for name in STARTS if name in names())


def find(model: str | Path) -> Path:
    """The packed file of a shipped model, by its bare name; any other text, and every `Path`, is the path of a file.

    What else a text may mean is decided in `bcnn.models.resolve`.
    """
    return FOLDER / f"{model}.bcnn" if isinstance(model, str) and model in names() else Path(model)
