"""An integer program -> the tables of `--to c`: rows of numbers for the structs of device/types.c, and the numbers they name. No torch.

Parameters that are multiples of a step, at most 127 of them, are bytes in flash; all others have 16 bits. Bits are 32-bit words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.errors import UserError
from bcnn.export.c_plan import Plan, by_source, complete, plan
from bcnn.program import ops
from bcnn.program.bits import pack_bits, unpack_bits
from bcnn.program.ops import Op, words
from bcnn.program.program import Program

NONE = 0xFFFFFFFF
MOST = (1 << 16) - 1  # channels, and values of one mean: what 16 bits of a table and sums of 32 bits hold
BYTES = {"op": 84, "ending": 32, "branch": 40, "need": 12}  # device/types.c checks them when it is compiled

Vec = tuple[int, int]  # where it begins, its step
NOTHING: Vec = (NONE, 0)


@dataclass
class Tables:
    """Everything that ends up in flash, but for the code."""

    program: Program
    plan: Plan
    words: list[int] = field(default_factory=list)  # bits
    wide: list[int] = field(default_factory=list)  # 32-bit offsets
    numbers: list[int] = field(default_factory=list)  # 16-bit parameters
    slots: list[int] = field(default_factory=list)  # where the rows of rings begin in the arena
    bytes: list[int] = field(default_factory=list)
    ops: list[list[Any]] = field(default_factory=list)
    branches: list[list[Any]] = field(default_factory=list)
    endings: list[list[Any]] = field(default_factory=list)
    needs: list[list[Any]] = field(default_factory=list)
    scratch: int = 0  # words of RAM: bits of the pixels that a filter reads

    @property
    def flash(self) -> int:
        """Bytes of constants. Those that every program names have a row at least, since C knows no empty tables."""
        always = (
            (self.wide, 4),
            (self.slots, 4),
            (self.numbers, 2),
            (self.bytes, 1),
            (self.endings, BYTES["ending"]),
            (self.needs, BYTES["need"]),
        )
        others = ((self.ops, BYTES["op"]), (self.branches, BYTES["branch"]), (self.words, 4))
        return sum(max(len(rows), 1) * size for rows, size in always) + sum(len(rows) * size for rows, size in others)

    @property
    def arena(self) -> tuple[int, int, int]:
        """32-bit words, counters of rows, 16-bit numbers; together a multiple of four bytes."""
        counters = len(self.ops)
        return max(self.scratch, 1), counters, max(self.plan.numbers, 1) + (counters + max(self.plan.numbers, 1)) % 2

    @property
    def ram(self) -> int:
        own, counters, numbers = self.arena
        return 4 * own + 2 * (counters + numbers)

    # --- pools --------------------------------------------------------------------------------------------------------

    def vec(self, values: NDArray[Any]) -> Vec:
        flat = values.reshape(-1).astype(np.int64)
        step = int(np.gcd.reduce(flat)) or 1
        if np.abs(flat // step).max() <= 127:
            return _put(self.bytes, flat // step), step
        return _put(self.numbers, flat), 0

    def stepped(self, values: NDArray[Any]) -> tuple[Vec, Vec]:
        """Rows of values, and the step of each row if that makes them bytes."""
        whole, wide = self.vec_size(values), values.astype(np.int64)
        steps = np.maximum(np.gcd.reduce(wide, axis=1, keepdims=True), 1)
        if whole == 1 or np.abs(wide // steps).max() > 127:
            return self.vec(values), NOTHING
        return (_put(self.bytes, (wide // steps).reshape(-1)), 1), self.vec(steps)

    @staticmethod
    def vec_size(values: NDArray[Any]) -> int:
        flat = values.astype(np.int64)
        return 1 if np.abs(flat // (int(np.gcd.reduce(flat, axis=None)) or 1)).max() <= 127 else 2


def _put(pool: list[int], values: NDArray[Any]) -> int:
    pool.extend(int(value) for value in values)
    return len(pool) - values.size


def tables(program: Program) -> Tables:
    made = Tables(program, plan(program))
    for index, (op, name) in enumerate(zip(program.ops, program.names, strict=True)):
        try:
            made.ops.append(_op(made, op, index))
        except UserError as error:
            raise UserError(f"op {index} ({type(op).__name__} {name!r}): {error}") from None
    if len(program.ops) > MOST or max(len(rows) for rows in (made.branches, made.endings, made.needs)) > MOST:
        raise UserError(f"the program has more than {MOST:,} ops, branches or endings, which --to c has no numbers for")
    return made


def kind(part: Any) -> str:
    """FixedBinaryConv -> FIXED_BINARY_CONV: its name in C."""
    return (
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(part).__name__)
        .upper()
        .replace("PRE_LU", "PRELU")
        .replace("RE_LU", "RELU")
    )


# --- one op -----------------------------------------------------------------------------------------------------------

BY_ROWS = "FIXED_DEPTHWISE_BY_ROWS"


def _op(made: Tables, op: Op, index: int) -> list[Any]:
    rule = RULES.get(type(op))
    if rule is None:
        raise UserError("--to c has no form for it")
    shape, own = made.program.shapes[index], made.plan
    if shape[2] > MOST or getattr(op, "reads", 1) > MOST:
        raise UserError(f"has more than {MOST:,} channels, the most that --to c knows")
    found = _Own()
    rule(made, op, found)
    window = getattr(op, "window", ops.Window())
    strides = op.factor if isinstance(op, ops.Upsample) else window.stride
    needs, endings = len(made.needs), len(made.endings)
    for read in own.reads[index]:
        height = made.program.shapes[read.map][0]
        most = (
            height
            if type(made.program.ops[read.map]) is ops.FixedConstant
            else complete(made.program, read.map, own.steps[read.map])
        )
        made.needs.append([read.map, *((0, 1, most, most) if read.whole else (read.mul, read.div, most, read.high))])
    after = getattr(op, "after", ())
    made.endings.extend(_ending(made, ending) for ending in after)
    at = found.at if isinstance(op, ops.FixedConstant) else _put(made.slots, np.array(own.slots[index], np.int64))
    counts = [needs, len(own.reads[index]), found.parts, found.part_count, endings, len(after)]
    return [
        *(found.a, found.b, found.c),
        *(at, found.extra, window.padding[0], window.padding[1]),
        *(
            BY_ROWS if isinstance(op, ops.FixedDepthwise) and by_source(made.program, index) else kind(op),
            own.steps[index],
            *shape,
        ),
        *(getattr(op, "reads", shape[2]), getattr(op, "groups", 1)),
        *counts,
        *(*window.kernel, *strides, *window.dilation),
        *(getattr(op, "source", 0), found.shift, 0),
    ]


@dataclass
class _Own:
    """What an op says in the fields that mean something else for each."""

    a: Vec = NOTHING
    b: Vec = NOTHING
    c: Vec = NOTHING
    at: int = 0
    extra: int = 0
    parts: int = 0
    part_count: int = 0
    shift: int = 0


def _input(made: Tables, op: ops.FixedInput, own: _Own) -> None:
    own.extra = _put(made.wide, np.concatenate([op.scale, op.offset]))
    own.shift = op.down
    if op.intensity is not None:
        own.a = made.vec(op.intensity)


def _binary(made: Tables, op: ops.FixedBinaryConv, own: _Own) -> None:
    own.parts, own.part_count = len(made.branches), len(op.branches)
    inner = op.reads // op.groups
    for branch in op.branches:
        pad = NONE
        if branch.pad is not None:  # a group from a word of its own on, as the device packs pixels
            pad = _put(made.words, pack_bits(unpack_bits(branch.pad, op.reads).reshape(op.groups, inner)).reshape(-1))
        weight = _put(made.words, branch.weight.reshape(-1))
        vecs = [made.vec(values) for values in (branch.above, branch.scale, branch.offset)]
        made.branches.append([*vecs, weight, pad, *branch.shift, branch.up, 0])
    taps = op.window.taps
    made.scratch = max(made.scratch, words(taps) + taps * op.groups * words(inner))


def _conv(made: Tables, op: ops.FixedConv, own: _Own) -> None:
    inner, o = op.reads // op.groups, op.offset.size
    own.a = made.vec(op.weight.reshape(op.window.taps * inner, o).T)
    own.c = made.vec(op.down)
    own.extra = _put(made.wide, op.offset)


def _depthwise(made: Tables, op: ops.FixedDepthwise, own: _Own) -> None:
    own.a, own.c = made.stepped(op.weight.reshape(op.window.taps, op.reads).T)
    own.b = made.vec(op.offset)


def _pool(made: Tables, op: ops.FixedAvgPool, own: _Own) -> None:
    _countable(op.window.taps)
    own.shift = int(op.inside)


def _global(made: Tables, op: ops.FixedGlobalAvgPool, own: _Own) -> None:
    height, width, _ = made.program.shapes[op.source]
    _countable(height * width)
    own.shift = op.up


def _countable(count: int) -> None:
    if count > MOST:
        raise UserError(f"is a mean of {count:,} values; sums of 32 bits hold {MOST:,}")


def _concat(made: Tables, op: ops.Concat, own: _Own) -> None:
    own.a, own.part_count = made.vec(np.array(op.sources)), len(op.sources)


def _select(made: Tables, op: ops.Select, own: _Own) -> None:
    if op.index.max() > 32767:
        raise UserError("selects channels beyond 32,767, the most that --to c knows")
    own.a = made.vec(op.index)


def _constant(made: Tables, op: ops.FixedConstant, own: _Own) -> None:
    own.at = _put(made.numbers, op.value.reshape(-1))


def _nothing(made: Tables, op: Op, own: _Own) -> None:
    """Its shape says all."""


RULES: dict[type[Op], Callable[[Tables, Any, _Own], None]] = {
    ops.FixedInput: _input,
    ops.FixedBinaryConv: _binary,
    ops.FixedConv: _conv,
    ops.FixedDepthwise: _depthwise,
    ops.FixedAvgPool: _pool,
    ops.MaxPool: _nothing,
    ops.FixedGlobalAvgPool: _global,
    ops.FixedChannelAvg: _nothing,
    ops.FixedAbsMean: _nothing,
    ops.FixedConstant: _constant,
    ops.Pointwise: _nothing,
    ops.Concat: _concat,
    ops.Select: _select,
    ops.Upsample: _nothing,
}


def _ending(made: Tables, ending: Any) -> list[Any]:
    a = b = NOTHING
    low = high = 0
    shift = getattr(ending, "up", getattr(ending, "down", 0))
    if isinstance(ending, ops.FixedAffine):
        a, b = (NOTHING if values is None else made.vec(values) for values in (ending.scale, ending.offset))
    elif isinstance(ending, ops.FixedClip):
        low, high = ending.limits.tolist()
    elif isinstance(ending, ops.FixedSign):
        a, high = made.vec(ending.above), ending.one
    else:
        a = next((made.vec(values) for values in ending.arrays()), NOTHING)
    place = [getattr(ending, name, 0) for name in ("source", "first", "reads")]
    return [a, b, kind(ending), *place, shift, low, high, 0]
