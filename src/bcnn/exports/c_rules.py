"""A program in integers or floats -> the rows of the tables of `--to c`, a rule an op. No torch."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from bcnn.base.errors import UserError
from bcnn.exports.c_endings import Form
from bcnn.exports.c_plan import CONSTANTS, by_source, complete, plan
from bcnn.exports.c_tables import NONE, NOTHING, Tables, Vec, put
from bcnn.program import ops
from bcnn.program.bits import pack_bits, unpack_bits
from bcnn.program.ops import Op, words
from bcnn.program.program import Program

MOST = (1 << 16) - 1  # channels, and values of one mean: what 16 bits of a table and sums of 32 bits hold
BY_ROWS = "BY_ROWS"  # the kind of a filter that takes a row of its source in a step
BINARY_PIXELS = "BINARY_PIXELS"  # of a binary convolution in integers with filters of one tap, and no room for
BINARY_TABLES = "BINARY_TABLES"  # look-up tables
TABLES = 256  # words, of one
SIZES = (2, 1)
HALF = 1 << 14
KIND = 7  # of the fields of an op


def tables(program: Program) -> Tables:
    for index, (op, name) in enumerate(zip(program.ops, program.names, strict=True)):
        _sayable(op, f"op {index} ({type(op).__name__} {name!r})")
    wishes = {i: wished(op, program.shapes[i]) for i, op in enumerate(program.ops) if by_pixels(op)}
    made = Tables(program, plan(program, wishes))
    for index, (op, name) in enumerate(zip(program.ops, program.names, strict=True)):
        try:
            made.ops.append(_op(made, op, index))
        except UserError as error:
            raise UserError(f"op {index} ({type(op).__name__} {name!r}): {error}") from None
    if len(program.ops) > MOST or max(len(rows) for rows in (made.branches, made.endings, made.needs)) > MOST:
        raise UserError(f"the program has more than {MOST:,} ops, branches or endings, which --to c has no numbers for")
    return made


def _sayable(op: Op, who: str) -> None:
    for part in (op, *op.after):
        if type(part) not in (*RULES, *ENDINGS):
            raise UserError(f"{who}: --to c has no form for a {type(part).__name__}")


def kind(cls: type) -> str:
    """FixedBinaryConv and BinaryConv -> BINARY_CONV: their name in C."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__.removeprefix("Fixed")).upper()
    return name.replace("PRE_LU", "PRELU").replace("RE_LU", "RELU")


def kinds() -> list[str]:
    """All there are, in the order of their numbers."""
    return list(dict.fromkeys([*map(kind, RULES), BINARY_PIXELS, BINARY_TABLES, BY_ROWS]))


# --- one op -----------------------------------------------------------------------------------------------------------


def _op(made: Tables, op: Op, index: int) -> list[Any]:
    shape, own = made.program.shapes[index], made.plan
    found = _Own(getattr(op, "reads", shape[2]))
    if shape[2] > MOST or found.reads > MOST:
        raise UserError(f"has more than {MOST:,} channels, the most that --to c knows")
    RULES[type(op)](made, op, found)
    window = op.window or ops.Window()
    strides = op.factor if isinstance(op, ops.Upsample) else window.stride
    needs, endings = len(made.needs), len(made.endings)
    for read in own.reads[index]:
        height = made.program.shapes[read.map][0]
        constant = isinstance(made.program.ops[read.map], CONSTANTS)
        most = height if constant else complete(made.program, read.map, own.steps[read.map])
        made.needs.append([read.map, *((0, 1, most, most) if read.whole else (read.mul, read.div, most, read.high))])
    after = op.after
    made.endings.extend(_ending(made, ending) for ending in after)
    pixels = by_pixels(op)
    forms = (*([_term(op)] if by_pixels(op) else []), *(_form(ending, shape[2]) for ending in after))
    if forms:
        made.finishes[forms] = math.gcd(made.finishes.get(forms, 2), shape[1])
    at = found.at if isinstance(op, CONSTANTS) else put(made.slots, np.array(own.slots[index], np.int64))
    by_rows = by_source(made.program, index) and op.window is not None
    what = BY_ROWS if by_rows else kind(type(op))
    if pixels:
        what = BINARY_TABLES if index in own.rooms else BINARY_PIXELS
        wish, places = own.rooms.get(index, (0, ()))
        found.extra, found.shift = put(made.slots, np.array(places, np.int64)), SIZES[wish]
    finish = list(made.finishes).index(forms) + 1 if forms else 0
    counts = [needs, len(own.reads[index]), found.parts, found.part_count, endings, finish]
    return [
        *(found.a, found.b, found.c),
        *(at, found.extra, window.padding[0], window.padding[1]),
        *(what, own.steps[index], *shape),
        *(found.reads, getattr(op, "groups", 1)),
        *counts,
        *(*window.kernel, *strides, *window.dilation),
        *(getattr(op, "source", 0), found.shift, HALF),
    ]


@dataclass
class _Own:
    """What an op says in the fields that mean something else for each."""

    reads: int
    a: Vec = NOTHING
    b: Vec = NOTHING
    c: Vec = NOTHING
    at: int = 0
    extra: int = 0
    parts: int = 0
    part_count: int = 0
    shift: int = 0


def _fixed_input(made: Tables, op: ops.FixedInput, own: _Own) -> None:
    own.extra = put(made.wide, np.concatenate([op.scale, op.offset]))
    own.shift = op.down
    if op.intensity is not None:
        own.a = made.wide_vec(op.intensity)


def _input(made: Tables, op: ops.Input, own: _Own) -> None:
    given = [values for values in (op.scale, op.offset, op.intensity) if values is not None]
    own.a = made.vec(np.concatenate(given))


def _binary(made: Tables, op: ops.BinaryConv | ops.FixedBinaryConv, own: _Own) -> None:
    own.parts, own.part_count = len(made.branches), len(op.branches)
    inner = op.reads // op.groups
    for branch in op.branches:
        pad = NONE
        if branch.pad is not None:  # a group from a word of its own on, as the device packs pixels
            pad = put(made.words, pack_bits(unpack_bits(branch.pad, op.reads).reshape(op.groups, inner)).reshape(-1))
        weight = put(
            made.words,
            (branch.weight.reshape(len(branch.weight), -1).T if by_pixels(op) else branch.weight).reshape(-1),
        )
        signs = branch.threshold if isinstance(branch, ops.Branch) else branch.above
        times = 2 << getattr(branch, "up", 0) if by_pixels(op) else 1
        vecs = [made.vec(signs), made.vec(branch.scale, times), made.vec(branch.offset)]
        made.branches.append([*vecs, weight, pad, *branch.shift, getattr(branch, "up", 0), 0])
    taps = op.window.taps
    bits = words(inner) if by_pixels(op) else words(taps) + taps * op.groups * words(inner)
    made.scratch = max(made.scratch, bits)


def _filters(op: ops.Conv | ops.FixedConv) -> Any:
    """[taps * read, made] -> [made, taps * read]."""
    return op.weight.reshape(-1, op.offset.size).T


def _fixed_conv(made: Tables, op: ops.FixedConv, own: _Own) -> None:
    own.a, own.c = made.vec(_filters(op)), made.vec(op.down)
    own.extra = put(made.wide, op.offset)


def _conv(made: Tables, op: ops.Conv, own: _Own) -> None:
    own.a, own.b = made.vec(_filters(op)), made.vec(op.offset)


def _linear(made: Tables, op: ops.Linear, own: _Own) -> None:
    own.a, own.b, own.reads = made.vec(op.weight.T), made.vec(op.bias), len(op.weight)


def _depthwise(made: Tables, op: ops.FixedDepthwise, own: _Own) -> None:
    own.a, own.c = made.stepped(op.weight.reshape(op.window.taps, op.reads).T)
    own.b = made.vec(op.offset)


def _max_pool(made: Tables, op: ops.MaxPool, own: _Own) -> None:
    own.extra = int(not any(op.window.padding))


def _pool(made: Tables, op: ops.AvgPool, own: _Own) -> None:
    taps = op.window.taps
    own.a, own.shift = _shares(made, range(1, taps + 1) if op.inside else [taps]), int(op.inside)
    own.extra = int(not any(op.window.padding))


def _global(made: Tables, op: ops.GlobalAvgPool, own: _Own) -> None:
    height, width, _ = made.program.shapes[op.source]
    own.a, own.shift = _shares(made, [height * width]), op.up


def _abs_mean(made: Tables, op: ops.AbsMean, own: _Own) -> None:
    if made.program.numbers == "float32":
        own.a = _shares(made, [made.program.shapes[op.source][2]])


def _shares(made: Tables, counts: Any) -> Vec:
    """Of means, by which floats are multiplied; sums of integers are divided by the last count."""
    if made.program.numbers == "float32":
        return made.vec(np.array([1 / count for count in counts], np.float32))
    if counts[-1] > MOST:
        raise UserError(f"is a mean of {counts[-1]:,} values; sums of 32 bits hold {MOST:,}")
    return NOTHING


def _concat(made: Tables, op: ops.Concat, own: _Own) -> None:
    own.extra, own.part_count = put(made.wide, np.array(op.sources)), len(op.sources)


def _select(made: Tables, op: ops.Select, own: _Own) -> None:
    own.extra = put(made.wide, op.index)


def _constant(made: Tables, op: ops.Constant | ops.FixedConstant, own: _Own) -> None:
    own.at = put(made.numbers, op.value.reshape(-1))


def _nothing(made: Tables, op: Op, own: _Own) -> None:
    """Its shape says all."""


RULES: dict[type[Op], Callable[[Tables, Any, _Own], None]] = {
    ops.FixedInput: _fixed_input,
    ops.Input: _input,
    ops.FixedBinaryConv: _binary,
    ops.BinaryConv: _binary,
    ops.FixedConv: _fixed_conv,
    ops.Conv: _conv,
    ops.Linear: _linear,
    ops.FixedDepthwise: _depthwise,
    ops.AvgPool: _pool,
    ops.MaxPool: _max_pool,
    ops.GlobalAvgPool: _global,
    ops.ChannelAvg: _nothing,
    ops.AbsMean: _abs_mean,
    ops.FixedConstant: _constant,
    ops.Constant: _constant,
    ops.Pointwise: _nothing,
    ops.Concat: _concat,
    ops.Select: _select,
    ops.Upsample: _nothing,
}
ENDINGS: tuple[type[ops.Ending], ...] = (
    *(ops.FixedAdd, ops.FixedGate, ops.FixedAffine, ops.FixedPReLU, ops.FixedClip, ops.FixedSign),
    *(ops.Add, ops.Gate, ops.Affine, ops.PReLU, ops.Clip, ops.Sign),
    *(ops.ReLU, ops.Bound, ops.Shift, ops.Table, ops.Sigmoid),
)


def _ending(made: Tables, ending: Any) -> list[Any]:
    """Its parameters and the map it reads; the rest is in the code, by its form."""
    a = b = NOTHING
    if isinstance(ending, (ops.Affine, ops.FixedAffine)):
        a, b = (NOTHING if values is None else made.vec(values) for values in (ending.scale, ending.offset))
    elif isinstance(ending, ops.FixedSign):
        a = made.vec(ending.above)
    elif isinstance(ending, ops.FixedPReLU):
        a = made.vec(ending.bend, 1 << ending.up)
    elif not isinstance(ending, ops.FixedClip):
        a = next((made.vec(values) for values in ending.arrays()), NOTHING)
    return [a, b, getattr(ending, "source", 0), 0]


def _form(ending: Any, channels: int) -> Form:
    low = high = 0
    if isinstance(ending, ops.FixedClip):
        low, high = ending.limits.tolist()
    elif isinstance(ending, ops.FixedSign):
        high = ending.one
    affine = isinstance(ending, (ops.Affine, ops.FixedAffine))
    part = (getattr(ending, "first", 0), getattr(ending, "reads", channels))
    return Form(
        kind(type(ending)),
        getattr(ending, "up", getattr(ending, "down", 0)),
        low,
        high,
        a=affine and ending.scale is not None,
        b=affine and ending.offset is not None,
        part=None if part == (0, channels) else part,
    )


def _term(op: ops.FixedBinaryConv) -> Form:
    """What follows the dots of `BINARY_PIXELS`; low says whether no channel can leave 16 bits."""
    (branch,) = op.branches
    scale, offset = (np.abs(values.astype(np.int64)) for values in (branch.scale, branch.offset))
    fits = (((op.reads << branch.up) * scale >> 15) + 1 + offset).max() <= 32767
    return Form("TERM", low=int(fits))


def wished(op: ops.FixedBinaryConv, shape: ops.Shape) -> list[int]:
    """16-bit numbers for look-up with entries of two words and of one: tables, and sums of each filter."""
    return [2 * size * (TABLES + shape[2]) if shape[1] > 2 * size else 1 << 31 for size in SIZES]


def by_pixels(op: Op) -> TypeGuard[ops.FixedBinaryConv]:
    """Whether a binary convolution has one filter of one tap for all that it reads, and nothing outside the map."""
    if not isinstance(op, ops.FixedBinaryConv) or len(op.branches) > 1 or op.groups > 1:
        return False
    return op.window.taps == 1 and not any(op.window.padding) and not any(op.branches[0].shift)


def fits(program: Program, op: ops.FixedDepthwise) -> bool:
    """Whether no sum of taps leaves 16 bits, because the map that is read ends with a Bound."""
    after = getattr(program.ops[op.source], "after", ())
    *_, bound, shift = (
        (None, *after, ops.Shift(0)) if after and isinstance(after[-1], ops.Bound) else (None, None, *after)
    )
    if not isinstance(bound, ops.Bound) or not isinstance(shift, ops.Shift) or shift.up < 0:
        return False
    channels = program.shapes[op.source][2]
    most = np.minimum(bound.limit.astype(np.int64) << shift.up, 32768)[np.arange(op.reads) % channels]
    taps = np.abs(op.weight.astype(np.int64)).reshape(-1, op.reads) * most
    return bool((((taps + 16384) >> 15).sum(axis=0) + np.abs(op.offset.astype(np.int64))).max() <= 32767)
