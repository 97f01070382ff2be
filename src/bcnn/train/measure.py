"""`bcnn eval`: a checkpoint or a packed file over a data set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bcnn
from bcnn import checkpoint
from bcnn.data import Data, DataConfig, open_data
from bcnn.errors import UserError
from bcnn.train.evaluate import Scores, evaluate


@dataclass(frozen=True, eq=False)
class Result:
    scores: Scores
    classes: tuple[str, ...]
    how: str
    skipped: str


def measure(model: str, data: str = "", split: str = "", strict: bool = False) -> Result:
    """Scores of `model` over the evaluation images of `data`. A packed file runs in the engine, a checkpoint in torch, float32."""
    path = Path(model)
    if path.is_dir() or checkpoint.is_checkpoint(path):
        network, meta = checkpoint.load(path)
        opened = _open(data, split, network.config.image_size, meta.crop, meta.provenance, strict)
        # The network's own normalisation counts, not that of the data it is measured on.
        opened = replace(opened, mean=meta.mean, std=meta.std)
        _check_classes(model, meta.labels, network.config.classes, opened)
        scores, how = evaluate(network, opened), f"torch, float32, {network.weights} weights"
    else:
        scores, opened, how = _measure_packed(model, data, split, strict)
    return Result(scores, opened.classes, how, opened.unreadable.summary())


def _measure_packed(model: str, data: str, split: str, strict: bool) -> tuple[Scores, Data, str]:
    engine = bcnn.load(model)
    program = engine.program
    height, width, _ = program.shapes[0]
    opened = _open(data, split, (height, width), program.crop, program.provenance, strict)
    classes = program.shapes[-1][2]
    _check_classes(model, program.labels, classes, opened)
    scores = Scores(np.zeros((classes, classes), dtype=np.int64))
    for pixels, index in opened.val_pixels(256):
        logits = torch.from_numpy(np.asarray(engine.run(pixels.numpy())))
        scores.add(logits.reshape(len(index), classes), torch.from_numpy(opened.val.labels[index]))
    return scores, opened, f"engine, {engine.isa}"


def _open(data: str, split: str, size: tuple[int, int], crop: float, provenance: dict[str, Any], strict: bool) -> Data:
    source = data or ("digits" if provenance.get("config", {}).get("data", {}).get("source") == "digits" else "")
    if not source:
        raise UserError("no data set to measure on; give one with --data PATH")
    return open_data(DataConfig(source=source, crop=crop, strict=strict), size, split)


def _check_classes(model: str, labels: tuple[str, ...], classes: int, data: Data) -> None:
    if (labels and labels != data.classes) or classes != len(data.classes):
        raise UserError(
            f"{model} knows {classes} classes ({', '.join(labels[:3])}, ...), "
            f"the data has {len(data.classes)} ({', '.join(data.classes[:3])}, ...)"
        )
