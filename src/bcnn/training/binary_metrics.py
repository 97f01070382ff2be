"""What binary training must watch besides loss and accuracy.

- flips: share of the binary weights that changed sign in an update. High: the rate is too high; zero: nothing is learned any more.
- outside: share of the latent weights outside [-1, 1]. They get no gradient (Eq. 3) and are stuck.
- balance: share of +1 among a binary layer's binarized activations. Near 0 or 1 a channel tells nothing.
- surviving: share of the activations through which any gradient survives the surrogate: |x + b| < 1 (Eq. 1) in the paper's network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from bcnn.nets.latent import Latent, latents
from bcnn.training.inspection import Hook, evaluating


def signs(weights: Sequence[Tensor]) -> list[Tensor]:
    return [weight.detach() >= 0 for weight in weights]


def flipped(before: Sequence[Tensor], weights: Sequence[Tensor]) -> float:
    """Share of the signs that differ from `before`, which `signs` made."""
    changed = sum(int((old != (new.detach() >= 0)).sum()) for old, new in zip(before, weights, strict=True))
    return changed / max(1, sum(old.numel() for old in before))


def outside(weights: Sequence[Tensor]) -> float:
    count = sum(int((weight.detach().abs() > 1).sum()) for weight in weights)
    return count / max(1, sum(weight.numel() for weight in weights))


@dataclass
class Activity:
    """Balance and surviving share of every binary layer, by module name."""

    balance: dict[str, float] = field(default_factory=dict)
    surviving: dict[str, float] = field(default_factory=dict)


@torch.no_grad()
def activity(network: nn.Module, x: Tensor) -> Activity:
    """Look at every binary layer's input while `x` passes through the network in eval mode, which changes nothing in it."""
    result = Activity()

    def look(name: str) -> Hook:
        def hook(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            assert isinstance(module, Latent)
            summed = module.summed(args[0])
            if summed is not None:
                result.balance[name] = float((summed >= 0).double().mean())
                result.surviving[name] = float(module.survives(summed).double().mean())

        return hook

    with evaluating(network, [(module, look(name)) for name, module in latents(network)]):
        network(x)
    return result
