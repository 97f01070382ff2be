"""BCNN: fully binary CNNs, from the paper to the device. Importing it imports no torch.

Everything public can be imported from here; what a name needs is imported when it is used.

>>> import bcnn
>>> engine = bcnn.load("digits")
>>> engine.program.labels[:3]
('0', '1', '2')
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcnn.base.version import __version__

if TYPE_CHECKING:
    from torch import nn

    from bcnn.base.errors import UserError as UserError
    from bcnn.engine import Engine
    from bcnn.nets.config import Level as Level
    from bcnn.nets.config import NetworkConfig as NetworkConfig
    from bcnn.nets.config import preset as preset
    from bcnn.packed.packfile import Sizes

# Looked up when they are used, so that `import bcnn` costs nothing: the module of each.
_LATER = {
    "Augment": "bcnn.data.config",
    "DataConfig": "bcnn.data.config",
    "Engine": "bcnn.engine",
    "Level": "bcnn.nets.config",
    "NetworkConfig": "bcnn.nets.config",
    "Program": "bcnn.program.program",
    "Run": "bcnn.models.train",
    "Step": "bcnn.training.config",
    "TrainConfig": "bcnn.training.config",
    "UserError": "bcnn.base.errors",
    "audit": "bcnn.counting.audit",
    "lower": "bcnn.lowering.lower",
    "preset": "bcnn.nets.config",
    "recipe": "bcnn.training.recipes",
    "train": "bcnn.models.train",
    "verify": "bcnn.models.verify",
}
__all__ = ["__version__", "load", "pack", *_LATER]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load(model: str | Path, isa: str | None = None, threads: int | None = None) -> Engine:
    """The engine for a shipped model or a packed file: `bcnn.load("imagenette").predict("photo.jpg")`.

    A name without suffix, such as "imagenette", is the model of that name in the package (`bcnn models` lists them), whatever
    lies in the current folder; "./imagenette" and "imagenette.bcnn" are files.

    >>> import bcnn, numpy as np
    >>> bcnn.load("digits")(np.zeros((8, 8, 3), np.uint8)).shape
    (1, 10)
    """
    from bcnn.engine import Engine
    from bcnn.packed.packfile import read
    from bcnn.packed.shipped import find

    return Engine(read(find(model)), isa=isa, threads=threads)


def pack(
    network: str | Path | nn.Module,
    path: str | Path,
    size: tuple[int, int] | None = None,
    mean: tuple[float, float, float] | None = None,
    std: tuple[float, float, float] | None = None,
    labels: tuple[str, ...] | None = None,
) -> Sizes:
    """Lower a network and write it as a packed file: a run folder or checkpoint, any torch module, "file.py:function". Needs torch.

    A trained network brings its size, mean, std and labels; for any other the defaults are 224 x 224, ImageNet's and none.

    >>> import bcnn, torch
    >>> torch.manual_seed(0) and None
    >>> module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, 2, 1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 2))
    >>> sizes = bcnn.pack(module, f"{folder}/mine.bcnn", size=(8, 8), labels=("cat", "dog"))
    >>> [label for label, _ in bcnn.load(f"{folder}/mine.bcnn").predict(np.zeros((8, 8, 3), np.uint8))[0]]
    ['cat', 'dog']
    """
    from bcnn.models.find import Given, find, pack_found

    return pack_found(find(network, Given(size, mean, std, labels)), path)
