"""A network -> the program of its features: what a new decoder reads in place of the old one. No torch.

A level is all maps of one size; its features are the mean and the maximum of its last map, channel by channel. The last level alone knows
what the network was trained for; colours and textures of your photos are in the earlier ones. Measured with the shipped
`imagenette` at 128 x 128 on 4,317 photos of five flowers and 2,390 of five kinds of waste: mean and maximum of the last level give 61.7 %
and 66.7 %, those of every level 65.6 % and 75.9 %; with 20 photos a class 50 % and 53 % against 53 % and 58 %.

Of a program in integers the features are integers, all with the fractional bits of the level that has the fewest.
"""

from __future__ import annotations

import math
from dataclasses import replace

from bcnn.base.errors import UserError
from bcnn.program.ops import Concat, GlobalAvgPool, MaxPool, Op, Pointwise, Shift, Window
from bcnn.program.program import Program
from bcnn.program.resize import resized

SCALED = 11  # fractional bits of scaled features in integers: up to 16 deviations, in steps of a two thousandth


def levels(program: Program) -> tuple[int, ...]:
    """The last op of every size of map, in order; the image and what comes after the last map with pixels do not count."""
    last: dict[tuple[int, int], int] = {}
    for index, (height, width, _) in enumerate(program.shapes):
        if index and height * width > 1:
            last[height, width] = index
    if not last or program.shapes[-1][:2] != (1, 1):
        raise UserError(
            f"cannot learn from a network that turns {program.shapes[0]} into {program.shapes[-1]}: "
            "it must have maps of more than one pixel, and end in classes"
        )
    return tuple(sorted(last.values()))


def features(program: Program, height: int, width: int) -> Program:
    """The program that makes 1,1,D of an image of `height` x `width`: mean and maximum of each level, one after the other.

    A file that was learned this way has the same features as what it was learned from.
    """
    ends = levels(program)
    cut = slice(ends[-1] + 1)
    body = replace(program, ops=program.ops[cut], names=program.names[cut], labels=(), provenance={}, rejects=False)
    body = resized(body, height, width)
    ops: list[Op] = list(body.ops)
    names, pooled = list(body.names), []
    shifts = _shifts(program, ends)
    for level, end in enumerate(ends):
        for what, op in (("mean", GlobalAvgPool(end)), ("max", MaxPool(end, Window(body.shapes[end][:2])))):
            ops.append(op)
            names.append(f"features.{level}.{what}")
            if shifts[level]:
                shift, made = Shift(shifts[level]), program.fractions[end] + shifts[level]
                ops.append(Pointwise(len(ops) - 1, body.shapes[end][2], (shift,), made))
                names.append(f"features.{level}.{what}")
            pooled.append(len(ops) - 1)
    ops.append(Concat(tuple(pooled)))
    names.append("features")
    return replace(body, ops=tuple(ops), names=tuple(names))


def _shifts(program: Program, ends: tuple[int, ...]) -> list[int]:
    """What brings each level's integers to the fractional bits of the coarsest; nothing for real numbers."""
    if program.numbers == "float32":
        return [0] * len(ends)
    bits = [program.fractions[end] for end in ends]
    return [min(bits) - own for own in bits]


def limits(reader: Program) -> tuple[float, float]:
    """Of its features, the least deviation that counts as a change, and the most deviations that are kept. Of integers a quarter of
    their unit, since smaller is rounding, and what 16 bits hold."""
    if reader.numbers == "float32":
        return 0.0, math.inf
    return 2.0 ** -(reader.fractions[-1] + 2), 2.0 ** (15 - SCALED)
