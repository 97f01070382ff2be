"""The same network for images of another size: a Program -> a Program. No torch.

A convolutional network says the size of its images once, in its `Input`; every other size follows from it. Two kinds of ops hold a size of
their own: a pool over the whole map, whose window grows with the map, and what is fixed to one size (a `Constant` map, a fully
connected layer over pixels), which is refused by name where it no longer fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bcnn.base.errors import UserError
from bcnn.program.ops import AvgPool, FixedAvgPool, FixedInput, Input, MaxPool, Op, Window
from bcnn.program.ops.base import Shape
from bcnn.program.program import Program, map_shape


def resized(program: Program, height: int, width: int) -> Program:
    """`program` for images of `height` x `width`. Its weights are the same objects; labels, crop and provenance stay."""
    if program.shapes[0][:2] == (height, width):
        return program
    shapes: list[Shape] = []
    ops: list[Op] = []
    for op, name in zip(program.ops, program.names, strict=True):
        made = _resized(op, height, width, program.shapes, shapes)
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


def _resized(op: Op, height: int, width: int, before: Sequence[Shape], now: Sequence[Shape]) -> Op:
    if isinstance(op, Input | FixedInput):
        return replace(op, height=height, width=width)
    if isinstance(op, AvgPool | FixedAvgPool | MaxPool) and whole_map(op.window, before[op.source]):
        return replace(op, window=Window(now[op.source][:2]))
    return op


def whole_map(window: Window, shape: Shape) -> bool:
    """Whether a pool is meant to read all of a map at once, and not to halve one that happens to be small.

    With stride 1 it is. Torch's default stride is the kernel itself: there it is from four pixels on, since networks halve or third.
    """
    covers = window.kernel == shape[:2] and window.padding == (0, 0, 0, 0) and window.dilation == (1, 1)
    return covers and shape[:2] != (1, 1) and (window.stride == (1, 1) or min(window.kernel) >= 4)
