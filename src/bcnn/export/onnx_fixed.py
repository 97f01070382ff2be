"""What each op and ending of an integer program becomes in ONNX: the tables `OPS` and `ENDINGS`, a function each.

Maps are int32, N,H,W,C, with the values of the program's 16-bit ones. Every operator used is exact on integers, in any order of
additions, so that a runtime has no choice: its logits equal the engine's. ONNX has no sums of 16-bit products: real convolutions
are MatMul on int32, one for each tap.

`Div` rounds towards zero, which is floor where nothing is negative: products are lifted by 2^30 before (`Product`); other numbers
lose what is left of a division first (`Floor`). Steps that come back hundreds of times are functions of the model, domain `bcnn`, which
a runtime puts in place when it loads it: said once, and one box each in a viewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from bcnn.errors import UserError
from bcnn.export.onnx_graph import Graph
from bcnn.export.onnx_ops import branch_window, dots, field_of, moving_ops, signs
from bcnn.program import ops
from bcnn.program.ops import Window
from bcnn.program.ops.fixed_numbers import HIGH, LOW
from bcnn.program.ops.fixed_real import INTENSITY_DOWN

MOST = 1 << 14  # values of a mean whose doubled sum fits 32 bits


# --- numbers ------------------------------------------------------------------------------------------------------------


def whole(graph: Graph, value: int) -> str:
    return graph.number(value, np.int32)


def stored(graph: Graph, values: NDArray[Any], what: str) -> tuple[str, str]:
    """A parameter as two values, one times the other: in a byte where it is a multiple of a step, at most 127 of them, else in two or
    four. A matrix may have a step for each column."""
    wide = values.astype(np.int64)
    step = np.asarray(np.gcd.reduce(wide, axis=None)) if wide.any() else np.int64(1)
    if wide.ndim == 2 and np.abs(wide // step).max() > 127:
        steps = np.maximum(np.gcd.reduce(wide, axis=0), 1)
        if np.abs(wide // steps).max() <= 127:
            return graph.constant((wide // steps).astype(np.int8), what), _step(graph, steps)
    if np.abs(wide // step).max() <= 127:
        return graph.constant((wide // step).astype(np.int8), what), _step(graph, step)
    dtype = np.int16 if np.abs(wide).max() < -LOW else np.int32
    return graph.constant(wide.astype(dtype), what), _step(graph, np.int64(1))


def _step(graph: Graph, step: Any) -> str:
    kinds = (np.int8, np.int16, np.int32)
    return graph.constant(np.asarray(step, next(kind for kind in kinds if np.max(step) <= np.iinfo(kind).max)))


def parameter(graph: Graph, values: NDArray[Any], what: str) -> str:
    """As int32."""
    return graph.call("Stepped", *stored(graph, values, what))


def _wide(graph: Graph, x: str) -> str:
    return graph.node("Cast", x, to=TensorProto.INT32)


def saturated(graph: Graph, v: str) -> str:
    return graph.node("Clip", v, whole(graph, LOW), whole(graph, HIGH))


def down(graph: Graph, v: str, bits: NDArray[Any] | int) -> str:
    """v >> bits, rounded: bits of all values, or of each channel."""
    given = np.unique(np.asarray(bits, np.int64))
    bits = int(given[0]) if given.size == 1 else np.asarray(bits, np.int64)
    if isinstance(bits, int) and bits == 0:
        return v
    unit = np.left_shift(np.int64(1), bits)
    half, unit = ((graph.constant(np.asarray(n, np.int32))) for n in (unit >> 1, unit))
    return graph.call("Floor", graph.node("Add", v, half), unit)


def shifted(graph: Graph, v: str, up: int) -> str:
    if up == 0:
        return v
    return saturated(graph, graph.node("Mul", v, whole(graph, 1 << up)) if up > 0 else down(graph, v, -up))


def mean(graph: Graph, total: str, count: NDArray[Any] | int, dtype: type = np.int32) -> str:
    """The nearest whole number, halves up: floor((2 total + count) / (2 count))."""
    twice = graph.node("Add", graph.node("Add", total, total), graph.constant(np.asarray(count, dtype)))
    return graph.call("Floor", twice, graph.constant(np.asarray(2 * np.asarray(count, dtype), dtype)))


def _countable(count: int) -> int:
    if count > MOST:
        raise UserError(f"is a mean of {count:,} values; --to onnx adds up {MOST:,} in 32 bits")
    return count


# --- ops ----------------------------------------------------------------------------------------------------------------


def _input(graph: Graph, op: ops.FixedInput) -> str:
    scale, offset = graph.constant(op.scale, "scale"), graph.constant(op.offset, "offset")
    x = graph.node("Add", graph.node("Mul", _wide(graph, "image"), scale), offset)
    x = saturated(graph, down(graph, x, op.down))
    if op.intensity is None:
        return x
    parts = graph.node("Mul", x, parameter(graph, op.intensity, "intensity"))
    total = graph.node("ReduceSum", parts, graph.shape_of([3]), keepdims=1)
    return graph.node("Concat", x, saturated(graph, down(graph, total, INTENSITY_DOWN)), axis=3)


def _binary_conv(graph: Graph, op: ops.FixedBinaryConv) -> str:
    x = graph.replicated(op.source, op.reads)
    v = ""
    for p, branch in enumerate(op.branches):
        term = _branch(graph, op, branch, x, field_of(op, p))
        v = graph.call("Plus", v, term) if v else term
    return graph.finish(v, op.after, op.branches[0].scale.size)


def _branch(graph: Graph, op: ops.FixedBinaryConv, branch: ops.FixedBranch, x: str, field: Callable[[str], str]) -> str:
    window = branch_window(op, branch)
    # |dot << up| is below 2^15, so the scale may be shifted in its place
    above, scale, offset = (
        stored(graph, values, field(name))
        for name, values in (
            ("above", branch.above),
            ("scale", branch.scale.astype(np.int64) << branch.up),
            ("offset", branch.offset),
        )
    )
    if window.pointwise and op.groups == 1:
        w = signs(branch, op.reads)[:, 0].T
        if graph.weights == "bits" and w.shape[1] % 8 == 0:
            stored_bits, _ = graph.bits(w, field("weight"))
            return graph.call("BitBranch", x, *above, stored_bits, graph.sign_table(), *scale, *offset)
        return graph.call("Branch", x, *above, graph.signs(w, field("weight")), *scale, *offset)
    bits = graph.node("Greater", x, graph.call("Stepped", *above))
    dot = dots(graph, op, branch, graph.node("Where", bits, *graph.sign_numbers()[:2]), window, field)
    return graph.call("Plus", graph.call("Product", dot, graph.call("Stepped", *scale)), graph.call("Stepped", *offset))


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
    filters, total = parameter(graph, weight, "weight"), graph.constant(op.offset, "offset")
    for tap, view in enumerate(_views(graph, x, op.window, (*graph.shapes[op.source][:2], op.reads))):
        total = graph.node(
            "Add", total, graph.node("MatMul", view, graph.node("Gather", filters, graph.number(tap, np.int64)))
        )
    return graph.finish(saturated(graph, down(graph, total, op.down)), op.after, o)


def _depthwise(graph: Graph, op: ops.FixedDepthwise) -> str:
    x = graph.replicated(op.source, op.reads)
    weight, v = stored(graph, op.weight.reshape(-1, op.reads), "weight"), stored(graph, op.offset, "offset")
    if op.window.kernel == (3, 3) and op.window.dilation == (1, 1):
        padded = graph.pad(x, op.window.padding)
        made = graph.call("Filter", padded, *weight, *v, graph.shape_of(op.window.stride))
        return graph.finish(made, op.after, op.reads)
    filters, made = graph.call("Stepped", *weight), graph.call("Stepped", *v)
    for tap, view in enumerate(_views(graph, x, op.window, graph.shapes[op.source])):
        made = graph.call("Tap", made, view, filters, graph.number(tap, np.int64))
    return graph.finish(made, op.after, op.reads)


def _avg_pool(graph: Graph, op: ops.FixedAvgPool) -> str:
    shape = graph.shapes[op.source]
    total, *others = _views(graph, graph.made[op.source], op.window, shape)
    for view in others:
        total = graph.node("Add", total, view)
    _countable(op.window.taps)
    return mean(graph, total, op.window.inside(*shape[:2]).astype(np.int32) if op.inside else op.window.taps)


def _max_pool(graph: Graph, op: ops.MaxPool, x: str) -> str:
    """ONNX has it for floats and bytes: a number of 16 bits is a float."""
    least = graph.number(LOW)
    apart = graph.pad(graph.node("Cast", x, to=TensorProto.FLOAT), op.window.padding, least)
    made = graph.windowed("MaxPool", apart, window=replace(op.window, padding=(0, 0, 0, 0)), outside=None)
    return _wide(graph, made)


def _global_avg_pool(graph: Graph, op: ops.FixedGlobalAvgPool) -> str:
    height, width, _ = graph.shapes[op.source]
    long = graph.node("Cast", graph.made[op.source], to=TensorProto.INT64)
    total = graph.node("ReduceSum", long, graph.shape_of([1, 2]), keepdims=1)
    total = graph.node("Mul", total, graph.number(1 << op.up, np.int64))
    made = mean(graph, total, height * width, np.int64)
    return _wide(graph, graph.node("Clip", made, graph.number(LOW, np.int64), graph.number(HIGH, np.int64)))


def _channel_avg(graph: Graph, op: ops.FixedChannelAvg) -> str:
    have = graph.shapes[op.source][2]
    members = (np.arange(have)[:, None] % op.channels == np.arange(op.channels)).astype(np.int8)
    _countable(int(members.sum(axis=0).max()))
    total = graph.node("MatMul", graph.made[op.source], parameter(graph, members, "members"))
    return mean(graph, total, members.sum(axis=0, dtype=np.int32))


def _abs_mean(graph: Graph, op: ops.FixedAbsMean) -> str:
    magnitudes = graph.node("Abs", graph.made[op.source])
    total = graph.node("ReduceSum", magnitudes, graph.shape_of([3]), keepdims=1)
    return saturated(graph, mean(graph, total, _countable(graph.shapes[op.source][2])))


def _constant(graph: Graph, op: ops.FixedConstant) -> str:
    images = graph.node("Shape", "image", start=0, end=1)
    shape = graph.node("Concat", images, graph.shape_of(op.value.shape), axis=0)
    return graph.node("Expand", parameter(graph, op.value, "value"), shape)


OPS: dict[type[ops.Op], Callable[[Graph, Any], str]] = {
    **moving_ops(),
    ops.FixedInput: _input,
    ops.FixedBinaryConv: _binary_conv,
    ops.FixedConv: _conv,
    ops.FixedDepthwise: _depthwise,
    ops.FixedAvgPool: _avg_pool,
    ops.MaxPool: lambda graph, op: _max_pool(graph, op, graph.made[op.source]),
    ops.FixedGlobalAvgPool: _global_avg_pool,
    ops.FixedChannelAvg: _channel_avg,
    ops.FixedAbsMean: _abs_mean,
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
    if ending.up:
        v = graph.node("Max", v, whole(graph, -(-LOW >> ending.up)))
    return graph.call("Bent", v, *stored(graph, ending.bend.astype(np.int64) << ending.up, "bend"))


def _bound(graph: Graph, ending: ops.Bound, v: str, channels: int) -> str:
    return graph.call("Bounded", v, *stored(graph, ending.limit, "limit"))


def _sign(graph: Graph, ending: ops.FixedSign, v: str, channels: int) -> str:
    bits = graph.node("Greater", v, parameter(graph, ending.above, "after.above"))
    return graph.node("Where", bits, whole(graph, ending.one), whole(graph, -ending.one))


def _table(graph: Graph, ending: ops.Table, v: str, channels: int) -> str:
    half, unit = 128 << ending.down, whole(graph, 1 << ending.down)
    w = graph.node("Clip", v, whole(graph, -half), whole(graph, half - 1))
    line = graph.call("Floor", w, unit)
    rest = graph.node("Sub", w, graph.node("Mul", line, unit))
    at = graph.node("Add", line, whole(graph, 128))
    values = parameter(graph, ending.values, "table")
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
    ops.Shift: lambda graph, ending, v, channels: shifted(graph, v, ending.up),
    ops.FixedSign: _sign,
    ops.Table: _table,
}
