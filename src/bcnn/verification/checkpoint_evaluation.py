"""A checkpoint over a data set, in torch and float32: the half of `bcnn.verification.evaluation` that needs torch."""

from __future__ import annotations

from pathlib import Path

from bcnn.base.errors import UserError
from bcnn.base.progress import Progress, silent
from bcnn.lowering.lower import image_size
from bcnn.nets.latent import weights_of
from bcnn.training import checkpoint
from bcnn.training.batches import open_evaluation
from bcnn.training.evaluate import evaluate_network
from bcnn.verification.evaluation import Question, Result, check_classes


def measure_checkpoint(path: Path, asked: Question, progress: Progress = silent) -> Result:
    """Scores of a checkpoint, or of the last one of a run folder."""
    model = asked.model
    if asked.only:
        raise UserError(f"{model} is a checkpoint; pack it to measure some of its classes: bcnn pack {model}")
    network, meta = checkpoint.load(path)
    config = asked.data_config(meta.crop, meta.provenance)
    opened = open_evaluation(config, image_size(network), meta.mean, meta.std, asked.split)
    check_classes(model, meta.labels, len(meta.labels), opened.classes)
    scores = evaluate_network(network, opened, progress=progress, doing=f"measuring {model}")
    notes = (*opened.notes, opened.unreadable.summary()) if opened.unreadable else opened.notes
    return Result(scores, opened.classes, f"torch, float32, {weights_of(network)} weights", notes)
