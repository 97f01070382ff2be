"""`--resume RUN --epochs +10`: more epochs for the last step of a run, also of one that is finished. No torch.

The step's cosine is stretched over the old and the new epochs together, so the rate takes up again where that wave is. A finished
run has forgotten Adam's state, and begins with a new one.
"""

from __future__ import annotations

from dataclasses import replace

from bcnn.base.errors import UserError
from bcnn.training.config import TrainConfig
from bcnn.training.run_folder import RunFolder
from bcnn.training.run_progress import RunProgress


def extended(config: TrainConfig, more: int) -> TrainConfig:
    """The run with `more` epochs of its last step; its minutes, if it had some, no longer count."""
    if more < 1:
        raise UserError(f"--epochs +{more}: a run can be extended by 1 epoch or more")
    last = config.steps[-1]
    return replace(config, steps=(*config.steps[:-1], replace(last, epochs=last.epochs + more)), minutes=0.0)


def reopened(progress: RunProgress, config: TrainConfig, more: int, folder: RunFolder) -> RunProgress:
    """A finished run's progress as one at the end of the epochs that it had; any other as it is."""
    if not progress.finished:
        return progress
    step = config.steps[-1]
    reached = [r["accuracy"] for r in folder.read_metrics("epoch") if r.get("step") == step.name]
    return replace(
        progress,
        step=len(config.steps) - 1,
        epoch=step.total_epochs - more,
        finished=False,
        best=max((a for a in reached if isinstance(a, float)), default=-1.0),
    )
