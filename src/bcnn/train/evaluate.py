"""Logits and classes -> top-1, top-5, confusion matrix, accuracy per class. In float32, every image exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.data import Data
from bcnn.train import distributed


@dataclass
class Scores:
    """Counts over a split; `confusion[true, predicted]`."""

    confusion: NDArray[np.int64]
    top5_hits: int = 0
    loss_sum: float = 0.0
    predictions: list[NDArray[np.int64]] = field(default_factory=list)  # of this process, in its order

    @property
    def count(self) -> int:
        return int(self.confusion.sum())

    @property
    def top1(self) -> float:
        return float(np.trace(self.confusion)) / max(1, self.count)

    @property
    def top5(self) -> float:
        return self.top5_hits / max(1, self.count)

    @property
    def loss(self) -> float:
        return self.loss_sum / max(1, self.count)

    def per_class(self) -> list[float | None]:
        """Share of each class's images that were recognised; None for a class without images."""
        totals = self.confusion.sum(1)
        return [float(self.confusion[i, i] / total) if total else None for i, total in enumerate(totals)]

    def add(self, logits: Tensor, y: Tensor) -> None:
        best = logits.topk(min(5, logits.shape[1]), dim=1).indices
        self.top5_hits += int((best == y[:, None]).sum())
        # A tie goes to the lowest class, as NumPy's argmax in the engine's users: topk promises no order among equals.
        guess = logits.detach().cpu().numpy().argmax(1).astype(np.int64)
        np.add.at(self.confusion, (y.cpu().numpy(), guess), 1)
        self.loss_sum += float(F.cross_entropy(logits.double(), y, reduction="sum"))
        self.predictions.append(guess)


@torch.no_grad()
def evaluate(
    network: nn.Module,
    data: Data,
    batch: int = 256,
    device: str = "cpu",
    on_images: Callable[[int], object] = lambda count: None,
) -> Scores:
    """Over the evaluation split, shared among the processes of a distributed run. `on_images` hears of each batch."""
    rank, world = distributed.rank_world()
    scores = Scores(np.zeros((len(data.classes), len(data.classes)), dtype=np.int64))
    training = network.training
    network.eval()
    try:
        for part in data.val_batches(batch, rank, world, device):
            scores.add(network(part.x), part.y)
            on_images(len(part.y))
    finally:
        network.train(training)
    if world > 1:
        counts = torch.from_numpy(scores.confusion).to(device)
        sums = torch.tensor([scores.top5_hits, scores.loss_sum], dtype=torch.float64, device=device)
        distributed.sum_(counts, sums)
        scores.confusion = counts.cpu().numpy()
        scores.top5_hits, scores.loss_sum = int(sums[0]), float(sums[1])
    return scores
