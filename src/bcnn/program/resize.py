"""The same network for images of another size: a Program -> a Program. No torch.

A convolutional network says the size of its images once, in its `Input`; every other size follows from it. Two kinds of ops hold a size of
their own: a pool over the whole map, whose window grows with the map, and what is fixed to one size (a `Constant` map, a fully
connected layer over pixels), which is refused by name where it no longer fits.
"""

from __future__ import annotations

from dataclasses import replace

from bcnn.base.errors import UserError
from bcnn.program.ops import Op, Shape
from bcnn.program.program import Program, map_shape


def resized(program: Program, height: int, width: int) -> Program:
    """`program` for images of `height` x `width`. Its weights are the same objects; labels, crop and provenance stay."""
    if program.shapes[0][:2] == (height, width):
        return program
    shapes: list[Shape] = []
    ops: list[Op] = []
    for op, name in zip(program.ops, program.names, strict=True):
        made = op.resized((height, width), program.shapes, shapes)
        try:
            shapes.append(map_shape(made, name, shapes))
        except UserError as error:
            raise UserError(
                f"this network cannot read images of {height} x {width}: {error}; "
                f"it was made for {program.shapes[0][0]} x {program.shapes[0][1]}"
            ) from None
        ops.append(made)
    if shapes[-1][2] != program.shapes[-1][2] or (program.shapes[-1][:2] == (1, 1) != shapes[-1][:2]):
        raise UserError(
            f"this network cannot read images of {height} x {width}: it would end in a map of {shapes[-1]}, not {program.shapes[-1]}"
        )
    return replace(program, ops=tuple(ops))
