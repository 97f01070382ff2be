"""The trained models inside the package: a name -> its packed file. No torch.

`zoo/NAME.bcnn` is a packed file like any other; what it is, how it was trained and what it reaches stands in the file
itself, see `card`. `python -m tools.release.ship` makes them from finished runs.
"""

from __future__ import annotations

import os
from pathlib import Path

from bcnn.base.errors import UserError, nearest

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
    """The packed file that a person means: a shipped model by its bare name, or any file by its path.

    The bare name wins over a file or folder that is called the same, so that `bcnn eval imagenette --data imagenette` means
    one thing everywhere; `./imagenette` and `imagenette.bcnn` are files, and so is whatever comes as a `Path`.
    """
    if isinstance(model, Path):
        return model
    if model in names():
        return FOLDER / f"{model}.bcnn"
    path = Path(model)
    bare = model not in ("", ".", "..") and not path.suffix and os.sep not in model
    if bare and not path.exists():
        raise UserError(f"no shipped model and no file is called {model!r}; {nearest(model, names())}")
    return path
