"""The smallest runs that still go through everything: embedded digits, a network of one level, a few updates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bcnn.data.config import Augment, DataConfig
from bcnn.nets.config import Level, NetworkConfig
from bcnn.training import report, run_training
from bcnn.training.config import Step, TrainConfig
from bcnn.training.run import TrainingRun
from bcnn.training.run_folder import RunFolder

NETWORK = NetworkConfig(name="tiny", image_size=(8, 8), classes=10, stem=Level(1, 1, 2), levels=(Level(1, 2, 2),))
STEP1 = Step(name="step1", warmup=1, epochs=1, lr=1e-2)
STEP2 = replace(STEP1, name="step2", weights="binary", weight_decay=0.0)


def config(**changes: object) -> TrainConfig:
    """Two steps of two epochs of five updates."""
    data = DataConfig(source="digits", crop=1.0, workers=0, augment=Augment(scale=(0.8, 1.0), flip=False))
    base = TrainConfig("tiny", NETWORK, data, (STEP1, STEP2), batch=256, part=0, threads=1, tensorboard=False)
    return replace(base, **changes)  # type: ignore[arg-type]


def train(config: TrainConfig | None, out: str | Path, resume: bool = False, **options: object) -> dict[str, Any]:
    """A run into a folder, or the rest of what is there."""
    if resume:
        made = TrainingRun.resumed(out)
    else:
        assert config is not None
        made = TrainingRun(config, RunFolder(Path(out)))
    return run_training.train(replace(made, **options))  # type: ignore[arg-type]


def run(folder: Path, resume: bool = False, **changes: object) -> None:
    """For a process of its own."""
    torch.set_num_threads(1)
    report.write = lambda folder: None  # pictures have a test of their own
    train(None if resume else config(**changes), folder, resume)
