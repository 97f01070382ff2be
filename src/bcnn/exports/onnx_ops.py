"""What each op and ending becomes in ONNX: the tables `OPS` and `ENDINGS`, a function each.

Every operator used is one float32 rounding a value, as in the program, with these exceptions, where a runtime chooses its own order
of additions or its own series: Conv, MatMul, AveragePool, ReduceMean, Sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from bcnn.exports.onnx_graph import BinaryOp, Field, Graph, branch_window
from bcnn.program import ops
from bcnn.program.ops import Floats, Window
from bcnn.program.ops.arithmetic import LOW


def _input(graph: Graph, op: ops.Input) -> str:
    x = graph.node("Cast", "image", to=TensorProto.FLOAT)
    x = graph.from_nhwc(x)
    x = graph.node("Mul", x, graph.channelwise(op.scale, "scale"))
    x = graph.node("Add", x, graph.channelwise(op.offset, "offset"))
    if op.intensity is None:
        return x
    parts = graph.node("Mul", x, graph.channelwise(op.intensity, "intensity"))
    r, g, b = graph.split(parts, 3, axis=graph.CHANNELS)
    return graph.node("Concat", x, graph.node("Add", graph.node("Add", r, g), b), axis=graph.CHANNELS)


def input_rows(op: ops.Input) -> tuple[Floats, Floats]:
    """Normalisation and intensity as one 1x1 convolution: row c is scale_c at c, the fourth i_c scale_c."""
    weight, bias = np.diag(op.scale), op.offset
    if op.intensity is not None:
        weight = np.vstack([weight, op.intensity * op.scale])
        bias = np.append(bias, np.float32(op.intensity @ op.offset))
    return weight, bias


def _binary_conv(graph: Graph, op: ops.BinaryConv) -> str:
    x = graph.replicated(op.source, op.reads)
    first, *others = (_branch(graph, op, branch, x, field_of(op, p)) for p, branch in enumerate(op.branches))
    v = first
    for term in others:
        v = graph.node("Add", v, term)
    return graph.finish(v, op.after, op.branches[0].scale.size)


def field_of(op: BinaryOp, branch: int) -> Field:
    """What a field of a branch is called."""
    return (lambda field: field) if len(op.branches) == 1 else (lambda field: f"branch{branch}.{field}")


def _branch(graph: Graph, op: ops.BinaryConv, branch: ops.Branch, x: str, field: Field) -> str:
    threshold = graph.channelwise(branch.threshold, field("threshold"))
    return graph.branch(op, branch, x, threshold, branch_window(op, branch), field)


def _conv(graph: Graph, op: ops.Conv) -> str:
    x = graph.replicated(op.source, op.reads)
    parameters = graph.constant(op.weight.transpose(3, 2, 0, 1), "weight"), graph.constant(op.offset, "offset")
    v = graph.windowed("Conv", x, *parameters, window=op.window, group=op.groups)
    return graph.finish(v, op.after, op.offset.size)


def _linear(graph: Graph, op: ops.Linear) -> str:
    v = graph.node("MatMul", graph.nhwc_map(op.source), graph.constant(op.weight, "weight"))
    v = graph.node("Add", v, graph.constant(op.bias, "bias"))
    return graph.finish(graph.from_nhwc(v), op.after, op.bias.size)


def _avg_pool(graph: Graph, op: ops.AvgPool) -> str:
    x = graph.made[op.source]
    # AveragePool has dilation since opset 19. Before: a convolution with ones as weights, then 1 / taps.
    if op.window.dilation != (1, 1) or _wide(op.window):
        height, width, channels = graph.shapes[op.source]
        ones = graph.constant(np.ones((channels, 1, *op.window.kernel), np.float32), "ones")
        total = graph.windowed("Conv", x, ones, window=op.window, group=channels)
        taps = op.window.inside(height, width) if op.inside else np.full((1, 1, 1), op.window.taps)
        share = (1 / taps.astype(np.float64)).astype(np.float32)
        return graph.node("Mul", total, graph.constant(graph.placed(share), "share"))
    outside = None if op.inside else ""
    return graph.windowed("AveragePool", x, window=op.window, outside=outside, count_include_pad=int(not op.inside))


def _max_pool(graph: Graph, op: ops.MaxPool) -> str:
    """ONNX has it for floats and bytes: a number of 16 bits is a float meanwhile."""
    x, window = graph.made[op.source], op.window
    if graph.integers or _wide(window):
        least = graph.number(LOW if graph.integers else -np.inf)
        x = graph.node("Cast", x, to=TensorProto.FLOAT) if graph.integers else x
        x, window = graph.pad(x, window.padding, least), replace(window, padding=(0, 0, 0, 0))
    made = graph.windowed("MaxPool", x, window=window, outside=None)
    return graph.node("Cast", made, to=TensorProto.INT32) if graph.integers else made


def _wide(window: Window) -> bool:
    """ONNX Runtime refuses a pool that is padded by its kernel or more."""
    return max(window.padding) >= min(window.kernel)


def _global_avg_pool(graph: Graph, op: ops.GlobalAvgPool) -> str:
    return graph.node("ReduceMean", graph.made[op.source], axes=graph.SPACE, keepdims=1)


def _abs_mean(graph: Graph, op: ops.AbsMean) -> str:
    magnitudes = graph.node("Abs", graph.made[op.source])
    return graph.node("ReduceMean", magnitudes, axes=[graph.CHANNELS], keepdims=1)


def _channel_avg(graph: Graph, op: ops.ChannelAvg) -> str:
    """A 1x1 convolution: row j has 1 / (members of its group) where c mod `channels` = j."""
    weight = channel_means(graph.shapes[op.source][2], op.channels)
    return graph.mixed(graph.made[op.source], weight, "means")


def channel_means(have: int, want: int) -> Floats:
    members: Floats = (np.arange(have) % want == np.arange(want)[:, None]).astype(np.float32)
    means: Floats = members / members.sum(axis=1, keepdims=True)
    return means


def _pointwise(graph: Graph, op: ops.Pointwise) -> str:
    return graph.finish(graph.replicated(op.source, op.reads), op.after, op.reads)


def _constant(graph: Graph, op: ops.Constant) -> str:
    value = graph.placed(op.value)
    shape = graph.for_all_images(value.shape)
    return graph.node("Expand", graph.constant(value, "value"), shape)


def _concat(graph: Graph, op: ops.Concat) -> str:
    return graph.node("Concat", *(graph.made[source] for source in op.sources), axis=graph.CHANNELS)


def _select(graph: Graph, op: ops.Select) -> str:
    return graph.node("Gather", graph.made[op.source], graph.constant(op.index, "index"), axis=graph.CHANNELS)


def _upsample(graph: Graph, op: ops.Upsample) -> str:
    scales = graph.constant(np.array([1, 1, *op.factor], np.float32))
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return graph.spatial("Resize", graph.made[op.source], "", scales, **how)


# --- endings ----------------------------------------------------------------------------------------------------------


def _add(graph: Graph, ending: ops.Add, v: str, channels: int) -> str:
    other = graph.replicated(ending.source, ending.reads)
    return graph.node("Add", graph.among(other, ending.first, ending.reads, channels), v)


def _affine(graph: Graph, ending: ops.Affine, v: str, channels: int) -> str:
    if ending.scale is not None:
        v = graph.node("Mul", v, graph.channelwise(ending.scale, "after.scale"))
    return v if ending.offset is None else graph.node("Add", v, graph.channelwise(ending.offset, "after.offset"))


def _prelu(graph: Graph, ending: ops.PReLU, v: str, channels: int) -> str:
    slopes = graph.channelwise(ending.slope, "slope")
    return graph.prelu(v, slopes, bool(ending.slope.max() > 1))


def _sign(graph: Graph, ending: ops.Sign, v: str, channels: int) -> str:
    bits = graph.node("GreaterOrEqual", v, graph.channelwise(ending.threshold, "after.threshold"))
    return graph.node("Where", bits, graph.number(1), graph.number(-1))


# those of both numbers
BOTH: dict[type[ops.Op], Callable[[Graph, Any], str]] = {
    ops.MaxPool: _max_pool,
    ops.Pointwise: _pointwise,
    ops.Concat: _concat,
    ops.Select: _select,
    ops.Upsample: _upsample,
}
OPS: dict[type[ops.Op], Callable[[Graph, Any], str]] = {
    ops.Input: _input,
    ops.BinaryConv: _binary_conv,
    ops.Conv: _conv,
    ops.Linear: _linear,
    ops.AvgPool: _avg_pool,
    ops.GlobalAvgPool: _global_avg_pool,
    ops.AbsMean: _abs_mean,
    ops.ChannelAvg: _channel_avg,
    ops.Constant: _constant,
    **BOTH,
}
ENDINGS: dict[type[ops.Ending], Callable[[Graph, Any, str, int], str]] = {
    ops.Add: _add,
    ops.Gate: lambda graph, ending, v, channels: graph.node("Mul", v, graph.made[ending.source]),
    ops.Affine: _affine,
    ops.PReLU: _prelu,
    ops.ReLU: lambda graph, ending, v, channels: graph.node("Relu", v),
    ops.Clip: lambda graph, ending, v, channels: graph.node("Clip", v, *map(graph.number, ending.limits)),
    ops.Sign: _sign,
    ops.Sigmoid: lambda graph, ending, v, channels: graph.node("Sigmoid", v),
}
