"""The learning rate (sec. 5.1): linear warm-up, then a half wave of the cosine, or another paper's decay; and annealing of the tanh
temperature. No torch.

Reading: the paper does not say how often the rate moves; here it follows every batch, so t counts epochs in fractions.
"""

from __future__ import annotations

import math

from bcnn.training.config import Step


def learning_rate(step: Step, t: float) -> float:
    """The rate at t epochs from the step's start: lr_first * lr at 0, lr at `warmup`, lr_last * lr at the end."""
    if t < step.warmup:
        return step.lr * (step.lr_first + (1 - step.lr_first) * t / step.warmup)
    if step.decay == "steps":
        return step.lr * next((factor for epoch, factor in reversed(step.drops) if t - step.warmup >= epoch), 1.0)
    done = min((t - step.warmup) / step.epochs, 1.0) if step.epochs else 0.0
    if step.decay == "exponential":
        return float(step.lr * step.lr_last**done)
    left = 1 - done if step.decay == "linear" else (1 + math.cos(math.pi * done)) / 2
    return step.lr * (step.lr_last + (1 - step.lr_last) * left)


def temperature(step: Step, t: float) -> float:
    """Of weights = "tanh": from the first to the second value of `step.temperature`, geometrically."""
    first, last = step.temperature
    return float(first * (last / first) ** (t / step.total_epochs))


def boundaries(step: Step) -> list[tuple[int, float]]:
    """(epoch, rate) at every epoch boundary, the end included: what `bcnn train --dry-run` prints."""
    return [(epoch, learning_rate(step, epoch)) for epoch in range(step.total_epochs + 1)]
