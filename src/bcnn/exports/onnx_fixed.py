"""What each op and ending of an integer program becomes in ONNX: the tables `OPS` and `ENDINGS`, a function each.

Maps are int32, N,H,W,C, with the values of the program's 16-bit ones. Every operator used is exact on integers, in any order of
additions, so that a runtime has no choice: its logits equal the engine's. ONNX has no sums of 16-bit products: real convolutions
are MatMul on int32, one for each tap.

`Div` rounds towards zero, which is floor where nothing is negative: products are lifted by 2^30 before (`Scaled`); other numbers
lose what is left of a division first (`Floor`). Steps that come back hundreds of times are functions of the model, domain `b`, which
a runtime puts in place when it loads it: said once, and one box each in a viewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from bcnn.base.errors import UserError
from bcnn.exports.onnx_graph import Field, Graph, branch_window, in_steps, signs
from bcnn.exports.onnx_ops import BOTH, field_of
from bcnn.program import ops
from bcnn.program.ops import Window
from bcnn.program.ops.arithmetic import HIGH, LOW
from bcnn.program.ops.input import INTENSITY_DOWN

MOST = 1 << 14  # values of a mean whose doubled sum fits 32 bits


# --- numbers ------------------------------------------------------------------------------------------------------------


def whole(graph: Graph, value: int) -> str:
    return graph.number(value, np.int32)


def parameter(graph: Graph, values: NDArray[Any], what: str) -> str:
    """As int32; one with a value for each channel is a row of the op's (`Graph.channelwise`)."""
    return graph.channelwise(values, what) if values.ndim == 1 else table(graph, values, what)


def table(graph: Graph, values: NDArray[Any], what: str) -> str:
    small, step = in_steps(values)
    stored = graph.constant(small, what)
    wide = _wide(graph, stored)
    return wide if step == 1 else graph.node("Mul", wide, whole(graph, step))


def _wide(graph: Graph, x: str) -> str:
    return graph.node("Cast", x, to=TensorProto.INT32)


def saturated(graph: Graph, v: str) -> str:
    return graph.node("Clip", v, whole(graph, LOW), whole(graph, HIGH))


def within(graph: Graph, v: str, least: NDArray[Any], most: NDArray[Any]) -> str:
    """Saturated, unless v is known to be from `least` to `most` and these need it not."""
    return v if np.min(least) >= LOW and np.max(most) <= HIGH else saturated(graph, v)


def down(graph: Graph, v: str, bits: int) -> str:
    """v >> bits, rounded."""
    return floor(graph, graph.node("Add", v, whole(graph, 1 << bits >> 1)), bits) if bits else v


def floor(graph: Graph, v: str, bits: NDArray[Any] | int) -> str:
    """v >> bits: bits of all values, or of each channel."""
    given = np.unique(np.asarray(bits, np.int64))
    if not given.any():
        return v
    unit = np.left_shift(np.int64(1), given[0] if given.size == 1 else bits).astype(np.int32)
    return graph.call("Floor", v, graph.constant(np.asarray(unit)))


def shifted(graph: Graph, v: str, up: int) -> str:
    if up == 0:
        return v
    return saturated(graph, graph.node("Mul", v, whole(graph, 1 << up)) if up > 0 else down(graph, v, -up))


def mean(graph: Graph, total: str, count: NDArray[Any] | int, dtype: type = np.int32) -> str:
    """The nearest whole number, halves up: floor((2 total + count) / (2 count))."""
    counts: NDArray[Any] = np.asarray(count, dtype)
    if (counts % 2 == 0).all():
        return graph.call(
            "Floor", graph.node("Add", total, graph.constant(np.asarray(counts // 2))), graph.constant(counts)
        )
    twice = graph.node("Add", graph.node("Add", total, total), graph.constant(counts))
    return graph.call("Floor", twice, graph.constant(np.asarray(2 * counts)))


def _countable(count: int) -> int:
    if count > MOST:
        raise UserError(f"is a mean of {count:,} values; --to onnx adds up {MOST:,} in 32 bits")
    return count


# --- ops ----------------------------------------------------------------------------------------------------------------


def _input(graph: Graph, op: ops.FixedInput) -> str:
    """What the shift rounds by is in the offset. Most pictures make numbers that need no saturation, black and white show it."""
    offset = op.offset.astype(np.int64) + (1 << op.down >> 1)
    ends = np.sort([offset >> op.down, (255 * op.scale.astype(np.int64) + offset) >> op.down], axis=0)
    x = graph.node("Mul", _wide(graph, "image"), graph.constant(op.scale, "scale"))
    x = graph.node("Add", x, graph.constant(offset.astype(np.int32), "offset"))
    x = within(graph, floor(graph, x, op.down), *ends)
    if op.intensity is None:
        return x
    total = graph.node("MatMul", x, graph.constant(op.intensity.astype(np.int32)[:, None], "intensity"))
    most = np.abs(np.clip(ends, LOW, HIGH)).max(axis=0) @ np.abs(op.intensity.astype(np.int64)) + (1 << INTENSITY_DOWN)
    intensity = within(graph, down(graph, total, INTENSITY_DOWN), -most >> INTENSITY_DOWN, most >> INTENSITY_DOWN)
    return graph.node("Concat", x, intensity, axis=3)


def _binary_conv(graph: Graph, op: ops.FixedBinaryConv) -> str:
    x = graph.replicated(op.source, op.reads)
    if _is_module(graph, op):
        (branch,) = op.branches
        rows: dict[str, NDArray[Any]] = {"above": branch.above, "scale": _scale(branch), "offset": branch.offset}
        v = graph.reader("Module", x, rows=rows, bits=graph.packed(signs(branch, op.reads)[:, 0].T))
        return graph.finish(v, op.after[1:], branch.scale.size)
    v = ""
    for p, branch in enumerate(op.branches):
        term = _branch(graph, op, branch, x, field_of(op, p))
        v = graph.call("Plus", v, term) if v else term
    return graph.finish(v, op.after, op.branches[0].scale.size)


def _is_module(graph: Graph, op: ops.FixedBinaryConv) -> bool:
    """The paper's convolution module with P = 1: a pointwise convolution, and the map it reads added; and its parameters fit bytes."""
    branch, channels = op.branches[0], op.branches[0].scale.size
    pointwise = branch_window(op, branch).pointwise and op.groups == 1 and len(op.branches) == 1
    added = op.after[0] if op.after else None
    identity = isinstance(added, ops.FixedAdd) and (added.source, added.reads, added.up) == (op.source, op.reads, 0)
    numbers = (branch.above, _scale(branch), branch.offset)
    in_bytes = all(in_steps(values)[0].dtype == np.int8 for values in numbers) and channels % 8 == 0
    return graph.SMALL and pointwise and identity and op.reads == channels and in_bytes


def _scale(branch: ops.FixedBranch) -> NDArray[np.int64]:
    """|dot << up| is below 2^15, so the scale may be shifted in its place."""
    return branch.scale.astype(np.int64) << branch.up


def _branch(graph: Graph, op: ops.FixedBinaryConv, branch: ops.FixedBranch, x: str, field: Field) -> str:
    window = branch_window(op, branch)
    bits = graph.node("Greater", x, parameter(graph, branch.above, field("above")))
    dot = graph.dots(op, branch, graph.node("Where", bits, *graph.sign_numbers()[:2]), window, field)
    scale, offset = parameter(graph, _scale(branch), field("scale")), parameter(graph, branch.offset, field("offset"))
    return graph.call("Scaled", dot, scale, offset)


def _views(graph: Graph, x: str, window: Window, shape: ops.Shape) -> Iterator[str]:
    """The map at every tap, in raster order; 0 outside."""
    height, width = window.size(*shape[:2])
    padded = graph.pad(x, window.padding)
    for ky in range(window.kernel[0]):
        for kx in range(window.kernel[1]):
            if window.pointwise:
                yield padded
                continue
            top, left = ky * window.dilation[0], kx * window.dilation[1]
            end = [top + (height - 1) * window.stride[0] + 1, left + (width - 1) * window.stride[1] + 1]
            yield graph.node("Slice", padded, *map(graph.shape_of, ([top, left], end, [1, 2], window.stride)))


def _conv(graph: Graph, op: ops.FixedConv) -> str:
    x, o = graph.replicated(op.source, op.reads), op.offset.size
    inner, made, taps = op.reads // op.groups, o // op.groups, op.window.taps
    weight = np.zeros((taps, op.reads, o), np.int64)  # of groups: zeros elsewhere, which add nothing
    for group in range(op.groups):
        rows, columns = slice(group * inner, (group + 1) * inner), slice(group * made, (group + 1) * made)
        weight[:, rows, columns] = op.weight.reshape(taps, inner, o)[:, :, columns]
    filters = parameter(graph, weight if taps > 1 else weight[0], "weight")
    # What it rounds by is added with the offset: the op's own check says that both together fit 32 bits.
    half = np.left_shift(1, op.down, dtype=np.int64) >> 1
    total = graph.constant((op.offset + half).astype(np.int32), "offset")
    for tap, view in enumerate(_views(graph, x, op.window, (*graph.shapes[op.source][:2], op.reads))):
        own = graph.node("Gather", filters, graph.number(tap, np.int64)) if taps > 1 else filters
        total = graph.node("Add", total, graph.node("MatMul", view, own))
    return graph.finish(saturated(graph, floor(graph, total, op.down)), op.after, o)


def _depthwise(graph: Graph, op: ops.FixedDepthwise) -> str:
    x, window = graph.replicated(op.source, op.reads), op.window
    weight = _filters(graph, op.weight.reshape(-1, op.reads).astype(np.int64))
    offset, padded = parameter(graph, op.offset, "offset"), graph.pad(x, window.padding)
    corners = (np.indices(window.kernel).reshape(2, -1).T * window.dilation).tolist()
    sides = zip(window.size(*graph.shapes[op.source][:2]), window.stride, strict=True)
    span = [(side - 1) * stride + 1 for side, stride in sides]
    v = graph.call("Taps", offset, padded, weight, *map(graph.shape_of, (corners, span, [1, 2], window.stride)))
    return graph.finish(v, op.after, op.reads)


def _filters(graph: Graph, weight: NDArray[np.int64]) -> str:
    """A row for each tap: multiples of a step for each channel, where that makes bytes of them. Steps are from 1 to 258 then, and bytes less 128."""
    steps = np.maximum(np.gcd.reduce(weight, axis=0), 1)
    if (np.abs(weight // steps) > 127).any() or (steps == 1).all():
        return graph.channelwise(weight, "weight")
    taps, step = graph.channelwise(weight // steps, "weight"), parameter(graph, steps - 128, "step")
    return graph.node("Mul", taps, graph.node("Add", step, whole(graph, 128)))


def _avg_pool(graph: Graph, op: ops.AvgPool) -> str:
    (height, width, channels), (kh, kw) = graph.shapes[op.source], op.window.kernel
    _countable(op.window.taps)
    if op.window == Window((kh, kw), (kh, kw)) and height % kh == 0 and width % kw == 0:
        tiles = graph.node(
            "Reshape", graph.made[op.source], graph.shape_of([0, height // kh, kh, width // kw, kw, channels])
        )
        return mean(graph, graph.node("ReduceSum", tiles, graph.shape_of([2, 4]), keepdims=0), kh * kw)
    total, *others = _views(graph, graph.made[op.source], op.window, graph.shapes[op.source])
    for view in others:
        total = graph.node("Add", total, view)
    inside = op.window.inside(height, width).astype(np.int32)
    return mean(graph, total, inside if op.inside else op.window.taps)


def _global_avg_pool(graph: Graph, op: ops.GlobalAvgPool) -> str:
    height, width, _ = graph.shapes[op.source]
    count, up = height * width, op.up
    while up and count % 2 == 0:  # twice as much is half the count
        count, up = count // 2, up - 1
    long = (-LOW * height * width << up) + count >= 1 << 30  # sums of 64 bits
    total = graph.made[op.source]
    if long:
        total = graph.node("Cast", total, to=TensorProto.INT64)
    total = graph.node("ReduceSum", total, graph.shape_of([1, 2]))
    dtype = np.int64 if long else np.int32
    if up:
        total = graph.node("Mul", total, graph.number(1 << up, dtype))
    made = mean(graph, total, count, dtype)
    if op.up:
        made = graph.node("Clip", made, graph.number(LOW, dtype), graph.number(HIGH, dtype))
    return _wide(graph, made) if long else made


def _channel_avg(graph: Graph, op: ops.ChannelAvg) -> str:
    have = graph.shapes[op.source][2]
    members = (np.arange(have)[:, None] % op.channels == np.arange(op.channels)).astype(np.int8)
    _countable(int(members.sum(axis=0).max()))
    total = graph.node("MatMul", graph.made[op.source], parameter(graph, members, "members"))
    return mean(graph, total, members.sum(axis=0, dtype=np.int32))


def _abs_mean(graph: Graph, op: ops.AbsMean) -> str:
    magnitudes = graph.node("Abs", graph.made[op.source])
    total = graph.node("ReduceSum", magnitudes, graph.shape_of([3]))
    return saturated(graph, mean(graph, total, _countable(graph.shapes[op.source][2])))


def _constant(graph: Graph, op: ops.FixedConstant) -> str:
    shape = graph.for_all_images(op.value.shape)
    return graph.node("Expand", parameter(graph, op.value, "value"), shape)


OPS: dict[type[ops.Op], Callable[[Graph, Any], str]] = {
    **BOTH,
    ops.FixedInput: _input,
    ops.FixedBinaryConv: _binary_conv,
    ops.FixedConv: _conv,
    ops.FixedDepthwise: _depthwise,
    ops.AvgPool: _avg_pool,
    ops.GlobalAvgPool: _global_avg_pool,
    ops.ChannelAvg: _channel_avg,
    ops.AbsMean: _abs_mean,
    ops.FixedConstant: _constant,
}


# --- endings ------------------------------------------------------------------------------------------------------------


def _add(graph: Graph, ending: ops.FixedAdd, v: str, channels: int) -> str:
    other = shifted(graph, graph.replicated(ending.source, ending.reads), ending.up)
    return graph.call("Plus", v, graph.among(other, ending.first, ending.reads, channels))


def _gate(graph: Graph, ending: ops.FixedGate, v: str, channels: int) -> str:
    return saturated(graph, down(graph, graph.node("Mul", v, graph.made[ending.source]), ending.down))


def _affine(graph: Graph, ending: ops.FixedAffine, v: str, channels: int) -> str:
    if ending.scale is not None:
        scaled = graph.node("Mul", v, parameter(graph, ending.scale, "after.scale"))
        v = saturated(graph, down(graph, scaled, ending.down))
    if ending.offset is not None:
        v = graph.call("Plus", v, parameter(graph, ending.offset, "after.offset"))
    return v


def _prelu(graph: Graph, ending: ops.FixedPReLU, v: str, channels: int) -> str:
    """|w << up| is at most 2^15, so the bend may be shifted in its place."""
    low = whole(graph, -(-LOW >> ending.up))
    return graph.call("Bent", v, parameter(graph, ending.bend.astype(np.int64) << ending.up, "bend"), low)


def _bound(graph: Graph, ending: ops.Bound, v: str, channels: int) -> str:
    """With a factor of 1, which a shift may replace: then ops with and without one have the same steps."""
    limit = parameter(graph, ending.limit, "limit")
    w = graph.node("Min", graph.node("Max", v, graph.node("Neg", limit)), limit)
    made = graph.node("Mul", w, whole(graph, 1))
    graph.bounds[made] = int(ending.limit.max())
    return made


def _shift(graph: Graph, ending: ops.Shift, v: str, channels: int) -> str:
    """After a bound that leaves it room it is the factor."""
    if ending.up > 0 and v == graph.nodes[-1].output[0] and graph.bounds.get(v, -LOW) << ending.up <= HIGH:
        graph.nodes[-1].input[1] = whole(graph, 1 << ending.up)
        return v
    return shifted(graph, v, ending.up)


def _sign(graph: Graph, ending: ops.FixedSign, v: str, channels: int) -> str:
    bits = graph.node("Greater", v, parameter(graph, ending.above, "after.above"))
    return graph.node("Where", bits, whole(graph, ending.one), whole(graph, -ending.one))


def _table(graph: Graph, ending: ops.Table, v: str, channels: int) -> str:
    half, unit = 128 << ending.down, whole(graph, 1 << ending.down)
    w = graph.node("Clip", v, whole(graph, -half), whole(graph, half - 1))
    line = graph.call("Floor", w, unit)
    rest = graph.node("Sub", w, graph.node("Mul", line, unit))
    at = graph.node("Add", line, whole(graph, 128))
    values = table(graph, ending.values, "table")
    begin = graph.node("Gather", values, at)
    rise = graph.node("Sub", graph.node("Gather", values, graph.node("Add", at, whole(graph, 1))), begin)
    risen = down(graph, graph.node("Mul", rise, rest), ending.down)
    return saturated(graph, graph.node("Add", begin, risen))


ENDINGS: dict[type[ops.Ending], Callable[[Graph, Any, str, int], str]] = {
    ops.FixedAdd: _add,
    ops.FixedGate: _gate,
    ops.FixedAffine: _affine,
    ops.FixedPReLU: _prelu,
    ops.ReLU: lambda graph, ending, v, channels: graph.node("Max", v, whole(graph, 0)),
    ops.FixedClip: lambda graph, ending, v, channels: graph.node(
        "Clip", v, *(whole(graph, int(n)) for n in ending.limits)
    ),
    ops.Bound: _bound,
    ops.Shift: _shift,
    ops.FixedSign: _sign,
    ops.Table: _table,
}
