"""`bcnn.verify(...)`: the checks of `verification`, beside any network that `bcnn pack` takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bcnn.base.affine import mean_std
from bcnn.base.progress import Progress, silent
from bcnn.nets.registry import ARCHITECTURES
from bcnn.verification import verify as checks

if TYPE_CHECKING:
    from bcnn.program.program import Program
    from bcnn.verification.verify_torch import TorchNetwork


def verify(
    path: str | Path,
    checkpoint: str | Path | None = None,
    data: str | Path | None = None,
    limit: int = 1000,
    progress: Progress = silent,
) -> Iterator[checks.Check]:
    """Check a packed file, and yield each check as it is done. `data` is a folder of images, at most `limit` of which are used.

    `checkpoint` is what the file was packed from: a checkpoint, a run folder, a registered network or "file.py:function". Needs torch.
    `progress` is told what is being done, and how much of it.

    >>> import bcnn
    >>> from bcnn.packed.shipped import find
    >>> all(check.passed for check in bcnn.verify(find("digits")))
    True
    """
    reference = None if checkpoint is None else partial(_reference, checkpoint)
    return checks.verify(path, reference, data, limit, progress)


def _reference(what: str | Path, program: Program) -> TorchNetwork:
    """Of a network that was packed without training, the program says what size, mean and std it was packed with."""
    from bcnn.verification.verify_torch import TorchNetwork, of_checkpoint

    if isinstance(what, Path) or not (what in ARCHITECTURES or ".py:" in what):
        return of_checkpoint(what)
    from bcnn.integers.dequantize import reals
    from bcnn.models.find import Given, find
    from bcnn.program.ops import Input

    first = reals(program).ops[0]
    assert isinstance(first, Input)
    found = find(what, Given((first.height, first.width), *mean_std(first.scale, first.offset)))
    return TorchNetwork(found.module, found)
