"""BCNN: fully binary CNNs, from the paper to the device. Importing it imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bcnn.config import Level, NetworkConfig, preset
from bcnn.errors import UserError

if TYPE_CHECKING:
    from bcnn.engine import Engine

__version__ = "0.1.0"
__all__ = ["Level", "NetworkConfig", "UserError", "__version__", "load", "preset"]


def load(path: str | Path, isa: str | None = None, threads: int | None = None) -> Engine:
    """The engine for a packed file: `bcnn.load("model.bcnn")("photo.jpg")` gives logits."""
    from bcnn.engine import Engine
    from bcnn.packfile import read

    return Engine(read(path), isa=isa, threads=threads)
