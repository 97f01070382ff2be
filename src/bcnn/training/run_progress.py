"""Where a run is, between two updates: what a checkpoint keeps besides weights and optimizer. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bcnn.base.errors import UserError
from bcnn.training import settings
from bcnn.training.config import Step, TrainConfig


def batches_of(config: TrainConfig, images: int) -> int:
    """Updates of an epoch."""
    return max(1, min(images, config.epoch_images or images) // min(config.batch, images))


@dataclass
class RunProgress:
    """The next thing a run does is batch `batch` of epoch `epoch` of step `step`."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    updates: int = 0  # over all steps
    epochs_done: int = 0  # over all steps
    loss_sum: float = 0.0  # of the epoch so far
    hits: int = 0
    seen: int = 0
    flips: list[float] = field(default_factory=list)
    best: float = -1.0  # accuracy in this step
    accuracies: dict[str, float] = field(default_factory=dict)  # at the end of each step
    seconds: float = 0.0
    finished: bool = False

    @staticmethod
    def typed(plain: Any) -> RunProgress:
        """From a checkpoint, which may say anything: every field has the type it should have, or a sentence."""
        return settings.typed(RunProgress, plain, "progress")

    def check(self, steps: tuple[Step, ...], batches: int) -> RunProgress:
        """Itself, if a run of these steps with `batches` updates an epoch can be there."""
        counts = (self.step, self.epoch, self.batch, self.updates, self.epochs_done, self.seen)
        names = [step.name for step in steps]
        here = steps[self.step].total_epochs if 0 <= self.step < len(steps) else 0
        if (
            min(counts) < 0
            or self.step > len(steps)
            or self.finished != (self.step == len(steps))
            or self.epoch > here
            or self.batch > batches
            or (self.batch > 0 and self.epoch >= here)
            or not set(names[: self.step]) <= self.accuracies.keys() <= set(names)
            or (here and self.epoch == here and names[self.step] not in self.accuracies)
        ):
            raise UserError(
                f"progress is damaged: no run of these steps is ever at step {self.step}, epoch {self.epoch}, "
                f"batch {self.batch} with accuracies of {sorted(self.accuracies)}"
            )
        return self

    def reopened(self, config: TrainConfig, more_epochs: int, epochs: list[dict[str, Any]]) -> RunProgress:
        """Of a finished run whose last step gets more epochs: the end of those that it had, with `epochs` as its records.

        It has forgotten Adam's state, and begins with a new one. Of any other run, where it is.
        """
        if not self.finished:
            return self
        step = config.steps[-1]
        reached = [r["accuracy"] for r in epochs if r.get("step") == step.name]
        return replace(
            self,
            step=len(config.steps) - 1,
            epoch=step.total_epochs - more_epochs,
            finished=False,
            best=max((a for a in reached if isinstance(a, float)), default=-1.0),
        )
