"""The half of `verify` that needs torch: the network that was packed against its program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bcnn.base.errors import UserError
from bcnn.lowering.compare import compare
from bcnn.lowering.lower import lower, normalised
from bcnn.lowering.packing import Reads
from bcnn.program.ops import BinaryConv, FixedBinaryConv, Floats
from bcnn.program.program import Program
from bcnn.verification.verify import Check


@dataclass(frozen=True, eq=False)
class TorchNetwork:
    """A `Reference`: the network in eval mode, and what its images are normalised with."""

    module: nn.Module
    meta: Reads

    def check(self, program: Program, vectors: list[NDArray[np.uint8]]) -> Check:
        """Every op of a float program; the bits of one in integers, whose real numbers are rounded."""
        if program.numbers == "float32":
            return check_modules(self.module, self.meta, program, vectors)
        return check_bits(self.module, self.meta, program)

    @torch.no_grad()
    def logits(self, images: NDArray[np.uint8]) -> Floats:
        made: Floats = self.module(normalised(images, self.meta.mean, self.meta.std)).float().numpy()
        return made


def of_checkpoint(path: str | Path) -> TorchNetwork:
    """A checkpoint, or the last one of a run folder."""
    from bcnn.training.checkpoint import load

    return TorchNetwork(*load(path))


def check_modules(network: nn.Module, meta: Reads, program: Program, vectors: list[NDArray[np.uint8]]) -> Check:
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


def check_bits(network: nn.Module, meta: Reads, program: Program) -> Check:
    """The binary weights of an integer program, which a conversion leaves as they are."""
    try:
        meant = lower(network, meta.mean, meta.std, size=program.shapes[0][:2])
    except UserError as error:
        return Check("torch", False, str(error))
    theirs = [op for op in meant.ops if isinstance(op, BinaryConv)]
    ours = [op for op in program.ops if isinstance(op, FixedBinaryConv)]
    if len(ours) != len(theirs):
        return Check("torch", False, f"{len(ours)} binary convolutions, and the network has {len(theirs)}")
    for op, other in zip(ours, theirs, strict=True):
        weights = [[branch.weight for branch in each.branches] for each in (op, other)]
        if len(weights[0]) != len(weights[1]) or not all(map(np.array_equal, *weights)):
            name = program.names[program.ops.index(op)]
            return Check("torch", False, f"the binary weights of {name} are not those of the network")
    count = sum(each.binary_params for each in program.counts())
    detail = f"{count:,} binary weights equal the network's; real numbers are rounded, so ops are compared in the float file only"
    return Check("torch", True, detail)
