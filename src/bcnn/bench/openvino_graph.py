"""Program -> OpenVINO model on its own BinaryConvolution (opset1): uint8 image 1,H,W,3 -> logits. Maps are NCHW.

Bits are made by a FakeQuantize of two levels, which its CPU plugin turns into packed bits. It is +1 for x > low; ours is
+1 for x >= threshold, so low is the float32 just below the threshold. Weights are one bit each, from the lowest bit of a
byte up, the stream of `bcnn.program.bits`. BinaryConvolution "xnor-popcount" then yields dot = N - 2 n.

One fusion of OpenVINO's is wrong (2026.4): a sum and then the signs of the next layer, where nothing else reads the map between. The
check before the timing finds it; the paper's network reads every such map twice.

What each op becomes stands in the tables `OPS` and `ENDINGS`; a network with another op is skipped with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import openvino
from numpy.typing import NDArray
from openvino import opset1, opset8

from bcnn.bench.rival import SkippedError
from bcnn.exports.onnx_ops import input_rows
from bcnn.program import ops
from bcnn.program.bits import unpack_bits
from bcnn.program.program import Program


def openvino_model(program: Program, maps: bool = False) -> Any:
    """The model; with `maps` every map of the program is an output after the logits, for checks."""
    graph = OpenVinoGraph(program)
    for op in program.ops:
        if type(op) not in OPS:
            raise SkippedError(f"{type(op).__name__} is not built for OpenVINO")
        graph.made.append(OPS[type(op)](graph, op))
    logits = opset8.reshape(graph.made[-1], np.array([1, -1]), False)
    outputs = [logits, *(graph.made if maps else [])]
    return openvino.Model([opset8.result(node) for node in outputs], [graph.image], "bcnn")


class OpenVinoGraph:
    """`made[i]` is the node that holds map i."""

    def __init__(self, program: Program) -> None:
        self.shapes = program.shapes
        height, width, _ = self.shapes[0]
        self.image = opset8.parameter([1, height, width, 3], openvino.Type.u8, "image")
        self.made: list[Any] = []

    def replicated(self, source: int, want: int) -> Any:
        """Channel k of the result is channel k mod C of map `source`."""
        x, have = self.made[source], self.shapes[source][2]
        if have == want:
            return x
        copies, rest = divmod(want, have)
        tail = [opset8.slice(x, np.array([0]), np.array([rest]), np.array([1]), np.array([1]))] if rest else []
        return opset8.concat([x] * copies + tail, 1)

    def finish(self, v: Any, after: tuple[ops.Ending, ...], channels: int) -> Any:
        for ending in after:
            if type(ending) not in ENDINGS or (isinstance(ending, ops.Add) and ending.reads != channels):
                raise SkippedError(f"an ending {type(ending).__name__} of this kind is not built for OpenVINO")
            v = ENDINGS[type(ending)](self, ending, v)
        return v


def _input(graph: OpenVinoGraph, op: ops.Input) -> Any:
    weight, bias = input_rows(op)
    x = opset8.transpose(opset8.convert(graph.image, "f32"), np.array([0, 3, 1, 2]))
    x = opset8.convolution(x, weight[:, :, None, None].copy(), [1, 1], [0, 0], [0, 0], [1, 1])
    return opset8.add(x, _channelwise(bias))


def _binary_conv(graph: OpenVinoGraph, op: ops.BinaryConv) -> Any:
    if op.groups != 1 or op.reads % 8 or min(op.window.padding) < 0:
        raise SkippedError("its binary convolution has no groups, and is built for channel counts divisible by 8 only")
    x = graph.replicated(op.source, op.reads)
    first, *others = (_branch(op, branch, x) for branch in op.branches)
    v = first
    for term in others:
        v = opset8.add(v, term)
    return graph.finish(v, op.after, op.branches[0].scale.size)


def _branch(op: ops.BinaryConv, branch: ops.Branch, x: Any) -> Any:
    """scale * n + offset with n = (N - dot) / 2, so -scale / 2 * dot + (offset + scale * N / 2)."""
    if branch.shift != (0, 0):
        raise SkippedError("its binary convolution does not read shifted pixels")
    low = _channelwise(np.nextafter(branch.threshold, np.float32(-np.inf)))
    zero, one = (np.full((1, 1, 1, 1), value, np.float32) for value in (0, 1))
    bits = opset8.fake_quantize(x, low, low, zero, one, 2)
    o = len(branch.weight)
    by_channel = unpack_bits(branch.weight, op.reads).transpose(0, 2, 1)  # O,T,K -> O,K,T
    stream = np.packbits(by_channel.reshape(-1), bitorder="little")
    tensor = openvino.Tensor(stream, openvino.Shape([o, op.reads, *op.window.kernel]), openvino.Type.u1)
    weight = openvino.op.Constant(tensor, shared_memory=False)  # the tensor borrows `stream`
    dot = opset1.binary_convolution(bits, weight, *_window(op.window), "xnor-popcount", _pad_value(op, branch))
    offset = (branch.offset + branch.scale.astype(np.float64) * op.bits / 2).astype(np.float32)
    return opset8.add(opset8.multiply(dot, _channelwise(branch.scale * np.float32(-0.5))), _channelwise(offset))


def _pad_value(op: ops.BinaryConv, branch: ops.Branch) -> float:
    """0 contributes nothing, +1 and -1 are signs; it is one for all channels."""
    if branch.pad is None:
        return 0.0
    pad = unpack_bits(branch.pad, op.reads)
    if pad.any() and not pad.all():
        raise SkippedError("its binary convolution pads all channels with one value")
    return 1.0 if pad.all() else -1.0


def _window(window: ops.Window) -> tuple[list[int], ...]:
    """Strides, pads at the begin and end, dilations."""
    return list(window.stride), list(window.padding[:2]), list(window.padding[2:]), list(window.dilation)


def _conv(graph: OpenVinoGraph, op: ops.Conv) -> Any:
    x = graph.replicated(op.source, op.reads)
    filters = op.weight.transpose(3, 2, 0, 1)  # -> O,K/G,kernel
    grouped = np.ascontiguousarray(filters.reshape(op.groups, -1, *filters.shape[1:]))
    v = opset8.group_convolution(x, grouped, *_window(op.window))
    return graph.finish(opset8.add(v, _channelwise(op.offset)), op.after, op.offset.size)


def _avg_pool(graph: OpenVinoGraph, op: ops.AvgPool) -> Any:
    if op.window.dilation != (1, 1) or min(op.window.padding) < 0:
        raise SkippedError("average pooling with dilation or cropping is not built for OpenVINO")
    strides, begin, end, _ = _window(op.window)
    return opset1.avg_pool(graph.made[op.source], strides, begin, end, list(op.window.kernel), exclude_pad=op.inside)


def _max_pool(graph: OpenVinoGraph, op: ops.MaxPool) -> Any:
    if op.window.dilation != (1, 1) or min(op.window.padding) < 0:
        raise SkippedError("maximum pooling with dilation or cropping is not built for OpenVINO")
    strides, begin, end, _ = _window(op.window)
    return opset1.max_pool(graph.made[op.source], strides, begin, end, list(op.window.kernel))


def _global_avg_pool(graph: OpenVinoGraph, op: ops.GlobalAvgPool) -> Any:
    return opset8.reduce_mean(graph.made[op.source], np.array([2, 3]), keep_dims=True)


def _linear(graph: OpenVinoGraph, op: ops.Linear) -> Any:
    flat = opset8.reshape(graph.made[op.source], np.array([1, -1]), False)
    v = opset8.add(opset8.matmul(flat, op.weight, False, False), op.bias[None])
    return graph.finish(opset8.reshape(v, np.array([1, -1, 1, 1]), False), op.after, op.bias.size)


def _pointwise(graph: OpenVinoGraph, op: ops.Pointwise) -> Any:
    return graph.finish(graph.replicated(op.source, op.reads), op.after, op.reads)


def _concat(graph: OpenVinoGraph, op: ops.Concat) -> Any:
    return opset8.concat([graph.made[source] for source in op.sources], 1)


def _select(graph: OpenVinoGraph, op: ops.Select) -> Any:
    return opset8.gather(graph.made[op.source], op.index, np.array(1))


def _affine(graph: OpenVinoGraph, ending: ops.Affine, v: Any) -> Any:
    if ending.scale is not None:
        v = opset8.multiply(v, _channelwise(ending.scale))
    return v if ending.offset is None else opset8.add(v, _channelwise(ending.offset))


def _channelwise(vector: ops.Floats) -> NDArray[np.float32]:
    return vector.reshape(1, -1, 1, 1)


OPS: dict[type[ops.Op], Callable[[OpenVinoGraph, Any], Any]] = {
    ops.Input: _input,
    ops.BinaryConv: _binary_conv,
    ops.Conv: _conv,
    ops.Linear: _linear,
    ops.AvgPool: _avg_pool,
    ops.MaxPool: _max_pool,
    ops.GlobalAvgPool: _global_avg_pool,
    ops.Pointwise: _pointwise,
    ops.Concat: _concat,
    ops.Select: _select,
}
ENDINGS: dict[type[ops.Ending], Callable[[OpenVinoGraph, Any, Any], Any]] = {
    ops.Add: lambda graph, ending, v: opset8.add(graph.replicated(ending.source, ending.reads), v),
    ops.Gate: lambda graph, ending, v: opset8.multiply(v, graph.made[ending.source]),
    ops.Affine: _affine,
    ops.PReLU: lambda graph, ending, v: opset8.prelu(v, ending.slope),
    ops.ReLU: lambda graph, ending, v: opset8.relu(v),
    ops.Clip: lambda graph, ending, v: opset8.clamp(v, *map(float, ending.limits)),
    ops.Sigmoid: lambda graph, ending, v: opset8.sigmoid(v),
}
