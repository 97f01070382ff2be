"""An integer program -> the float program of the same parameters: the way back from `fixed`. No torch.

    program = reals(made)        # for what knows real numbers only: training again (`train.rebuild`), ONNX

Every parameter is a whole number by a power of two, so it becomes a float32 as it is. What `fixed` rounded away does not come back;
what an integer program does to keep its sums in 16 bits (`Bound`, `Shift`, saturation, rounding after each step) is left out. So
the two are networks of their own again: near each other op by op, and one sign that flips spreads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bcnn.base.errors import UserError
from bcnn.integers.quantize import sigmoid_table
from bcnn.program import ops
from bcnn.program.ops import Floats
from bcnn.program.ops.fixed_numbers import HIGH
from bcnn.program.ops.fixed_real import INTENSITY_DOWN
from bcnn.program.ops.window import ONE_PIXEL
from bcnn.program.program import Program


def reals(program: Program) -> Program:
    """Labels, crop and provenance stay; a float program is returned as it is."""
    if program.numbers == "float32":
        return program
    made = []
    for index, (op, name) in enumerate(zip(program.ops, program.names, strict=True)):
        try:
            made.append(RULES[type(op)](_At(program, program.fractions, index), op))
        except UserError as error:
            raise UserError(f"op {index} ({type(op).__name__} {name!r}): {error}") from None
    return replace(program, ops=tuple(made))


@dataclass(frozen=True)
class _At:
    """The op at work, and what its rule may ask."""

    program: Program
    fractions: tuple[int, ...]  # of all maps
    index: int

    @property
    def made(self) -> int:
        return self.fractions[self.index]

    def before(self, after: Sequence[ops.Ending]) -> int:
        """Of the values that the endings read: from the end, since the op says how many its map has."""
        f = self.made
        for ending in reversed(after):
            if isinstance(ending, ops.Shift):
                f -= ending.up
            elif isinstance(ending, ops.Table):
                f = _before_table(ending, f)
        return f


def _real(values: Any, bits: Any) -> Floats:
    """values / 2^bits."""
    made: Floats = np.ldexp(np.asarray(values, np.float64), -np.asarray(bits)).astype(np.float32)
    return made


def _endings(at: _At, after: Sequence[ops.Ending], f: int) -> tuple[ops.Ending, ...]:
    """`f`: fractional bits of what the first of them reads."""
    made: list[ops.Ending] = []
    for place, ending in enumerate(after):
        if isinstance(ending, ops.Shift):
            f += ending.up
        elif isinstance(ending, ops.Table):
            made.append(ops.Sigmoid())
            f = at.made - sum(e.up for e in after[place:] if isinstance(e, ops.Shift))
        elif not isinstance(ending, ops.Bound):
            made.append(ENDINGS[type(ending)](at, ending, f))
    return tuple(made)


def _before_table(table: ops.Table, made: int) -> int:
    """The fractional bits with which a table is a sigmoid: its lines are 2^(down - f) long."""
    for f in range(16):
        other = sigmoid_table(f, made)
        if other.down == table.down and np.array_equal(other.values, table.values):
            return f
    raise UserError("its table is no sigmoid")


# --- rules ------------------------------------------------------------------------------------------------------------


def _input(at: _At, op: ops.FixedInput) -> ops.Op:
    bits = op.fraction + op.down
    intensity = None if op.intensity is None else _real(op.intensity, INTENSITY_DOWN)
    return ops.Input(op.height, op.width, _real(op.scale, bits), _real(op.offset, bits), intensity)


def _binary(at: _At, op: ops.FixedBinaryConv) -> ops.Op:
    f, read = at.before(op.after), at.fractions[op.source]
    branches = []
    for branch in op.branches:
        s = np.ldexp(branch.scale.astype(np.float64), branch.up - 15 - f)  # per unit of the dot
        offset = np.ldexp(branch.offset.astype(np.float64), -f) + s * op.bits
        threshold = _real(branch.above.astype(np.int64) + 1, read)
        scale = (-2 * s).astype(np.float32)
        branches.append(
            ops.Branch(threshold, branch.weight, scale, offset.astype(np.float32), branch.pad, branch.shift)
        )
    after = _endings(at, op.after, f)
    return ops.BinaryConv(op.source, op.reads, tuple(branches), op.window, op.groups, after)


def _depthwise(at: _At, op: ops.FixedDepthwise) -> ops.Op:
    f, read = at.before(op.after), at.fractions[op.source]
    weight = _real(op.weight[:, :, None], 15 + f - read)
    return ops.Conv(op.source, op.reads, weight, _real(op.offset, f), op.window, op.reads, _endings(at, op.after, f))


def _conv(at: _At, op: ops.FixedConv) -> ops.Op:
    f, read = at.before(op.after), at.fractions[op.source]
    bits = f + op.down.astype(np.int64)  # of the sums, per output channel
    weight, offset, after = _real(op.weight, bits - read), _real(op.offset, bits), _endings(at, op.after, f)
    if op.window == ONE_PIXEL and op.groups == op.reads == offset.size:
        return ops.Pointwise(op.source, op.reads, (ops.Affine(weight[0, 0, 0], offset), *after))
    if op.groups == 1 and at.program.shapes[op.source] == (1, 1, op.reads) and op.window == ONE_PIXEL:
        return ops.Linear(op.source, np.ascontiguousarray(weight[0, 0]), offset, after)
    return ops.Conv(op.source, op.reads, weight, offset, op.window, op.groups, after)


def _pointwise(at: _At, op: ops.Pointwise) -> ops.Op:
    after = _endings(at, op.after, at.fractions[op.source])
    nothing = ops.Affine(np.ones(op.reads, np.float32), None)  # of a shift alone, real numbers know nothing
    return ops.Pointwise(op.source, op.reads, after or (nothing,))


def _moved(at: _At, op: ops.Op) -> ops.Op:
    if any(at.fractions[source] != at.made for source in op.maps_read()):
        raise UserError("it joins maps of different fractional bits")
    return op


RULES: dict[type[ops.Op], Callable[[_At, Any], ops.Op]] = {
    ops.FixedInput: _input,
    ops.FixedBinaryConv: _binary,
    ops.FixedDepthwise: _depthwise,
    ops.FixedConv: _conv,
    ops.Pointwise: _pointwise,
    ops.FixedConstant: lambda at, op: ops.Constant(_real(op.value, op.fraction)),
    ops.FixedAvgPool: lambda at, op: ops.AvgPool(op.source, op.window, op.inside),
    ops.FixedChannelAvg: lambda at, op: ops.ChannelAvg(op.source, op.channels),
    ops.FixedAbsMean: lambda at, op: ops.AbsMean(op.source),
    ops.FixedGlobalAvgPool: lambda at, op: ops.GlobalAvgPool(op.source),
    ops.MaxPool: _moved,
    ops.Concat: _moved,
    ops.Select: _moved,
    ops.Upsample: _moved,
}


def _add(at: _At, ending: ops.FixedAdd, f: int) -> ops.Ending:
    if at.fractions[ending.source] + ending.up != f:
        raise UserError(f"it adds map {ending.source} in another unit than its own")
    return ops.Add(ending.source, ending.reads, ending.first)


def _gate(at: _At, ending: ops.FixedGate, f: int) -> ops.Ending:
    if at.fractions[ending.source] != ending.down:
        raise UserError(f"it multiplies by map {ending.source} in another unit than its own")
    return ops.Gate(ending.source)


def _affine(at: _At, ending: ops.FixedAffine, f: int) -> ops.Ending:
    scale = None if ending.scale is None else _real(ending.scale, ending.down)
    return ops.Affine(scale, None if ending.offset is None else _real(ending.offset, f))


def _sign(at: _At, ending: ops.FixedSign, f: int) -> ops.Ending:
    if ending.one != min(1 << max(f, 0), HIGH):
        raise UserError("its signs are not +1 and -1")
    return ops.Sign(_real(ending.above.astype(np.int64) + 1, f))


ENDINGS: dict[type[ops.Ending], Callable[[_At, Any, int], ops.Ending]] = {
    ops.FixedAdd: _add,
    ops.FixedGate: _gate,
    ops.FixedAffine: _affine,
    ops.FixedPReLU: lambda at, e, f: ops.PReLU(1 + _real(e.bend, 15 - e.up)),
    ops.ReLU: lambda at, e, f: e,
    ops.FixedClip: lambda at, e, f: ops.Clip(_real(e.limits, f)),
    ops.FixedSign: _sign,
}
