"""`bcnn eval`: a trained network over a data set. A packed file runs in the engine, without torch; a checkpoint in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors

from bcnn.data.config import DataConfig
from bcnn.deploy import card, shipped
from bcnn.errors import UserError
from bcnn.scores import Scores

BATCH = 256
Progress = Callable[[int, int], object]  # images of this batch, images in all


@dataclass(frozen=True, eq=False)
class Result:
    scores: Scores
    classes: tuple[str, ...]  # as people read them
    how: str
    notes: tuple[str, ...]  # what was decided about the data, and how many images could not be read
    card: card.Card | None = None  # what the file says about itself


def measure(
    model: str, data: str = "", split: str = "", strict: bool = False, progress: Progress = lambda count, total: None
) -> Result:
    """Scores of `model` over the evaluation images of `data`: a shipped model, a packed file, a checkpoint or a run folder."""
    if model not in shipped.names() and (Path(model).is_dir() or is_checkpoint(Path(model))):
        from bcnn.train.measure import measure_checkpoint

        return measure_checkpoint(model, data, split, strict, progress)
    return measure_packed(model, data, split, strict, progress)


def measure_packed(
    model: str, data: str = "", split: str = "", strict: bool = False, progress: Progress = lambda count, total: None
) -> Result:
    import bcnn
    from bcnn.data import sources
    from bcnn.data.decode import Unreadable, batches

    engine = bcnn.load(model)
    program = engine.program
    config = data_config(data, program.crop, program.provenance, strict)
    found = sources.find(config.source, strict=strict, split=split, training=False)
    if program.shapes[-1][:2] != (1, 1):
        raise UserError(f"{model} makes a map of {program.shapes[-1]} for an image, no class that could be counted")
    classes = program.shapes[-1][2]
    check_classes(model, card.folders(program), classes, found.classes)
    scores, unreadable = Scores.of(classes), Unreadable(strict)
    for pixels, labels in batches(found.val, program.shapes[0][:2], program.crop, unreadable, BATCH):
        scores.add(engine.run(pixels).reshape(len(labels), classes), labels)
        progress(len(labels), len(found.val))
    if not scores.count:
        raise UserError(f"none of the {len(found.val)} evaluation images can be read")
    notes = (*found.notes, unreadable.summary()) if unreadable else found.notes
    return Result(scores, program.labels or found.classes, f"engine, {engine.isa}", notes, card.of(program))


def is_checkpoint(path: Path) -> bool:
    """Whether a file is a checkpoint of ours, by its header alone (a packed file is a safetensors file too)."""
    try:
        with safetensors.safe_open(str(path), "np") as file:
            header: dict[str, str] = file.metadata() or {}
            return header.get("format", "").startswith("bcnn-checkpoint")
    except (OSError, safetensors.SafetensorError):
        return False


def data_config(data: str, crop: float, provenance: dict[str, Any], strict: bool) -> DataConfig:
    """The data set to measure on: the one named, or the embedded one for a network that was trained on it."""
    config = provenance.get("config", {})
    trained_on = config.get("data", {}).get("source") if isinstance(config, dict) else None
    source = data or ("digits" if trained_on == "digits" else "")
    if not source:
        raise UserError("no data set to measure on; give one with --data PATH")
    return DataConfig(source=source, crop=crop, strict=strict)


def check_classes(model: str, known: tuple[str, ...], classes: int, found: tuple[str, ...]) -> None:
    if (known and known != found) or classes != len(found):
        raise UserError(
            f"{model} knows {classes} classes ({', '.join(known[:3])}, ...), "
            f"the data has {len(found)} ({', '.join(found[:3])}, ...)"
        )
