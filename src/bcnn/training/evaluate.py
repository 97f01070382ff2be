"""A torch network over an evaluation split -> `Scores`. In float32, every image exactly once.

Either in torch, or lowered and in the engine: what will run in the end, and some ten times as fast.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bcnn.base.progress import Progress, silent
from bcnn.base.scores import Logits, Look, Scores, evaluate
from bcnn.engine import Engine
from bcnn.lowering.lower import lower
from bcnn.training import distributed
from bcnn.training.batches import Data
from bcnn.training.inspection import evaluating

BATCH = 256
ENGINE_BATCH = 32  # images between two signs of life
CPU_PIXELS = 1 << 15  # a thread


def batch_size(size: tuple[int, int], device: str) -> int:
    """Images of a batch. On a CPU few: maps of hundreds of megabytes would be taken from the system and given back layer by
    layer, which for 256 photos of 128 x 128 takes 2.4 times as long as the layers themselves."""
    return BATCH if device != "cpu" else max(1, min(BATCH, torch.get_num_threads() * CPU_PIXELS // (size[0] * size[1])))


def evaluate_network(
    network: nn.Module,
    data: Data,
    device: str = "cpu",
    in_engine: bool = False,
    progress: Progress = silent,
    look: Look | None = None,
    doing: str = "evaluate",
) -> Scores:
    """Over the evaluation split, shared among the processes of a distributed run. The network's mode is left as it was.

    `in_engine` lowers it first: of a network whose weights are binary.
    """
    with evaluating(network):
        answer = engine_logits(network, data) if in_engine else torch_logits(network, data, device)
        batch = ENGINE_BATCH if in_engine else batch_size(data.size, device)
        images = data.val_pixels(batch, *distributed.rank_world())
        scores = evaluate(answer, images, data.val.labels, len(data.classes), progress, doing, look)
    return summed(scores, device)


def engine_logits(network: nn.Module, data: Data) -> Logits:
    return Engine(lower(network, data.mean, data.std, size=data.size)).run


def torch_logits(network: nn.Module, data: Data, device: str) -> Logits:
    @torch.no_grad()
    def answer(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        made: NDArray[np.float32] = network(data.normalise(torch.from_numpy(pixels).to(device))).float().cpu().numpy()
        return made

    return answer


def summed(scores: Scores, device: str) -> Scores:
    """Of all processes."""
    if distributed.rank_world()[1] > 1:
        counts = torch.from_numpy(scores.confusion).to(device)
        sums = torch.tensor([scores.top5_hits, scores.loss_sum], dtype=torch.float64, device=device)
        distributed.sum_(counts, sums)
        scores.confusion = counts.cpu().numpy()
        scores.top5_hits, scores.loss_sum = int(sums[0]), float(sums[1])
    return scores
