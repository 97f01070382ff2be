"""A `TrainingRun` -> a finished run: join the processes, open the data, train or resume, report."""

from __future__ import annotations

import errno
from contextlib import ExitStack
from typing import Any

import torch

from bcnn.base.errors import UserError
from bcnn.training import distributed, settings
from bcnn.training.config import FINAL_WEIGHTS
from bcnn.training.finishing import finish
from bcnn.training.interrupt import Interrupt, Stopped
from bcnn.training.loop import Trainer
from bcnn.training.opening import open_run
from bcnn.training.run import TrainingRun
from bcnn.training.run_progress import batches_of
from bcnn.training.terminal import Terminal

# What a disk answers that is full, over quota, failing or gone read-only.
WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def train(run: TrainingRun) -> dict[str, Any]:
    """Train into the run's folder, or go on with what is in it. Returns the content of run.json."""
    if run.config.threads:
        torch.set_num_threads(run.config.threads)
    with distributed.processes(run.config.device, run.folder.resume_command()) as device, ExitStack() as held:
        if run.config.minutes and distributed.rank_world()[1] > 1:
            raise UserError("--minutes plans for one process; start several with a recipe and --epochs")
        try:
            return _train(run, device, held)
        except OSError as error:
            if error.errno not in WRITE_ERRORS:
                raise
            raise UserError(
                f"cannot write to {run.folder.path}: {error.strerror}; what was saved before is complete; "
                f"when it can be written again: {run.folder.resume_command()}"
            ) from None


def _train(run: TrainingRun, device: str, held: ExitStack) -> dict[str, Any]:
    opened = open_run(run, device, held)
    data, config, info, first = opened.data, opened.run.config, opened.info, distributed.rank_world()[0] == 0
    total = sum(step.total_epochs for step in config.steps) * batches_of(config, len(data.train))
    with (
        Interrupt(run.stop_after) as interrupt,
        Terminal(total, opened.progress.updates, quiet=not first) as terminal,
    ):
        for note in opened.notes:
            terminal.say(note, "yellow")
        terminal.say(
            f"{config.recipe}: {len(data.train):,} training and {len(data.val):,} evaluation images, "
            f"{len(data.classes)} classes, {config.network.name} at {data.size[0]} x {data.size[1]}, into {run.folder.path}"
        )
        trainer = Trainer(opened, interrupt, terminal)
        try:
            trainer.train()
        except Stopped:
            terminal.say(
                f"stopped after update {trainer.progress.updates}, saved; continue with: {run.folder.resume_command()}"
            )
            raise
        if data.unreadable:
            terminal.say(data.unreadable.summary(), "yellow")
        if first:
            info |= {"accuracy": trainer.progress.accuracies, "train_seconds": round(trainer.progress.seconds, 1)}
            info["unreadable_images"] = sorted(data.unreadable.sentences)
            info["config"] = settings.to_dict(trainer.config)  # a run of so many minutes has changed its epochs
            run.folder.write_info(info)
            if config.steps[-1].weights not in FINAL_WEIGHTS:
                terminal.say("the last step leaves real weights: nothing here can be packed to bits yet", "yellow")
    if first:
        finish(opened, trainer.progress, trainer.monitor, terminal)
    return info
