"""A trained network -> the program that is packed: its weights must be binary, and the file says which version packed it."""

from __future__ import annotations

from typing import Any, Protocol

from torch import nn

from bcnn.base.affine import Floats3
from bcnn.base.errors import UserError
from bcnn.base.version import __version__
from bcnn.lowering.lower import lower
from bcnn.nets.latent import weights_of
from bcnn.program.program import Program


class Reads(Protocol):
    """What a network's images are normalised with, and what is known of it."""

    @property
    def mean(self) -> Floats3: ...

    @property
    def std(self) -> Floats3: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def crop(self) -> float: ...

    @property
    def provenance(self) -> dict[str, Any]: ...


def lower_to_pack(network: nn.Module, name: str, meta: Reads, size: tuple[int, int]) -> Program:
    """What the engine runs of a network that is finished."""
    if (weights := weights_of(network)) not in ("binary", "scaled"):
        raise UserError(
            f"cannot pack {name}: its weights are {weights!r}, not 'binary'; "
            f"finish step 2 of the training before you lower it"
        )
    provenance = {**meta.provenance, "packed_by": f"bcnn {__version__}"}
    return lower(network, meta.mean, meta.std, meta.labels, meta.crop, provenance, size)
