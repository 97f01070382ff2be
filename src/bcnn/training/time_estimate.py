"""How long a run still takes: work in units, and what a unit has cost lately. No torch.

Training on one image at full size is one unit, at half the size a quarter, so a later step at a larger size counts for what it is.
Evaluation passes forward only: a share of a unit an image, guessed until the first one was timed. What lies between two epochs besides
(meters, checkpoints) is seconds of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from bcnn.training.config import Step, TrainConfig

FORWARD_SHARE = {"torch": 0.4, "engine": 0.05}  # of training on an image: a guess, until the first evaluation was timed
HALF_LIFE = 60.0  # seconds: what is older counts half


@dataclass
class TimeEstimate:
    config: TrainConfig
    batch: int
    batches: int  # updates of an epoch
    evaluated: int  # images of an evaluation
    half_life: float = HALF_LIFE
    forward: float = 0.0  # units of evaluating one image
    between: float = 0.0  # seconds between two epochs, without evaluation
    units: float = 0.0
    seconds: float = 0.0
    latest: float = 0.0  # seconds a unit of the last update took

    def __post_init__(self) -> None:
        self.forward = self.forward or FORWARD_SHARE[self.config.evaluate_with]

    def observe(self, units: float, seconds: float) -> None:
        keep = 0.5 ** (seconds / self.half_life)
        self.units, self.seconds = self.units * keep + units, self.seconds * keep + seconds

    @property
    def pace(self) -> float:
        """Seconds a unit takes now; 0 before anything was timed."""
        return self.seconds / self.units if self.units else 0.0

    def trained(self, step: Step, seconds: float) -> None:
        """One update of `step` took so long."""
        self.observe(self.batch * step.size**2, seconds)
        self.latest = seconds / (self.batch * step.size**2)

    def evaluation(self, seconds: float) -> None:
        """One evaluation took so long: what it costs is known from now on."""
        if self.pace > 0:
            self.forward = seconds / self.pace / max(1, self.evaluated)

    @property
    def evaluation_seconds(self) -> float:
        return self.evaluated * self.forward * self.pace

    def left(self, steps: tuple[Step, ...], at: int, epoch: int, batch: int) -> float | None:
        """Seconds from batch `batch` of epoch `epoch` of step `at` to the end; None before anything was timed."""
        if not self.units:
            return None
        total = 0.0
        for index, step in enumerate(steps[at:], start=at):
            done, within = (epoch, batch) if index == at else (0, 0)
            epochs, every = step.total_epochs - done, self.config.evaluate_every
            updates = max(0, epochs * self.batches - within)
            last = step.total_epochs % every != 0 and epochs > 0  # the last epoch is evaluated, whichever it is
            evaluations = max(0, step.total_epochs // every - done // every) + last
            total += updates * self.batch * step.size**2 * self.pace
            total += evaluations * self.evaluation_seconds + max(0, epochs) * self.between
        return total


def duration(seconds: float) -> str:
    """45 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
