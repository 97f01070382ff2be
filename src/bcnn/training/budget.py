"""A run that is to take so many minutes: as it goes, how many more epochs fit. No torch.

`TimeEstimate` says what is left takes at the speed of the last minutes, evaluations included. Where that is longer or shorter than the time there
is, the epochs left of all steps are scaled alike, and the learning rate's cosine with them: after every epoch, and within one that has fallen
behind. The last epoch ends when the time is over, wherever it is; the cosine ends there, too. What follows the last epoch (the report and the packed file) is
done once in the middle, so that it is known how long it takes; if the machine has become slower since, it will take longer by as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from bcnn.training.config import Step
from bcnn.training.time_estimate import HALF_LIFE, TimeEstimate

T = TypeVar("T")
Clock = Callable[[], float]  # seconds
TIME_TOLERANCE = 0.03  # a smaller difference is left alone: the machine's next epoch differs as much
MAX_OVERRUN = 1.1  # times the time left: an epoch in its midst is not waited for
MIN_EPOCH_SHARE = 0.1  # of an epoch: less is not begun
MAX_EPOCHS = 1 << 20  # epochs of a step


@dataclass
class TimeBudget:
    seconds: float  # for everything, from `began` on
    began: float
    clock: Clock = time.monotonic
    closing: float = -1.0  # seconds of what follows the last epoch; below 0: not known yet
    pace: float = 0.0  # seconds a unit of work took when that was measured
    stretch: float = 1.0  # epochs of the last step, over those that fit: the schedule runs ahead by as much

    @property
    def half_life(self) -> float:
        """Of the speeds an `TimeEstimate` looks at: a short run cannot wait for a minute to notice."""
        return min(HALF_LIFE, self.seconds / 20)

    def closed(self, seconds: float, eta: TimeEstimate) -> None:
        """What follows the last epoch was done once, and took so long."""
        self.closing, self.pace = seconds, max(eta.pace, eta.latest)

    def left(self, eta: TimeEstimate | None = None) -> float:
        """Seconds until the last epoch must be over and evaluated."""
        closing = self.closing
        if closing < 0:  # report and packing: 5 to 10 s on one core
            closing = min(10.0, 0.1 * self.seconds)
        elif eta is not None and self.pace > 0:
            closing *= max(1.0, eta.pace / self.pace)
        return self.began + self.seconds - closing - self.clock()

    def over(self, eta: TimeEstimate) -> bool:
        """Whether training must stop here, to be evaluated in time."""
        return self.left(eta) < eta.evaluation_seconds

    def at_most(self, share: float, items: Iterable[T]) -> Iterator[T]:
        """The items, until they have taken that share of the time left; at least one."""
        until = self.clock() + share * self.left()
        for item in items:
            yield item
            if self.clock() > until:
                return

    def behind(self, steps: tuple[Step, ...], at: int, epoch: int, batch: int, eta: TimeEstimate) -> bool:
        planned = eta.left(steps, at, epoch, batch)
        return planned is not None and planned > MAX_OVERRUN * self.left(eta)

    def refit(self, steps: tuple[Step, ...], at: int, epoch: int, batch: int, eta: TimeEstimate) -> tuple[Step, ...]:
        """The steps with as many epochs as fit, when `batch` updates of epoch `epoch` (from 0) of step `at` are done. That epoch
        is kept, and one of every later step."""
        left, planned = self.left(eta), eta.left(steps, at, epoch, batch)
        last = at == len(steps) - 1
        # Seconds of an epoch of the last step.
        one = eta.batches * eta.batch * steps[-1].size ** 2 * eta.pace + eta.between
        if planned is None or (abs(planned - left) <= min(TIME_TOLERANCE * left, MIN_EPOCH_SHARE * one)):
            return steps

        def scaled_by(scale: float) -> tuple[Step, ...]:
            # A last step that is done grows from the epoch that was its last.
            ahead = max(steps[at].total_epochs - epoch - 1, int(last))
            current = with_total(steps[at], epoch + 1 + min(MAX_EPOCHS, int(scale * ahead)))
            later = (
                with_total(step, max(1, min(MAX_EPOCHS, int(scale * step.total_epochs)))) for step in steps[at + 1 :]
            )
            return (*steps[:at], current, *later)

        low, high = 0.0, 1.0
        while high < MAX_EPOCHS and (eta.left(scaled_by(high), at, epoch, batch) or 0.0) <= left:
            low, high = high, 2 * high
        for _ in range(24):  # the largest scale that fits
            middle = (low + high) / 2
            fits = (eta.left(scaled_by(middle), at, epoch, batch) or 0.0) <= left
            low, high = (middle, high) if fits else (low, middle)
        steps = scaled_by(low)
        if not last:
            return steps
        total = steps[at].total_epochs
        # A fraction of an epoch more, or less.
        fitting = total + (left - (eta.left(steps, at, epoch, batch) or 0.0)) / one
        total += fitting - total > MIN_EPOCH_SHARE
        self.stretch = max(1.0, total / max(fitting, 1e-6))
        return (*steps[:at], with_total(steps[at], total))

    def at(self, step: Step, t: float) -> float:
        """Where the schedule of `step` is when `t` epochs are done."""
        return min(float(step.total_epochs), t * self.stretch)


def with_total(step: Step, total: int) -> Step:
    """The step with `total` epochs, warm-up included; the warm-up stays as long as it is where it can."""
    warmup = min(step.warmup, total)
    return replace(step, warmup=warmup, epochs=total - warmup)


def scaled(steps: tuple[Step, ...], total: int) -> tuple[Step, ...]:
    """`--epochs N`: the steps with N epochs together, each with its share and at least one; a warm-up of at most a third of it."""
    before = sum(step.total_epochs for step in steps)
    total = max(total, len(steps))
    shares = [max(1, round(step.total_epochs * total / before)) for step in steps]
    while sum(shares) != total:  # rounding: the longest gives or takes
        longest = shares.index(max(shares))
        shares[longest] += 1 if sum(shares) < total else -1
    made = []
    for step, share in zip(steps, shares, strict=True):
        warmup = min(step.warmup, share // 3)
        made.append(replace(step, warmup=warmup, epochs=share - warmup))
    return tuple(made)
