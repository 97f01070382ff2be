"""Torch against program, op by op, each with the same input: which one is the first that differs?

A free-running comparison means nothing: a rounding difference in one op flips signs in the next. So torch runs once, recorded,
and each op of the program computes from torch's maps what torch made of them. Bits and popcounts are then equal; what is left is
the rounding of real arithmetic, for which `tolerance` derives a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bcnn.base.errors import UserError
from bcnn.lowering.lower import Lowering
from bcnn.program.interpret import run_op
from bcnn.program.ops import Floats, Op, Shape
from bcnn.program.program import Program


@dataclass(frozen=True)
class Difference:
    """How far one op is from what torch made."""

    index: int
    name: str
    error: float  # the largest |program - torch|
    excess: float  # the largest |program - torch| / tolerance: above 1 they differ; infinite where binary weights do

    @property
    def equal(self) -> bool:
        return self.excess <= 1


@dataclass(frozen=True)
class Comparison:
    """One entry per op, and what there is to say about the network (zeros that torch.sign leaves ...)."""

    differences: tuple[Difference, ...]
    notes: tuple[str, ...]

    @property
    def first(self) -> Difference | None:
        return next((difference for difference in self.differences if not difference.equal), None)


def compare(
    network: nn.Module, program: Program, image: NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]
) -> Comparison:
    """A network whose operations are not those of the program is a `UserError`."""
    return compare_on(Lowering(network, image, mean, std), program, image)


def compare_on(lowering: Lowering, program: Program, image: NDArray[np.uint8]) -> Comparison:
    """The same for a network that is lowered already."""
    for index, (mine, other) in enumerate(
        zip(_kinds(lowering.ops, lowering.names), _kinds(program.ops, program.names), strict=False)
    ):
        if mine != other:
            raise UserError(f"op {index} of the program is {other}, but the network has {mine} there")
    if len(lowering.ops) != len(program.ops):
        raise UserError(f"the program has {len(program.ops)} ops, but the network lowers to {len(lowering.ops)}")
    maps = lowering.maps_of(image)
    differences = []
    for index, op in enumerate(program.ops):
        read: list[Any] = [image] if index == 0 else maps
        difference = _difference(op, read, maps[index], lowering.sizes[index], program.shapes[:index])
        difference = replace(difference, index=index, name=program.names[index])
        if not _same_whole_numbers(op, lowering.ops[index]):  # even where a scale of zero hides it
            difference = replace(difference, excess=np.inf)
        differences.append(difference)
    return Comparison(tuple(differences), tuple(lowering.notes))


def _kinds(ops: Sequence[Op], names: Sequence[str]) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(type(op).__name__, name, tuple(op.maps_read())) for op, name in zip(ops, names, strict=True)]


def _same_whole_numbers(one: Op, other: Op) -> bool:
    """Bits and indices, in the order of the fields."""
    pairs = zip(one.arrays(), other.arrays(), strict=False)
    return all(a.dtype == np.float32 or np.array_equal(a, b) for a, b in pairs)


def _difference(op: Op, read: list[Any], wanted: Floats, size: Any, shapes: Sequence[Shape]) -> Difference:
    made = run_op(op, read)
    if made.shape != wanted.shape:
        raise UserError(f"a map of the program is {made.shape}, torch has {wanted.shape}")
    error = np.abs(made.astype(np.float64) - wanted)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(error == 0, 0, error / tolerance(op, read, size, shapes))
    worst = float(np.nan_to_num(excess, nan=np.inf, posinf=np.inf).max())  # NaN on either side is a difference
    return Difference(0, "", float(np.nan_to_num(error, nan=np.inf).max()), worst)


def tolerance(op: Op, read: list[Any], size: Any, shapes: Sequence[Shape]) -> Floats:
    """How far two float32 evaluations of an op may be apart, for every value that it makes.

    1. Adding m terms in any order, each product or sum rounded once, is off by at most about m * 2^-24 * sum of |terms|.
    2. Two evaluations (torch's and ours): twice that.
    3. Torch folds batch norm in float32 and divides where we multiply: a few roundings more a term. Counted as 8 terms.

    So the bound is 2^-23 * (m + 8) * M, where M, the sum of the magnitudes, is the op itself on absolute values (`Op.absolute`).
    `size` has those of each folded batch norm: an offset is a difference that may be far smaller than its parts.
    """
    more = np.zeros(1, np.float32) if size is None else np.asarray(size, np.float32)
    counts = op.counts(shapes)
    reads = set(op.maps_read())
    sizes = [np.abs(x) if index in reads else x for index, x in enumerate(read)]
    made = run_op(op.absolute(more), sizes)
    terms = (counts.real_macs + counts.adds + counts.mults) / made.size
    return made * np.float32(2**-23 * (terms + 8))
