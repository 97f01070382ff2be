"""A run's records for TensorBoard, where that is installed: `tensorboard --logdir RUN/tensorboard`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

SCALARS = ("lr", "loss", "flips", "train_accuracy", "accuracy", "top5", "val_loss", "outside", "images_per_second")
PER_LAYER = ("balance", "surviving")


def writer(folder: Path, updates: int) -> Callable[[dict[str, Any]], None]:
    """A function that takes each record of metrics.jsonl. What an interrupted run logged after `updates` is forgotten."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return lambda record: None
    board = SummaryWriter(str(folder), purge_step=updates + 1 if updates else None)

    def write(record: dict[str, Any]) -> None:
        kind, at = record["kind"], record["updates"]
        for key in SCALARS:
            if record.get(key) is not None:  # not every epoch is evaluated
                board.add_scalar(f"{kind}/{key}", record[key], at)
        for key in PER_LAYER:
            for layer, value in record.get(key, {}).items():
                board.add_scalar(f"{key}/{layer}", value, at)
        if kind == "epoch":
            board.flush()

    return write
