"""Program -> OpenVINO model on its own BinaryConvolution (opset1): uint8 image 1,H,W,3 -> logits. Maps are NCHW.

Bits are made by a FakeQuantize of two levels, which its CPU plugin turns into packed bits. It is +1 for x > low; ours is
+1 for x >= threshold, so low is the float32 just below the threshold. Weights are one bit each, from the lowest bit of a
byte up, the stream of `bcnn.program.bits`. BinaryConvolution "xnor-popcount" then yields dot = K - 2 n.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino
from numpy.typing import NDArray
from openvino import opset1, opset8

from bcnn.bench.rival import SkippedError
from bcnn.program import program as p
from bcnn.program.bits import to_stream


def openvino_model(program: p.Program, maps: bool = False) -> Any:
    """The model; with `maps` every map of the program is an output after the logits, for checks."""
    height, width, _ = program.shapes[0]
    image = opset8.parameter([1, height, width, 3], openvino.Type.u8, "image")
    made: list[Any] = []
    for op in program.ops:
        made.append(_input(op, image) if isinstance(op, p.Input) else _op(program, op, made))
    logits = opset8.reshape(made[-1], np.array([1, -1]), False)
    outputs = [logits, *(made if maps else [])]
    return openvino.Model([opset8.result(node) for node in outputs], [image], "bcnn")


def _input(op: p.Input, image: Any) -> Any:
    """Normalisation and intensity are one 1x1 convolution: row c is scale_c at c, the fourth i_c scale_c."""
    weight, bias = np.diag(op.scale), op.offset
    if op.intensity is not None:
        weight = np.vstack([weight, op.intensity * op.scale])
        bias = np.append(bias, np.float32(op.intensity @ op.offset))
    x = opset8.transpose(opset8.convert(image, "f32"), np.array([0, 3, 1, 2]))
    x = opset8.convolution(x, weight[:, :, None, None].copy(), [1, 1], [0, 0], [0, 0], [1, 1])
    return opset8.add(x, _channelwise(bias))


def _op(program: p.Program, op: Any, made: list[Any]) -> Any:
    x, channels = made[op.source], program.shapes[op.source][2]
    if isinstance(op, p.BinaryConv):
        x = _replicate(x, channels, op.branches[0].threshold.size)
        terms = [x] if op.identity else []
        terms += [_branch(x, branch) for branch in op.branches]
        v = terms[0]
        for term in terms[1:]:
            v = opset8.add(v, term)
        if not op.prelu_after_add:
            v = _prelu(v, op.slope)
        if op.add is not None:
            v = opset8.add(_replicate(made[op.add], program.shapes[op.add][2], op.branches[0].scale.size), v)
        return _prelu(v, op.slope) if op.prelu_after_add else v
    if isinstance(op, p.DepthwiseConv):
        x = _replicate(x, channels, op.offset.size)
        weight = op.weight.transpose(2, 0, 1)[:, None, None].copy()  # 3,3,K -> K,1,1,3,3: a group per channel
        v = opset8.group_convolution(x, weight, [op.stride] * 2, [1, 1], [1, 1], [1, 1])
        return _prelu(opset8.add(v, _channelwise(op.offset)), op.slope)
    if isinstance(op, p.AvgPool) and op.stride == 1:
        return x
    if isinstance(op, p.AvgPool):
        size = [op.stride] * 2
        return opset1.avg_pool(x, size, [0, 0], [0, 0], size, exclude_pad=False)
    if isinstance(op, p.GlobalAvgPool):
        return opset8.reduce_mean(x, np.array([2, 3]), keep_dims=True)
    if isinstance(op, p.Linear):
        flat = opset8.reshape(x, np.array([1, -1]), False)
        v = opset8.add(opset8.matmul(flat, op.weight, False, False), op.bias[None])
        return opset8.reshape(v, np.array([1, -1, 1, 1]), False)
    raise SkippedError(f"{type(op).__name__} is not built for OpenVINO")


def _branch(x: Any, branch: p.Branch) -> Any:
    """scale * n + offset with n = (K - dot) / 2, so -scale / 2 * dot + (offset + scale * K / 2)."""
    o, k = branch.scale.size, branch.threshold.size
    if branch.shift != (0, 0) or k % 8:
        raise SkippedError(
            "its binary convolution is built for one-pixel filters and channel counts divisible by 8 only"
        )
    low = _channelwise(np.nextafter(branch.threshold, np.float32(-np.inf)))
    zero, one = (np.full((1, 1, 1, 1), value, np.float32) for value in (0, 1))
    bits = opset8.fake_quantize(x, low, low, zero, one, 2)
    stream = to_stream(branch.weight, k)
    tensor = openvino.Tensor(stream, openvino.Shape([o, k, 1, 1]), openvino.Type.u1)  # borrows `stream`
    weight = openvino.op.Constant(tensor, shared_memory=False)
    dot = opset1.binary_convolution(bits, weight, [1, 1], [0, 0], [0, 0], [1, 1], "xnor-popcount", 0.0)
    offset = (branch.offset + branch.scale.astype(np.float64) * k / 2).astype(np.float32)
    return opset8.add(opset8.multiply(dot, _channelwise(branch.scale * np.float32(-0.5))), _channelwise(offset))


def _replicate(x: Any, have: int, want: int) -> Any:
    """Channel k of the result is channel k mod `have`."""
    if have == want:
        return x
    copies, rest = divmod(want, have)
    tail = [opset8.slice(x, np.array([0]), np.array([rest]), np.array([1]), np.array([1]))] if rest else []
    return opset8.concat([x] * copies + tail, 1)


def _prelu(v: Any, slope: p.Floats | None) -> Any:
    return v if slope is None else opset8.prelu(v, slope)


def _channelwise(vector: p.Floats) -> NDArray[np.float32]:
    return vector.reshape(1, -1, 1, 1)
