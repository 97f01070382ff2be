"""The half of `verify` that needs torch: a checkpoint's network against a program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bcnn.deploy.verify import Check, Logits
from bcnn.errors import UserError
from bcnn.program.compare import compare
from bcnn.program.lower import normalised
from bcnn.program.ops import Floats
from bcnn.program.program import Program

if TYPE_CHECKING:
    from bcnn.train.checkpoint import Meta


def load(checkpoint: str | Path) -> tuple[nn.Module, Meta]:
    """The network in eval mode, and what `bcnn.train.checkpoint` says about it."""
    from bcnn.train.checkpoint import load

    return load(checkpoint)


def check_modules(network: nn.Module, meta: Meta, program: Program, vectors: list[NDArray[np.uint8]]) -> Check:
    """Every op against its torch module, each with the same input; names the first that differs."""
    closest, notes = 0.0, dict[str, None]()
    for image in vectors:
        try:
            compared = compare(network, program, image, meta.mean, meta.std)
        except UserError as error:
            return Check("torch", False, str(error))
        notes.update(dict.fromkeys(compared.notes))
        if first := compared.first:
            detail = (
                f"op {first.index} ({first.name}) is off by {first.error:.3g}, {first.excess:.3g} times the tolerance"
            )
            return Check("torch", False, detail)
        closest = max(closest, *(difference.excess for difference in compared.differences))
    detail = (
        f"{len(program.ops)} ops on {len(vectors)} images equal torch's up to rounding ({closest:.0%} of the tolerance)"
    )
    return Check("torch", True, "; ".join([detail, *notes]))


def logits(network: nn.Module, meta: Meta) -> Logits:
    @torch.no_grad()
    def run(images: NDArray[np.uint8]) -> Floats:
        made: Floats = network(normalised(images, meta.mean, meta.std)).float().numpy()
        return made

    return run
