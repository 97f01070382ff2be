"""What each op and ending becomes in ONNX: the tables `OPS` and `ENDINGS`, a function each.

Every operator used is one float32 rounding a value, as in the program, with these exceptions, where a runtime chooses its own order
of additions or its own series: Conv, MatMul, AveragePool, ReduceMean, Sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from bcnn.exports.onnx_graph import Graph
from bcnn.program import ops
from bcnn.program.bits import unpack_bits
from bcnn.program.ops import Floats, Window


def signs(branch: ops.Branch | ops.FixedBranch, channels: int) -> NDArray[np.int8]:
    """The weights of a branch, O,T,K/G, as -1 and +1."""
    return unpack_bits(branch.weight, channels).astype(np.int8) * 2 - 1


def _input(graph: Graph, op: ops.Input) -> str:
    x = graph.node("Cast", "image", to=TensorProto.FLOAT)
    if not graph.nhwc:
        x = graph.node("Transpose", x, perm=[0, 3, 1, 2])
    x = graph.node("Mul", x, graph.channelwise(op.scale, "scale"))
    x = graph.node("Add", x, graph.channelwise(op.offset, "offset"))
    if op.intensity is None:
        return x
    parts = graph.node("Mul", x, graph.channelwise(op.intensity, "intensity"))
    r, g, b = graph.split(parts, 3, axis=graph.channels)
    return graph.node("Concat", x, graph.node("Add", graph.node("Add", r, g), b), axis=graph.channels)


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


def field_of(op: ops.BinaryConv | ops.FixedBinaryConv, branch: int) -> Callable[[str], str]:
    """What a field of a branch is called."""
    return (lambda field: field) if len(op.branches) == 1 else (lambda field: f"branch{branch}.{field}")


def branch_window(op: ops.BinaryConv | ops.FixedBinaryConv, branch: ops.Branch | ops.FixedBranch) -> Window:
    dy, dx = branch.shift
    top, left, bottom, right = op.window.padding
    return replace(op.window, padding=(top - dy, left - dx, bottom + dy, right + dx))


def _branch(graph: Graph, op: ops.BinaryConv, branch: ops.Branch, x: str, field: Callable[[str], str]) -> str:
    """scale * n + offset with n = (N - dot) / 2 (ops.Branch), from a product of signs:

    1. `dots` makes dot, exactly.
    2. (N - dot) * (scale / 2) + offset rounds as n * scale + offset does: N - dot is a whole number, and halving is exact, short of denormals.
    3. Where time counts more: dot * (-scale / 2) + (offset + scale N / 2), which runtimes fuse into the product.
    """
    window = branch_window(op, branch)
    half = branch.scale * np.float32(0.5)
    folded = (branch.offset + branch.scale.astype(np.float64) * op.bits / 2).astype(np.float32)
    threshold = graph.channelwise(branch.threshold, field("threshold"))
    if graph.weights == "qonnx":
        signed = graph.bipolar(graph.node("Sub", x, threshold))  # a difference is never rounded to another sign
    else:
        bits = graph.node("GreaterOrEqual", x, threshold)
        if graph.contrib and window.pointwise and op.groups == 1:
            w = signs(branch, op.reads)[:, 0]
            return _contrib_branch(graph, w, graph.node("Cast", bits, to=TensorProto.UINT8), half, folded)
        signed = graph.node("Where", bits, *graph.sign_numbers()[:2])
    dot = dots(graph, op, branch, signed, window, field)
    if graph.weights == "float":
        return _affine_of(graph, dot, -half, folded, field)
    if graph.nhwc:
        dot = graph.node("Cast", dot, to=TensorProto.FLOAT)
    left_over = graph.node("Sub", graph.number(op.bits), dot)
    return _affine_of(graph, left_over, half, branch.offset, field)


def dots(
    graph: Graph,
    op: ops.BinaryConv | ops.FixedBinaryConv,
    branch: ops.Branch | ops.FixedBranch,
    signed: str,
    window: Window,
    field: Callable[[str], str],
) -> str:
    """Sums of sign * sign. An integer product subtracts a zero point of 1, so that 2 stands for +1, 0 for -1, and 1 for a tap outside
    the map, which contributes nothing. In floats they are +1, -1 and 0. Where `pad` has bits, the map is padded with them before."""
    w = signs(branch, op.reads // op.groups)
    none = graph.sign_numbers()[2]
    if branch.pad is not None and max(window.padding) > 0:
        values = np.array([2, 0], np.uint8) if graph.nhwc else np.array([1, -1], np.float32)
        pad = values[1 - unpack_bits(branch.pad, op.reads)]
        signed = _padded(graph, signed, pad, window, graph.shapes[op.source])
        window = replace(window, padding=(0, 0, 0, 0))
    if window.pointwise and op.groups == 1 and graph.nhwc:
        return graph.node("MatMulInteger", signed, graph.signs(w[:, 0].T, field("weight")), none)
    filters = w.reshape(len(w), *window.kernel, -1).transpose(0, 3, 1, 2)  # O,T,C -> O,C,kernel height,kernel width
    operands = graph.signs(filters, field("weight")), *([none] if graph.nhwc else [])
    kind = "ConvInteger" if graph.nhwc else "Conv"
    return graph.windowed(kind, signed, *operands, window=window, outside=none, group=op.groups)


def _affine_of(graph: Graph, v: str, scale: Floats, offset: Floats, field: Callable[[str], str]) -> str:
    scaled = graph.node("Mul", v, graph.channelwise(scale, field("scale")))
    return graph.node("Add", scaled, graph.channelwise(offset, field("offset")))


def _contrib_branch(graph: Graph, w: NDArray[np.int8], bits: str, half: Floats, folded: Floats) -> str:
    """Step 3 with bits of 0 and 1, without a zero point: dot = 2 sum b w - sum w. One operator of ONNX Runtime's own."""
    bias = (folded + half.astype(np.float64) * w.sum(axis=1, dtype=np.float64)).astype(np.float32)
    factors = graph.number(1), graph.constant(-2 * half, "scale"), "", "", graph.constant(bias, "offset")
    operands = bits, graph.constant(w.T, "weight")
    return graph.node("MatMulIntegerToFloat", *operands, *factors, domain="com.microsoft")


def _padded(graph: Graph, x: str, pad: NDArray[Any], window: Window, shape: ops.Shape) -> str:
    """The map with a pixel of `pad`, a value for each channel, wherever the window leaves it."""
    if (pad == pad[0]).all():
        return graph.pad(x, window.padding, graph.constant(pad[0]))
    whole = Window((1, 1), (1, 1), window.padding)
    (inside,) = whole.views(np.ones((*shape[:2], 1), np.float32), 0.0)
    mask = graph.constant(inside > 0 if graph.nhwc else (inside > 0).transpose(2, 0, 1))
    values = graph.constant(pad if graph.nhwc else pad[:, None, None], "pad")
    return graph.node("Where", mask, graph.pad(x, window.padding, graph.constant(pad[0])), values)


def _conv(graph: Graph, op: ops.Conv) -> str:
    x = graph.replicated(op.source, op.reads)
    parameters = graph.constant(op.weight.transpose(3, 2, 0, 1), "weight"), graph.constant(op.offset, "offset")
    v = graph.windowed("Conv", x, *parameters, window=op.window, group=op.groups)
    return graph.finish(v, op.after, op.offset.size)


def _linear(graph: Graph, op: ops.Linear) -> str:
    v = graph.node("MatMul", graph.nhwc_map(op.source), graph.constant(op.weight, "weight"))
    v = graph.node("Add", v, graph.constant(op.bias, "bias"))
    return graph.finish(v if graph.nhwc else graph.node("Transpose", v, perm=[0, 3, 1, 2]), op.after, op.bias.size)


def _avg_pool(graph: Graph, op: ops.AvgPool) -> str:
    x = graph.made[op.source]
    # AveragePool has dilation since opset 19. Before: a convolution with ones as weights, then 1 / taps.
    if op.window.dilation != (1, 1) or _wide(op.window):
        height, width, channels = graph.shapes[op.source]
        ones = graph.constant(np.ones((channels, 1, *op.window.kernel), np.float32), "ones")
        total = graph.windowed("Conv", x, ones, window=op.window, group=channels)
        taps = op.window.inside(height, width) if op.inside else np.full((1, 1, 1), op.window.taps)
        share = (1 / taps.astype(np.float64)).astype(np.float32)
        return graph.node("Mul", total, graph.constant(share if graph.nhwc else share.transpose(2, 0, 1), "share"))
    outside = None if op.inside else ""
    return graph.windowed("AveragePool", x, window=op.window, outside=outside, count_include_pad=int(not op.inside))


def _max_pool(graph: Graph, op: ops.MaxPool) -> str:
    x, window = graph.made[op.source], op.window
    if _wide(window):
        x, window = graph.pad(x, window.padding, graph.number(-np.inf)), replace(window, padding=(0, 0, 0, 0))
    return graph.windowed("MaxPool", x, window=window, outside=None)


def _wide(window: Window) -> bool:
    """ONNX Runtime refuses a pool that is padded by its kernel or more."""
    return max(window.padding) >= min(window.kernel)


def _global_avg_pool(graph: Graph, op: ops.GlobalAvgPool) -> str:
    return graph.node("ReduceMean", graph.made[op.source], axes=[1, 2] if graph.nhwc else [2, 3], keepdims=1)


def _abs_mean(graph: Graph, op: ops.AbsMean) -> str:
    magnitudes = graph.node("Abs", graph.made[op.source])
    return graph.node("ReduceMean", magnitudes, axes=[3] if graph.nhwc else [1], keepdims=1)


def _channel_avg(graph: Graph, op: ops.ChannelAvg) -> str:
    """A 1x1 convolution: row j has 1 / (members of its group) where c mod `channels` = j."""
    weight = channel_means(graph.shapes[op.source][2], op.channels)
    if graph.nhwc:
        return graph.node("MatMul", graph.made[op.source], graph.constant(weight.T, "means"))
    return graph.node("Conv", graph.made[op.source], graph.constant(weight[:, :, None, None], "means"))


def channel_means(have: int, want: int) -> Floats:
    members: Floats = (np.arange(have) % want == np.arange(want)[:, None]).astype(np.float32)
    means: Floats = members / members.sum(axis=1, keepdims=True)
    return means


def _pointwise(graph: Graph, op: ops.Pointwise) -> str:
    return graph.finish(graph.replicated(op.source, op.reads), op.after, op.reads)


def _constant(graph: Graph, op: ops.Constant) -> str:
    value = op.value if graph.nhwc else op.value.transpose(2, 0, 1)
    images = graph.node("Shape", "image", start=0, end=1)
    shape = graph.node("Concat", images, graph.shape_of(value.shape), axis=0)
    return graph.node("Expand", graph.constant(value, "value"), shape)


def _concat(graph: Graph, op: ops.Concat) -> str:
    return graph.node("Concat", *(graph.made[source] for source in op.sources), axis=graph.channels)


def _select(graph: Graph, op: ops.Select) -> str:
    return graph.node("Gather", graph.made[op.source], graph.constant(op.index, "index"), axis=graph.channels)


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
    if graph.weights == "bits":
        return graph.node("PRelu", v, slopes)
    # The same values in a third of the time of ONNX Runtime's PRelu: one term is 0, or, for slopes up to 1, the larger one counts.
    if ending.slope.max() > 1:
        below = graph.node("Mul", graph.node("Min", v, graph.number(0)), slopes)
        return graph.node("Add", graph.node("Relu", v), below)
    return graph.node("Max", v, graph.node("Mul", v, slopes))


def _sign(graph: Graph, ending: ops.Sign, v: str, channels: int) -> str:
    bits = graph.node("GreaterOrEqual", v, graph.channelwise(ending.threshold, "after.threshold"))
    return graph.node("Where", bits, graph.number(1), graph.number(-1))


def moving_ops() -> dict[type[ops.Op], Callable[[Graph, Any], str]]:
    """Those that are the same for all numbers."""
    return {ops.Pointwise: _pointwise, ops.Concat: _concat, ops.Select: _select, ops.Upsample: _upsample}


OPS: dict[type[ops.Op], Callable[[Graph, Any], str]] = {
    ops.Input: _input,
    ops.BinaryConv: _binary_conv,
    ops.Conv: _conv,
    ops.Linear: _linear,
    ops.AvgPool: _avg_pool,
    ops.MaxPool: _max_pool,
    ops.GlobalAvgPool: _global_avg_pool,
    ops.AbsMean: _abs_mean,
    ops.ChannelAvg: _channel_avg,
    ops.Constant: _constant,
    **moving_ops(),
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
