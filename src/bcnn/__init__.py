"""BCNN: fully binary CNNs, from the paper to the device. Importing it imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bcnn.errors import UserError
from bcnn.nets.config import Level, NetworkConfig, preset

if TYPE_CHECKING:
    from torch import nn

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
    """
    from bcnn.nets.find import Given, find, pack_found

    return pack_found(find(network, Given(size, mean, std, labels)), path)
