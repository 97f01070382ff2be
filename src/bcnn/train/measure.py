"""`bcnn eval`: a checkpoint or a packed file over a data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bcnn
from bcnn import checkpoint
from bcnn.data import Data, DataConfig, open_evaluation
from bcnn.errors import UserError
from bcnn.train.evaluate import Scores, evaluate


@dataclass(frozen=True, eq=False)
class Result:
    scores: Scores
    classes: tuple[str, ...]
    how: str
    notes: tuple[str, ...]  # what was decided about the data, and how many images could not be read


def measure(
    model: str,
    data: str = "",
    split: str = "",
    strict: bool = False,
    progress: Callable[[int, int], object] = lambda count, total: None,
) -> Result:
    """Scores of `model` over the evaluation images of `data`. A packed file runs in the engine, a checkpoint in torch, float32."""
    path = Path(model)
    if path.is_dir() or checkpoint.is_checkpoint(path):
        network, meta = checkpoint.load(path)
        config = _data_config(data, meta.crop, meta.provenance, strict)
        opened = open_evaluation(config, network.config.image_size, meta.mean, meta.std, split)
        _check_classes(model, meta.labels, network.config.classes, opened)
        scores = evaluate(network, opened, on_images=lambda count: progress(count, len(opened.val)))
        how = f"torch, float32, {network.weights} weights"
    else:
        scores, opened, how = _measure_packed(model, data, split, strict, progress)
    notes = (*opened.notes, opened.unreadable.summary()) if opened.unreadable else opened.notes
    return Result(scores, opened.classes, how, notes)


def _measure_packed(
    model: str, data: str, split: str, strict: bool, progress: Callable[[int, int], object]
) -> tuple[Scores, Data, str]:
    engine = bcnn.load(model)
    program = engine.program
    height, width, _ = program.shapes[0]
    config = _data_config(data, program.crop, program.provenance, strict)
    # A program reads bytes and normalises them itself.
    opened = open_evaluation(config, (height, width), (0, 0, 0), (1, 1, 1), split)
    classes = program.shapes[-1][2]
    _check_classes(model, program.labels, classes, opened)
    scores = Scores(np.zeros((classes, classes), dtype=np.int64))
    for pixels, index in opened.val_pixels(256):
        logits = torch.from_numpy(np.asarray(engine.run(pixels.numpy())))
        scores.add(logits.reshape(len(index), classes), torch.from_numpy(opened.val.labels[index]))
        progress(len(index), len(opened.val))
    return scores, opened, f"engine, {engine.isa}"


def _data_config(data: str, crop: float, provenance: dict[str, Any], strict: bool) -> DataConfig:
    source = data or ("digits" if provenance.get("config", {}).get("data", {}).get("source") == "digits" else "")
    if not source:
        raise UserError("no data set to measure on; give one with --data PATH")
    return DataConfig(source=source, crop=crop, strict=strict)


def _check_classes(model: str, labels: tuple[str, ...], classes: int, data: Data) -> None:
    if (labels and labels != data.classes) or classes != len(data.classes):
        raise UserError(
            f"{model} knows {classes} classes ({', '.join(labels[:3])}, ...), "
            f"the data has {len(data.classes)} ({', '.join(data.classes[:3])}, ...)"
        )
