"""A run that is to take so many minutes: after every epoch, how many more fit. No torch.

What is left to do is counted in units: training on one image at the network's full size is 1, at half the size a quarter. The epoch
that has just ended says what a unit costs on this machine, now, with its share of evaluation and saving. If what is left
takes longer or shorter than there is time, the epochs left of all steps are scaled alike, and the learning rate's cosine with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from bcnn.train.config import Step

T = TypeVar("T")
TOLERANCE = 0.03  # a smaller difference is left alone: the machine's next epoch differs as much


@dataclass
class Budget:
    seconds: float  # for everything, from `began` on
    began: float
    clock: Callable[[], float] = time.monotonic
    since: float = 0.0  # when the last epoch ended
    evaluation: float = 0.0  # seconds that the last one took

    @property
    def closing(self) -> float:
        """Kept for what follows the last epoch: an evaluation; the report, 5 to 10 s on one core; and packing, which lowers the
        network once more, as an evaluation in the engine does."""
        return 2 * self.evaluation + min(10.0, 0.1 * self.seconds)

    def left(self) -> float:
        return self.began + self.seconds - self.closing - self.clock()

    def at_most(self, share: float, items: Iterable[T]) -> Iterator[T]:
        """The items, until they have taken that share of the time left; at least one."""
        until = self.clock() + share * self.left()
        for item in items:
            yield item
            if self.clock() > until:
                return

    def start_epochs(self) -> None:
        """Training begins here: what came before is spent, and is no part of an epoch."""
        self.since = self.clock()

    def refit(self, steps: tuple[Step, ...], at: int, epoch: int) -> tuple[Step, ...]:
        """The steps with as many epochs as fit, when `epoch` epochs of step `at` are done."""
        now = self.clock()
        cost, self.since = now - self.since, now
        here = steps[at]
        per_unit = max(cost, 1e-6) / here.size**2
        ahead = [(here.total_epochs - epoch, here), *((step.total_epochs, step) for step in steps[at + 1 :])]
        planned = per_unit * sum(epochs * step.size**2 for epochs, step in ahead)
        if planned <= 0 and at == len(steps) - 1:
            more = int(self.left() / max(cost, 1e-6))  # finished early: whole epochs that still fit
            return steps if more < 1 else (*steps[:at], with_total(here, epoch + more))
        scale = max(0.0, self.left()) / max(planned, 1e-6)
        if abs(scale - 1) < TOLERANCE:
            return steps
        current = with_total(here, max(epoch, epoch + round(scale * (here.total_epochs - epoch))))
        later = (with_total(step, max(1, round(scale * step.total_epochs))) for step in steps[at + 1 :])
        return (*steps[:at], current, *later)


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
