"""Weights of one step -> the network of the next (sec. 5.2), strictly: every tensor must find its place, or it is an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from bcnn.base.dataclass_io import shown
from bcnn.base.errors import UserError
from bcnn.nets.latent import latent_weights


@dataclass(frozen=True)
class TransferReport:
    """What a transfer moved."""

    source: str
    tensors: int
    values: int
    binary_weights: int
    plus: int  # of them, latent weights that binarize to +1
    outside: int  # of them, latent weights outside [-1, 1], which get no gradient in step 2 (Eq. 3)

    def __str__(self) -> str:
        total = max(1, self.binary_weights)
        return (
            f"transferred from {self.source}: {self.tensors} tensors, {self.values:,} values, none left over; "
            f"{self.binary_weights:,} binary weights, {self.plus / total:.1%} of them +1, "
            f"{self.outside / total:.1%} of the latents outside [-1, 1]"
        )


def check_state(state: Mapping[str, Tensor], network: nn.Module, source: str) -> None:
    """A missing, unknown or differently shaped tensor is a `UserError`."""
    own = network.state_dict()
    if missing := sorted(own.keys() - state.keys()):
        raise UserError(f"{source} lacks {len(missing)} tensors of this network, the first is {missing[0]!r}")
    if unknown := sorted(state.keys() - own.keys()):
        raise UserError(f"{source} has {len(unknown)} tensors this network has not, the first is {shown(unknown[0])}")
    for name, tensor in own.items():
        if state[name].shape != tensor.shape:
            raise UserError(f"{source}: {name} is {tuple(state[name].shape)}, this network's is {tuple(tensor.shape)}")
        if state[name].dtype != tensor.dtype:
            raise UserError(f"{source}: {name} is {state[name].dtype}, this network's is {tensor.dtype}")


def transfer(state: Mapping[str, Tensor], network: nn.Module, source: str) -> TransferReport:
    """Copy `state` into the network. What does not fit is a `UserError`, never a silent drop."""
    check_state(state, network, source)
    network.load_state_dict(dict(state), strict=True)
    own = network.state_dict()
    moved = [weight.detach() for weight in latent_weights(network)]
    return TransferReport(
        source,
        len(own),
        sum(t.numel() for t in own.values()),
        sum(w.numel() for w in moved),
        sum(int((w >= 0).sum()) for w in moved),
        sum(int((w.abs() > 1).sum()) for w in moved),
    )
