"""What each op and ending becomes in ONNX: the tables `OPS` and `ENDINGS`, a function each.

Bits are 0 and 1 here, since a comparison yields them; the derivation from signs stands in `_branch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from bcnn.export.onnx_graph import Graph
from bcnn.errors import UserError
from bcnn.program import ops
from bcnn.program.bits import unpack_bits
from bcnn.program.ops import Floats, Window


def signs(branch: ops.Branch, channels: int) -> NDArray[np.int8]:
    """The weights of a branch, O,T,K/G, as -1 and +1."""
    return unpack_bits(branch.weight, channels).astype(np.int8) * 2 - 1


def _input(graph: Graph, op: ops.Input) -> str:
    """Normalisation and intensity are one 1x1 convolution: row c is scale_c at c, the fourth i_c scale_c."""
    weight, bias = input_rows(op)
    x = graph.node("Cast", "image", to=TensorProto.FLOAT)
    if graph.nhwc:
        dot = graph.node("MatMul", x, graph.constant(weight.T))
        return graph.node("Add", dot, graph.constant(bias))
    x = graph.node("Transpose", x, perm=[0, 3, 1, 2])
    return graph.node("Conv", x, graph.constant(weight[:, :, None, None]), graph.constant(bias))


def input_rows(op: ops.Input) -> tuple[Floats, Floats]:
    weight, bias = np.diag(op.scale), op.offset
    if op.intensity is not None:
        weight = np.vstack([weight, op.intensity * op.scale])
        bias = np.append(bias, np.float32(op.intensity @ op.offset))
    return weight, bias


def _binary_conv(graph: Graph, op: ops.BinaryConv) -> str:
    x = graph.replicated(op.source, op.reads)
    first, *others = (_branch(graph, op, branch, x) for branch in op.branches)
    v = first
    for term in others:
        v = graph.node("Add", v, term)
    return graph.finish(v, op.after, op.branches[0].scale.size)


def _branch(graph: Graph, op: ops.BinaryConv, branch: ops.Branch, x: str) -> str:
    """scale * n + offset from a product of bits b in {0, 1} with weights w in {-1, +1}:

    1. dot = sum (2 b - 1) w = 2 sum b w - sum w over the taps on the map, and n = (N - dot) / 2 (ops.Branch).
    2. scale * n + offset = -scale * sum b w + (offset + scale * (N + sum w) / 2).
    3. The operators here take b = 0 outside the map. Where `pad` says otherwise, sum w is over all taps, and
       -scale * sum pad w over those outside is missing: a constant, too.
    """
    w = signs(branch, op.reads // op.groups)
    dy, dx = branch.shift
    top, left, bottom, right = op.window.padding
    window = replace(op.window, padding=(top - dy, left - dx, bottom + dy, right + dx))
    offset = _constant_part(w, op, branch, window, *graph.shapes[op.source][:2])
    scale = -branch.scale
    bits = graph.node("GreaterOrEqual", x, graph.channelwise(branch.threshold))
    if graph.nhwc:
        b = graph.node("Cast", bits, to=TensorProto.UINT8)
        if window.pointwise and op.groups == 1:
            operands = b, graph.constant(w[:, 0].T)
            if graph.contrib:
                factors = graph.number(1), graph.constant(scale), "", "", graph.constant(offset)
                return graph.node("MatMulIntegerToFloat", *operands, *factors, domain="com.microsoft")
            dot = graph.node("MatMulInteger", *operands)
        else:
            dot = graph.windowed("ConvInteger", b, graph.constant(_filters(w, window)), window=window, group=op.groups)
        dot = graph.node("Cast", dot, to=TensorProto.FLOAT)
    else:
        weight = graph.constant(_filters(w, window).astype(np.float32))
        dot = graph.windowed(
            "Conv", graph.node("Cast", bits, to=TensorProto.FLOAT), weight, window=window, group=op.groups
        )
    return graph.node("Add", graph.node("Mul", dot, graph.channelwise(scale)), graph.channelwise(offset))


def _filters(w: NDArray[Any], window: Window) -> NDArray[Any]:
    """O,T,C -> O,C,kernel height,kernel width."""
    return w.reshape(len(w), *window.kernel, -1).transpose(0, 3, 1, 2)


def _constant_part(
    w: NDArray[np.int8], op: ops.BinaryConv, branch: ops.Branch, window: Window, height: int, width: int
) -> Floats:
    """Steps 2 and 3 of `_branch`: [O], or [H',W',O] where it depends on the taps that are on the map."""
    scale = branch.scale.astype(np.float64)
    on_map = np.stack(list(window.views(np.ones((height, width, 1), np.float32), 0.0)), axis=-1)[:, :, 0]  # H',W',T
    sums = w.sum(axis=-1, dtype=np.float64)  # O,T
    part: NDArray[np.float64] = branch.offset + scale * (op.bits + sums.sum(1)) / 2
    if not on_map.all() and branch.pad is None:
        part = part - scale * ((1 - on_map) @ sums.T) / 2
    elif not on_map.all() and branch.pad is not None:
        pad = unpack_bits(branch.pad, op.reads).reshape(op.groups, 1, 1, -1)
        padded = (w.reshape(op.groups, -1, *w.shape[1:]) * pad).sum(axis=-1, dtype=np.float64).reshape(sums.shape)
        part = part - scale * ((1 - on_map) @ padded.T)
    return part.astype(np.float32)


def _conv(graph: Graph, op: ops.Conv) -> str:
    x = graph.replicated(op.source, op.reads)
    parameters = graph.constant(op.weight.transpose(3, 2, 0, 1)), graph.constant(op.offset)
    v = graph.windowed("Conv", x, *parameters, window=op.window, group=op.groups)
    return graph.finish(v, op.after, op.offset.size)


def _linear(graph: Graph, op: ops.Linear) -> str:
    flat = graph.node("Reshape", graph.made[op.source], graph.constant(np.array([1, -1])))
    v = graph.node("Gemm", flat, graph.constant(op.weight), graph.constant(op.bias))
    v = graph.node("Reshape", v, graph.constant(np.array([1, 1, 1, -1] if graph.nhwc else [1, -1, 1, 1])))
    return graph.finish(v, op.after, op.bias.size)


def _avg_pool(graph: Graph, op: ops.AvgPool) -> str:
    if op.window.dilation != (1, 1):
        raise UserError("an AvgPool with dilation has no ONNX form here yet")
    x = graph.made[op.source]
    return graph.windowed("AveragePool", x, window=op.window, zeros=not op.inside, count_include_pad=int(not op.inside))


def _max_pool(graph: Graph, op: ops.MaxPool) -> str:
    return graph.windowed("MaxPool", graph.made[op.source], window=op.window, zeros=False)


def _global_avg_pool(graph: Graph, op: ops.GlobalAvgPool) -> str:
    return graph.node("ReduceMean", graph.made[op.source], axes=[1, 2] if graph.nhwc else [2, 3], keepdims=1)


def _abs_mean(graph: Graph, op: ops.AbsMean) -> str:
    magnitudes = graph.node("Abs", graph.made[op.source])
    return graph.node("ReduceMean", magnitudes, axes=[3] if graph.nhwc else [1], keepdims=1)


def _channel_avg(graph: Graph, op: ops.ChannelAvg) -> str:
    """A 1x1 convolution: row j has 1 / (members of its group) where c mod `channels` = j."""
    weight = channel_means(graph.shapes[op.source][2], op.channels)
    if graph.nhwc:
        return graph.node("MatMul", graph.made[op.source], graph.constant(weight.T))
    return graph.node("Conv", graph.made[op.source], graph.constant(weight[:, :, None, None]))


def channel_means(have: int, want: int) -> Floats:
    members: Floats = (np.arange(have) % want == np.arange(want)[:, None]).astype(np.float32)
    means: Floats = members / members.sum(axis=1, keepdims=True)
    return means


def _pointwise(graph: Graph, op: ops.Pointwise) -> str:
    return graph.finish(graph.replicated(op.source, op.reads), op.after, op.reads)


def _constant(graph: Graph, op: ops.Constant) -> str:
    value = op.value if graph.nhwc else op.value.transpose(2, 0, 1)
    return graph.node("Identity", graph.constant(value[None]))


def _concat(graph: Graph, op: ops.Concat) -> str:
    return graph.node("Concat", *(graph.made[source] for source in op.sources), axis=graph.channels)


def _select(graph: Graph, op: ops.Select) -> str:
    return graph.node("Gather", graph.made[op.source], graph.constant(op.index), axis=graph.channels)


def _upsample(graph: Graph, op: ops.Upsample) -> str:
    scales = graph.constant(np.array([1, 1, *op.factor], np.float32))
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return graph.spatial("Resize", graph.made[op.source], "", scales, **how)


# --- endings ----------------------------------------------------------------------------------------------------------


def _add(graph: Graph, ending: ops.Add, v: str, channels: int) -> str:
    other = graph.replicated(ending.source, ending.reads)
    if ending.reads < channels:  # zeros for the channels that stay
        before, behind = [0] * 4, [0] * 4
        before[graph.channels], behind[graph.channels] = ending.first, channels - ending.first - ending.reads
        other = graph.node("Pad", other, graph.constant(np.array(before + behind)))
    return graph.node("Add", other, v)


def _affine(graph: Graph, ending: ops.Affine, v: str, channels: int) -> str:
    if ending.scale is not None:
        v = graph.node("Mul", v, graph.channelwise(ending.scale))
    return v if ending.offset is None else graph.node("Add", v, graph.channelwise(ending.offset))


def _prelu(graph: Graph, ending: ops.PReLU, v: str, channels: int) -> str:
    slopes = graph.channelwise(ending.slope)
    # The same values in a third of the time of ONNX Runtime's PRelu: one term is 0, or, for slopes up to 1, the larger one counts.
    if ending.slope.max() > 1:
        below = graph.node("Mul", graph.node("Min", v, graph.number(0)), slopes)
        return graph.node("Add", graph.node("Relu", v), below)
    return graph.node("Max", v, graph.node("Mul", v, slopes))


def _sign(graph: Graph, ending: ops.Sign, v: str, channels: int) -> str:
    bits = graph.node("GreaterOrEqual", v, graph.channelwise(ending.threshold))
    return graph.node("Where", bits, graph.number(1), graph.number(-1))


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
    ops.Pointwise: _pointwise,
    ops.Constant: _constant,
    ops.Concat: _concat,
    ops.Select: _select,
    ops.Upsample: _upsample,
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
