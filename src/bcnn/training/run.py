"""A run as it is asked for: one object, built alike by the command line and from Python. `run_training.train` takes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bcnn.base.errors import UserError
from bcnn.data.sources import Source
from bcnn.training.budget import Clock
from bcnn.training.config import TrainConfig
from bcnn.training.run_folder import RunFolder

Callback = Callable[[dict[str, Any]], object]  # gets every record of metrics.jsonl as it is made


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """What to train, where to, and how it is watched. A variant is made by `dataclasses.replace`."""

    config: TrainConfig
    folder: RunFolder
    source: Source | None = None  # the images, where they were found already or `config.data` names none
    callbacks: tuple[Callback, ...] = ()
    resume: bool = False  # go on with what is in the folder
    more_epochs: int = 0  # that the last step got, finished or not; `config` has them already
    stop_after: int = 0  # updates in this process; 0: all
    trust: bool = False  # whether a teacher may be loaded that can run code; not kept: a resumed run asks again
    clock: Clock = time.monotonic
    began: float = field(default_factory=time.monotonic)  # by that clock: minutes count from here

    @staticmethod
    def resumed(folder: str | Path, more_epochs: int = 0) -> TrainingRun:
        """Go on with the run in a folder, by its own config.

        `more_epochs` are added to its last step, whose cosine is stretched over the old and the new ones together: the rate
        takes up again where that wave is. Minutes, if the run had some, no longer count.
        """
        found = RunFolder(Path(folder))
        config = found.config()
        if more_epochs < 0:
            raise UserError(f"--epochs +{more_epochs}: a run can be extended by 1 epoch or more")
        if more_epochs:
            *before, last = config.steps
            config = replace(config, steps=(*before, replace(last, epochs=last.epochs + more_epochs)), minutes=0.0)
        return TrainingRun(config, found, resume=True, more_epochs=more_epochs)
