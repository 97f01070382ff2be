"""`bcnn eval`: a trained network over a data set. A packed file runs in the engine, without torch; a checkpoint in torch."""

from __future__ import annotations

from bcnn.base.progress import Progress, silent
from bcnn.engine import Engine
from bcnn.models.load import is_trained, program
from bcnn.models.resolve import Model, resolve
from bcnn.verification.evaluation import Question, Result, measure_packed


def measure(
    model: Model,
    data: str = "",
    split: str = "",
    strict: bool = False,
    progress: Progress = silent,
    only: tuple[str, ...] = (),
) -> Result:
    """Scores of `model` over the evaluation images of `data`: a shipped model, a packed file, a checkpoint or a run folder.

    `only` names classes: images of others are left out, and the data need not have them; the network chooses among all it knows.
    Without it, every class of the data must be one of the network's.
    """
    found = resolve(model, "eval")
    asked = Question(found.name, data, split, strict, only)
    if is_trained(found):
        from bcnn.verification.checkpoint_evaluation import measure_checkpoint

        return measure_checkpoint(found.path, asked, progress)
    return measure_packed(Engine(program(found)), asked, progress)
