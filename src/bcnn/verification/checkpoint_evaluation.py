"""A checkpoint over a data set, in torch and float32: the half of `bcnn.verification.evaluation` that needs torch."""

from __future__ import annotations

from bcnn.base.progress import Progress
from bcnn.lowering.lower import image_size
from bcnn.nets.latent import weights_of
from bcnn.training import checkpoint
from bcnn.training.batches import open_evaluation
from bcnn.training.evaluate import evaluate_network
from bcnn.verification.evaluation import Result, check_classes, data_config


def measure_checkpoint(model: str, data: str, split: str, strict: bool, progress: Progress) -> Result:
    network, meta = checkpoint.load(model)
    config = data_config(data, meta.crop, meta.provenance, strict)
    opened = open_evaluation(config, image_size(network), meta.mean, meta.std, split)
    check_classes(model, meta.labels, len(meta.labels), opened.classes)
    scores = evaluate_network(network, opened, progress=progress, doing=f"measuring {model}")
    notes = (*opened.notes, opened.unreadable.summary()) if opened.unreadable else opened.notes
    return Result(scores, opened.classes, f"torch, float32, {weights_of(network)} weights", notes)
