"""`bcnn.pack` and `bcnn pack`: a network -> a packed file. Needs torch."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bcnn.base.affine import Floats3
from bcnn.base.errors import UserError
from bcnn.models import networks
from bcnn.models.networks import Found, Given
from bcnn.models.resolve import Model, Resolved, resolve
from bcnn.models.verbs import Kind
from bcnn.packed.shipped import names

if TYPE_CHECKING:
    from bcnn.base.affine import Floats3
    from bcnn.packed.packfile import Sizes
    from bcnn.program.program import Program


def pack(
    network: Model,
    path: str | Path,
    size: tuple[int, int] | None = None,
    mean: Floats3 | None = None,
    std: Floats3 | None = None,
    labels: tuple[str, ...] | None = None,
    random: bool = False,
) -> Sizes:
    """Lower a network and write it as a packed file: a run folder or checkpoint, any torch module, "file.py:function". Needs torch.

    A trained network brings its size, mean, std and labels; for any other the defaults are 224 x 224, ImageNet's and none. The name
    of an architecture, or a config, has no trained weights: `random=True` packs random ones.

    >>> import bcnn, torch
    >>> torch.manual_seed(0) and None
    >>> module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, 2, 1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 2))
    >>> sizes = bcnn.pack(module, f"{folder}/mine.bcnn", size=(8, 8), labels=("cat", "dog"))
    >>> [label for label, _ in bcnn.load(f"{folder}/mine.bcnn").predict(np.zeros((8, 8, 3), np.uint8))[0]]
    ['cat', 'dog']
    """
    return write(networks.network(chosen(network, random), Given(size, mean, std, labels)), path)


def chosen(what: Model, random: bool = False) -> Resolved:
    """The network to pack. One without trained weights must be asked for."""
    found = resolve(what, "pack")
    if random or found.kind not in (Kind.NETWORK, Kind.CONFIG):
        return found
    name = shlex.quote(found.name)
    packed = f"; the trained one is packed already: bcnn info {name}" if found.name in names() else ""
    raise UserError(
        f"{found.name} is a {found.kind} and has no trained weights; to pack random ones say --random (in Python random=True), "
        f"to train it say: bcnn train --network {name} --data PHOTOS{packed}"
    )


def write(found: Found, path: str | Path, convert: Callable[[Program], Program] = lambda program: program) -> Sizes:
    """Lower it and write it as a packed file, `convert`ed to other numbers first."""
    from bcnn.packed.packfile import save

    return save(convert(lowered(found)), path)


def lowered(found: Found) -> Program:
    """What the engine runs of it."""
    from bcnn.lowering.packing import lower_to_pack

    return lower_to_pack(found.module, found.name, found, found.size)
