"""A torch network over an evaluation split -> `Scores`. In float32, every image exactly once.

Either in torch, or lowered and in the engine: what will run in the end, and some ten times as fast.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bcnn.base.scores import Scores
from bcnn.data import Data
from bcnn.training import distributed

BATCH = 256
ENGINE_BATCH = 32  # images between two signs of life
CPU_PIXELS = 1 << 15  # a thread


def batch_size(size: tuple[int, int], device: str) -> int:
    """Images of a batch. On a CPU few: maps of hundreds of megabytes would be taken from the system and given back layer by
    layer, which for 256 photos of 128 x 128 takes 2.4 times as long as the layers themselves."""
    return BATCH if device != "cpu" else max(1, min(BATCH, torch.get_num_threads() * CPU_PIXELS // (size[0] * size[1])))


@torch.no_grad()
def evaluate(
    network: nn.Module,
    data: Data,
    device: str = "cpu",
    on_images: Callable[[int], object] = lambda count: None,
    on_logits: Callable[[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]], object] | None = None,
) -> Scores:
    """Over the evaluation split, shared among the processes of a distributed run. `on_images` hears of each batch;
    `on_logits` gets the index, logits and class of its images."""
    rank, world = distributed.rank_world()
    scores = Scores.of(len(data.classes))
    training = network.training
    network.eval()
    try:
        for part in data.val_batches(batch_size(data.size, device), rank, world, device):
            logits, y = network(part.x).float().cpu().numpy(), part.y.cpu().numpy()
            scores.add(logits, y)
            if on_logits is not None:
                on_logits(part.index, logits, y)
            on_images(len(part.y))
    finally:
        network.train(training)
    return summed(scores, device)


def evaluate_packed(
    network: nn.Module,
    data: Data,
    device: str = "cpu",
    on_images: Callable[[int], object] = lambda count: None,
    on_logits: Callable[[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]], object] | None = None,
) -> Scores:
    """The same by the engine, of a network whose weights are binary. Its mode is left as it was."""
    from bcnn.engine import Engine
    from bcnn.lowering.lower import lower

    rank, world = distributed.rank_world()
    scores = Scores.of(len(data.classes))
    training = network.training
    try:
        program = lower(network.eval(), data.mean, data.std, size=data.size)
    finally:
        network.train(training)
    engine = Engine(program)
    for pixels, index in data.val_pixels(ENGINE_BATCH, rank, world):
        logits, y = engine.run(pixels.numpy()), data.val.labels[index]
        scores.add(logits, y)
        on_images(len(y))
        if on_logits is not None:
            on_logits(index, logits, y)
    return summed(scores, device)


def summed(scores: Scores, device: str) -> Scores:
    """Of all processes."""
    if distributed.rank_world()[1] > 1:
        counts = torch.from_numpy(scores.confusion).to(device)
        sums = torch.tensor([scores.top5_hits, scores.loss_sum], dtype=torch.float64, device=device)
        distributed.sum_(counts, sums)
        scores.confusion = counts.cpu().numpy()
        scores.top5_hits, scores.loss_sum = int(sums[0]), float(sums[1])
    return scores
