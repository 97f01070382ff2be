"""How long a run still takes: work in units, and what a unit has cost lately. No torch.

Training on one image at full size is one unit, at half the size a quarter, so a later step at a larger size counts for what it is.
Evaluation passes forward only: `FORWARD` of a unit an image, until the first one was timed.
"""

from __future__ import annotations

from dataclasses import dataclass

from bcnn.train.config import Step, TrainConfig

FORWARD = 0.4  # of training on an image: a guess, until the first evaluation was timed
HALF_LIFE = 60.0  # seconds: what is older counts half


@dataclass
class Eta:
    config: TrainConfig
    batch: int
    batches: int  # updates of an epoch
    evaluated: int  # images of an evaluation
    forward: float = FORWARD  # units of evaluating one image
    units: float = 0.0
    seconds: float = 0.0

    def observe(self, units: float, seconds: float) -> None:
        keep = 0.5 ** (seconds / HALF_LIFE)
        self.units, self.seconds = self.units * keep + units, self.seconds * keep + seconds

    def trained(self, step: Step, seconds: float) -> None:
        """One update of `step` took so long."""
        self.observe(self.batch * step.size**2, seconds)

    def evaluation(self, seconds: float) -> None:
        """One evaluation took so long: what it costs is known from now on."""
        if self.units > 0:
            self.forward = seconds * self.units / self.seconds / max(1, self.evaluated)

    def ahead(self, steps: tuple[Step, ...], at: int, epoch: int, batch: int) -> float:
        """Units from batch `batch` of epoch `epoch` of step `at` to the end."""
        total = 0.0
        for index, step in enumerate(steps[at:], start=at):
            done, within = (epoch, batch) if index == at else (0, 0)
            updates = (step.total_epochs - done) * self.batches - within
            every = self.config.evaluate_every
            evaluations = len({*range(every, step.total_epochs + 1, every), step.total_epochs} - {*range(done + 1)})
            total += max(0, updates) * self.batch * step.size**2 + evaluations * self.evaluated * self.forward
        return total

    def left(self, steps: tuple[Step, ...], at: int, epoch: int, batch: int) -> float | None:
        """Seconds; None before anything was timed."""
        if not self.units:
            return None
        return self.ahead(steps, at, epoch, batch) * self.seconds / self.units


def duration(seconds: float) -> str:
    """45 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
