"""BCNN: fully binary CNNs, from the paper to the device. Importing it imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bcnn.errors import UserError
from bcnn.nets.config import Level, NetworkConfig, preset

if TYPE_CHECKING:
    from bcnn.deploy.engine import Engine
    from bcnn.deploy.packfile import Sizes

__version__ = "0.1.0"
__all__ = ["Level", "NetworkConfig", "UserError", "__version__", "load", "pack", "preset"]


def load(model: str | Path, isa: str | None = None, threads: int | None = None) -> Engine:
    """The engine for a shipped model or a packed file: `bcnn.load("imagenette").predict("photo.jpg")`.

    A name without suffix, such as "imagenette", is the model of that name in the package (`bcnn models` lists them), whatever
    lies in the current folder; "./imagenette" and "imagenette.bcnn" are files.
    """
    from bcnn.deploy.engine import Engine
    from bcnn.deploy.packfile import read
    from bcnn.deploy.shipped import find

    return Engine(read(find(model)), isa=isa, threads=threads)


def pack(checkpoint: str | Path, path: str | Path) -> Sizes:
    """Lower a trained network, given by its checkpoint or run folder, and write it as a packed file. Needs torch."""
    from bcnn.deploy.packfile import save
    from bcnn.program.lower import lower
    from bcnn.train.checkpoint import load as load_checkpoint

    network, meta = load_checkpoint(checkpoint)
    provenance = {**meta.provenance, "packed_by": f"bcnn {__version__}"}
    return save(lower(network, meta.mean, meta.std, meta.labels, meta.crop, provenance), path)
