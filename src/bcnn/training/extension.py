"""`--resume RUN --epochs +10`: more epochs for the last step of a run, also of one that is finished.

The step's cosine is stretched over the old and the new epochs together, so the rate takes up again where that wave is. A finished
run has forgotten Adam's state, and begins with a new one.
"""

from __future__ import annotations

import dataclasses

from bcnn.base.errors import UserError
from bcnn.training import settings
from bcnn.training.checkpoint import Checkpoint
from bcnn.training.config import TrainConfig
from bcnn.training.loop import Progress
from bcnn.training.run import RunFolder


def extended(config: TrainConfig, more: int) -> TrainConfig:
    """The run with `more` epochs of its last step; its minutes, if it had some, no longer count."""
    if more < 1:
        raise UserError(f"--epochs +{more}: a run can be extended by 1 epoch or more")
    last = config.steps[-1]
    steps = (*config.steps[:-1], dataclasses.replace(last, epochs=last.epochs + more))
    return dataclasses.replace(config, steps=steps, minutes=0.0)


def reopened(last: Checkpoint, config: TrainConfig, more: int, folder: RunFolder) -> Checkpoint:
    """A finished run's checkpoint as one at the end of the epochs that it had; any other as it is."""
    progress = settings.typed(Progress, last.progress, "progress")
    if not progress.finished:
        return last
    step = config.steps[-1]
    reached = [r["accuracy"] for r in folder.read_metrics("epoch") if r.get("step") == step.name]
    progress = dataclasses.replace(
        progress,
        step=len(config.steps) - 1,
        epoch=step.total_epochs - more,
        finished=False,
        best=max((a for a in reached if isinstance(a, float)), default=-1.0),
    )
    return dataclasses.replace(last, progress=dataclasses.asdict(progress))
