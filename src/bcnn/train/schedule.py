"""The learning rate (sec. 5.1): linear warm-up, then a half wave of the cosine; and annealing of the tanh temperature. No torch.

Reading: the paper does not say how often the rate moves; here it follows every batch, so t counts epochs in fractions.
"""

from __future__ import annotations

import math

from bcnn.train.config import Step


def learning_rate(step: Step, t: float) -> float:
    """The rate at t epochs from the step's start: lr_first * lr at 0, lr at `warmup`, lr_last * lr at the end."""
    if t < step.warmup:
        return step.lr * (step.lr_first + (1 - step.lr_first) * t / step.warmup)
    done = (t - step.warmup) / step.epochs if step.epochs else 0.0
    return step.lr * (step.lr_last + (1 - step.lr_last) * (1 + math.cos(math.pi * min(done, 1.0))) / 2)


def temperature(step: Step, t: float) -> float:
    """Of weights = "tanh": from the first to the second value of `step.temperature`, geometrically."""
    first, last = step.temperature
    return float(first * (last / first) ** (t / step.total_epochs))


def boundaries(step: Step) -> list[tuple[int, float]]:
    """(epoch, rate) at every epoch boundary, the end included: what `bcnn train --dry-run` prints."""
    return [(epoch, learning_rate(step, epoch)) for epoch in range(step.total_epochs + 1)]
