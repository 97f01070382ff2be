"""A float program -> the same program in integers. No torch.

    made = fixed(program, images)            # a Fixed: the program, and what saturates on the images
    made = fixed(program, images, "int8")    # every real parameter a multiple of a step, so that a file holds it in one byte

Formats are `calibration`'s choice; what an op becomes it says itself, `Op.to_integers`, and what cannot be said in 16 bits is refused
by name. The arithmetic is that of `ops.arithmetic`. An integer program is a network of its own: one sign that flips spreads,
so judge it by its accuracy on a data set, and executors of it by `==`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.integers.calibration import calibrate, choose
from bcnn.program import ops
from bcnn.program.interpret import interpret_maps, run_op
from bcnn.program.ops.arithmetic import HIGH, LOW
from bcnn.program.ops.conversion import ToIntegers
from bcnn.program.program import Program

PARAMETERS = ("int16", "int8")


@dataclass(frozen=True)
class Saturation:
    """What an op did with the calibration images."""

    name: str
    share: float  # of its map's values that are at a limit, or were on the way


@dataclass(frozen=True)
class Fixed:
    program: Program
    saturated: tuple[Saturation, ...]  # ops with any, worst first


def fixed(
    program: Program,
    images: Sequence[NDArray[np.uint8]],
    parameters: str = "int16",
    progress: Callable[[], None] = lambda: None,
) -> Fixed:
    """`images` have exactly the program's input size; `progress` is called twice an image."""
    if parameters not in PARAMETERS:
        raise UserError(f"parameters is {parameters!r}, not {' or '.join(PARAMETERS)}")
    if program.numbers != "float32":
        raise UserError(
            "the program is one in integers already; convert the float32 one that it came from, or "
            "this one back first: bcnn convert MODEL -o float.bcnn --numbers float32"
        )
    if not len(images):
        raise UserError("calibration needs at least one image; twenty of those the network is for are plenty")
    formats = choose(program, calibrate(program, images, progress))
    made = []
    for index, (op, name) in enumerate(zip(program.ops, program.names, strict=True)):
        try:
            made.append(op.to_integers(ToIntegers(program, formats, index, parameters)))
        except UserError as error:
            raise UserError(f"op {index} ({type(op).__name__} {name!r}): {error}") from None
    converted = replace(program, ops=tuple(made))
    return Fixed(converted, saturations(converted, images, progress))


def saturations(
    program: Program, images: Sequence[NDArray[np.uint8]], progress: Callable[[], None] = lambda: None
) -> tuple[Saturation, ...]:
    """What the ops of an integer program do with the images."""
    share = np.zeros(len(program.ops))
    limits = [_largest(op) for op in program.ops]
    for image in images:
        maps = interpret_maps(program, image)
        for index, (op, v, limit) in enumerate(zip(program.ops, maps, limits, strict=True)):
            cut = (v >= limit) | (v <= -limit)
            for place, ending in enumerate(op.after):
                if ending.least > LOW:
                    read = run_op(replace(op, after=op.after[:place]), maps)  # type: ignore[type-var]
                    cut |= read < ending.least
            share[index] += np.mean(cut) / len(images)
        progress()
    rows = [Saturation(name, float(part)) for name, part in zip(program.names, share, strict=True) if part > 0]
    return tuple(sorted(rows, key=lambda row: -row.share))


def _largest(op: ops.Op) -> NDArray[np.int64]:
    """What an op's values can reach: the limits of its endings, or those of 16 bits."""
    most = np.asarray(HIGH, np.int64)
    for ending in op.after:
        most = ending.reach(most)
    return most
