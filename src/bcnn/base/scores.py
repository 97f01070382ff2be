"""Logits and classes -> top-1, top-5, confusion matrix, accuracy per class; and the one loop that measures. No torch.

Whatever answers a batch of images can be measured: the engine, a torch network, an interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bcnn.base.progress import Progress, silent

ImageIndices = NDArray[np.int64]
Logits = Callable[[NDArray[np.uint8]], NDArray[np.float32]]  # uint8 N,H,W,3 -> N,classes: whatever answers a batch
Look = Callable[
    [ImageIndices, NDArray[np.float32], ImageIndices], object
]  # index in the split, logits and class of each image


@dataclass
class Scores:
    """Counts over a split; `confusion[true, predicted]`."""

    confusion: NDArray[np.int64]
    top5_hits: int = 0
    loss_sum: float = 0.0
    predictions: list[NDArray[np.int64]] = field(default_factory=list)  # of this process, in its order

    @staticmethod
    def of(classes: int) -> Scores:
        return Scores(np.zeros((classes, classes), dtype=np.int64))

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

    def add(self, logits: NDArray[np.float32], y: NDArray[np.int64]) -> None:
        """Logits N,classes of images whose classes are `y`. A tie goes to the lowest class, as in `Engine.predict`."""
        order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
        self.top5_hits += int((order == y[:, None]).sum())
        guess = order[:, 0].astype(np.int64)
        np.add.at(self.confusion, (y, guess), 1)
        # Cross entropy: log of the sum of exponentials, less the logit of the class.
        x = logits.astype(np.float64)
        high = x.max(axis=1)
        entropy = high + np.log(np.exp(x - high[:, None]).sum(axis=1)) - x[np.arange(len(y)), y]
        self.loss_sum += float(entropy.sum())
        self.predictions.append(guess)


def evaluate(
    answer: Logits,
    batches: Iterable[tuple[NDArray[np.uint8], ImageIndices]],
    labels: ImageIndices,
    classes: int,
    progress: Progress = silent,
    doing: str = "evaluate",
    look: Look | None = None,
) -> Scores:
    """Measure `answer` over batches of images, each with its index in the split whose classes are `labels`.

    `look` sees every image's logits.
    """
    scores = Scores.of(classes)
    for pixels, index in batches:
        logits, y = answer(pixels).reshape(len(index), classes), labels[index]
        scores.add(logits, y)
        if look is not None:
            look(index, logits, y)
        progress(doing, len(index), len(labels))
    return scores
