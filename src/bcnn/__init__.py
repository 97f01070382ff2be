"""BCNN: fully binary CNNs, from the paper to the device. Importing it imports no torch.

Everything public can be imported from here; what a name needs is imported when it is used.

>>> import bcnn
>>> engine = bcnn.load("digits")
>>> engine.program.labels[:3]
('0', '1', '2')
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bcnn.base.version import __version__

if TYPE_CHECKING:
    from bcnn.base.errors import UserError as UserError
    from bcnn.models.load import load as load
    from bcnn.models.pack import pack as pack
    from bcnn.nets.config import Level as Level
    from bcnn.nets.config import NetworkConfig as NetworkConfig
    from bcnn.nets.config import preset as preset

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
    "load": "bcnn.models.load",
    "lower": "bcnn.lowering.lower",
    "pack": "bcnn.models.pack",
    "preset": "bcnn.nets.config",
    "recipe": "bcnn.training.recipes",
    "train": "bcnn.models.train",
    "verify": "bcnn.models.verify",
}
__all__ = ["__version__", *_LATER]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
