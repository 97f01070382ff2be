"""`bcnn.verify` and `bcnn verify`: the checks of `verification`, for any MODEL and beside any network that it was packed from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bcnn.base.affine import mean_std
from bcnn.base.progress import Progress, silent
from bcnn.models.load import is_trained, packed_file
from bcnn.models.resolve import Model, Resolved, resolve
from bcnn.verification import verify as checks

if TYPE_CHECKING:
    from bcnn.program.program import Program
    from bcnn.verification.verify_torch import TorchNetwork


def verify(
    model: Model,
    checkpoint: Model | None = None,
    data: str | Path | None = None,
    limit: int = 1000,
    progress: Progress = silent,
) -> Iterator[checks.Check]:
    """Check a packed file, and yield each check as it is done. `data` is a folder of images, at most `limit` of which are used.

    `checkpoint` is what it was packed from: a run folder, a checkpoint, a torch module, "file.py:function", a registered network.
    A run or a checkpoint as the model is packed first, and compared with itself. Both need torch. `progress` is told what is being
    done, and how much of it.

    >>> import bcnn
    >>> all(check.passed for check in bcnn.verify("digits"))
    True
    """
    found = resolve(model, "verify")
    if checkpoint is None and is_trained(found):
        checkpoint = found.path
    reference = None if checkpoint is None else partial(_reference, resolve(checkpoint, "verify --checkpoint"))
    with packed_file(found) as file:
        yield from checks.verify(file, reference, data, limit, progress)


def _reference(what: Resolved, program: Program) -> TorchNetwork:
    """Of a network that was packed without training, the program says what size, mean and std it was packed with."""
    from bcnn.integers.dequantize import reals
    from bcnn.models.networks import Given, network
    from bcnn.program.ops import Input
    from bcnn.verification.verify_torch import TorchNetwork

    given = None
    if not is_trained(what):
        first = reals(program).ops[0]
        assert isinstance(first, Input)
        given = Given((first.height, first.width), *mean_std(first.scale, first.offset))
    found = network(what, given)
    return TorchNetwork(found.module, found)
