"""`bcnn.verify(...)`: the checks of `verification`, beside any network that `bcnn pack` takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bcnn.base.progress import Progress, silent
from bcnn.nets.registry import ARCHITECTURES
from bcnn.verification import verify as checks

if TYPE_CHECKING:
    from torch import nn

    from bcnn.lowering.packing import Reads
    from bcnn.program.program import Program


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
    untrained = isinstance(checkpoint, str) and (checkpoint in ARCHITECTURES or ".py:" in checkpoint)
    network = partial(_network, str(checkpoint)) if untrained else checkpoint
    return checks.verify(path, network, data, limit, progress)


def _network(what: str, program: Program) -> tuple[nn.Module, Reads]:
    """A network that was packed without training: the program says what size, mean and std it was packed with."""
    from bcnn.integers.dequantize import reals
    from bcnn.models.find import Given, find
    from bcnn.program.ops import Input
    from bcnn.training.rebuild import mean_std

    first = reals(program).ops[0]
    assert isinstance(first, Input)
    found = find(what, Given((first.height, first.width), *mean_std(first)))
    return found.module, found
