"""Modules that hold latent real weights behind their signs, and what is done to all of them in a network at once.

Two-step training, for any network: step 1 runs with `set_weights(network, "real")`, step 2 and everything after it with
"binary"; `binarize.WEIGHTS` has the other modes. Switching changes no parameter. `constrain` is what some papers do to the
latent weights after every update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from bcnn.base.dataclass_io import shown
from bcnn.base.errors import UserError, nearest
from bcnn.nets.binarize import WEIGHTS, sign


class Latent(nn.Module):
    """A layer whose `weight` is the latent real tensor that accumulates the gradients of its signs (sec. 5.2)."""

    modes: ClassVar[frozenset[str]] = frozenset(WEIGHTS)
    weight: nn.Parameter

    def __init__(self) -> None:
        super().__init__()
        self.weights = "binary"  # or another of `modes`: set for a whole network by `set_weights`
        self.temperature = 1.0  # of weights "tanh"

    def signs(self) -> Tensor:
        """The +-1 tensor that weights "binary" convolve with. No gradient."""
        return sign(self.weight.detach())

    def summed(self, x: Tensor) -> Tensor | None:
        """What of the input x the sign is taken of, padding left out; None where the input stays real. For meters."""
        return x

    def survives(self, summed: Tensor) -> Tensor:
        """Where the surrogate of the sign lets a gradient through (Eq. 1)."""
        return summed.abs() < 1

    def constrain(self) -> None:
        """What is done in place to the latent weights after every update; nothing unless the paper says so."""


def latents(network: nn.Module) -> Iterator[tuple[str, Latent]]:
    """Every layer with latent weights, by its name in the network."""
    for name, module in network.named_modules():
        if isinstance(module, Latent):
            yield name, module


def set_weights(network: nn.Module, mode: str) -> None:
    """Switches what every binary layer of the network does with its latent weights. All of them or, in an error, none."""
    modes = frozenset(WEIGHTS).intersection(*(module.modes for _, module in latents(network)))
    if mode not in modes:
        raise UserError(f"unknown weights {shown(mode)}; {nearest(mode[:80], modes)}")
    for _, module in latents(network):
        module.weights = mode


def weights_of(network: nn.Module) -> str:
    """What `set_weights` set; "binary" for a network that has nothing to switch."""
    return next((module.weights for _, module in latents(network)), "binary")


def set_temperature(network: nn.Module, temperature: float) -> None:
    """Of weights "tanh", in every binary layer."""
    for _, module in latents(network):
        module.temperature = temperature


def binary_weights(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The +-1 tensor of every binary layer by parameter name, whatever `weights` is set to."""
    for name, module in latents(network):
        yield f"{name}.weight".removeprefix("."), module.signs()


def latent_weights(network: nn.Module) -> list[nn.Parameter]:
    """The latent real weights of every binary layer."""
    return [module.weight for _, module in latents(network)]


@torch.no_grad()
def constrain(network: nn.Module) -> None:
    """After an update: clamps (BNN) or centres and clamps (XNOR-Net) the latent weights of the layers whose rules say so."""
    for _, module in latents(network):
        module.constrain()
