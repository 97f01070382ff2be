"""What a step minimises: distributional loss (sec. 5.1), and the paper's next steps, feature-map matching and pull to the signs."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.nets.bcnn import Network
from bcnn.nets.binarize import sign


def distribution_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the student's output against the teacher's output pmf N,classes (sec. 5.1)."""
    return -(targets * F.log_softmax(logits, dim=1)).sum(1).mean()


def squared_hinge(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean of max(0, 1 - t y)^2 over classes and images, t = +1 for the label's class and -1 for every other: BNN's loss."""
    targets = 2.0 * F.one_hot(labels, logits.shape[1]).to(logits.dtype) - 1
    return (1 - targets * logits).clamp_min(0).pow(2).mean()


class LevelMaps:
    """The map after the stem and after every level, kept while the block lasts: `with LevelMaps(network) as seen: network(x)`.

    Without a network it keeps nothing.
    """

    def __init__(self, network: Network | None) -> None:
        self.network = network
        self.maps: list[Tensor] = []

    def __enter__(self) -> LevelMaps:
        levels = self.network.levels() if self.network is not None else ()
        self.handles = [level.register_forward_hook(self._keep) for level in levels]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self.handles:
            handle.remove()

    def _keep(self, module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        self.maps.append(out)


def matching_loss(student: list[Tensor], teacher: list[Tensor]) -> Tensor:
    """Feature-map matching: mean over levels of the squared distance between the two attention maps.

    Reading: the paper names the idea only (sec. 5.3, 7). Binary maps differ from real ones in range and, between networks,
    in channels; so what is compared is where the energy lies: the sum of squares over channels, as a unit vector over pixels.
    """

    def attention(x: Tensor) -> Tensor:
        return F.normalize(x.pow(2).mean(1).flatten(1), dim=1)

    distances = [(attention(s) - attention(t)).pow(2).sum(1).mean() for s, t in zip(student, teacher, strict=True)]
    return torch.stack(distances).mean()


@torch.no_grad()
def pull_toward_signs(weights: Iterable[nn.Parameter], strength: float) -> None:
    """Add the gradient of strength / 2 * sum (|w| - 1)^2, an L2 regularisation toward {-1, +1} (sec. 5.1 end, sec. 7)."""
    for weight in weights:
        if weight.grad is not None:
            weight.grad.add_(weight - sign(weight), alpha=strength)
