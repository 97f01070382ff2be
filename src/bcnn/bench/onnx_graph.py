"""Program -> ONNX model: uint8 image 1,H,W,3 -> logits 1,classes, on standard operators, in one of two forms.

    "float"    every binary convolution is a float Conv with +-1 weights; maps are NCHW
    "integer"  it is a MatMulInteger of uint8 bits with int8 +-1 weights; maps are NHWC, which makes it a plain matrix product

Bits are 0 and 1 here, since a comparison yields them; the derivation from signs stands in `_branch`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bcnn.errors import UserError
from bcnn.program import program as p
from bcnn.program.bits import unpack_bits

Products = Literal["float", "integer"]
OPSET = 17


def onnx_model(program: p.Program, products: Products, maps: bool = False, contrib: bool = False) -> onnx.ModelProto:
    """The model. With `maps` every map of the program is an output too ("map0", "map1", ...), for checks. `contrib` lets
    MatMulInteger and the scaling after it be one operator of ONNX Runtime's own, 10 % less time for the whole network."""
    graph = _Graph(program, products, contrib)
    for index, op in enumerate(program.ops):
        graph.made.append(graph.add_op(op, f"map{index}"))
    logits = graph.node("Reshape", graph.made[-1], graph.constant(np.array([1, -1])), out="logits")
    height, width, _ = program.shapes[0]
    image = helper.make_tensor_value_info("image", TensorProto.UINT8, [1, height, width, 3])
    shown = [logits, *(graph.made if maps else [])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in shown]
    proto = helper.make_graph(graph.nodes, "bcnn", [image], outputs, graph.constants)
    # IR version 10 goes with the opset and is read by every runtime since 2024, whatever the newest is here.
    opsets = [helper.make_opsetid("", OPSET), *([helper.make_opsetid("com.microsoft", 1)] if contrib else [])]
    return helper.make_model(proto, opset_imports=opsets, ir_version=10)


class _Graph:
    def __init__(self, program: p.Program, products: Products, contrib: bool) -> None:
        self.program, self.contrib = program, contrib
        self.nhwc = products == "integer"
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.made: list[str] = []  # the value that holds map i

    # --- ops ---

    def add_op(self, op: p.Op, out: str) -> str:
        if isinstance(op, p.Input):
            return self.input(op, out)
        x = self.made[op.source]
        channels = self.program.shapes[op.source][2]
        if isinstance(op, p.BinaryConv):
            return self.binary_conv(op, out)
        if isinstance(op, p.DepthwiseConv):
            x = self.replicate(x, channels, op.offset.size)
            weight = op.weight.transpose(2, 0, 1)[:, None]  # 3,3,K -> K,1,3,3
            parameters = self.constant(weight), self.constant(op.offset)
            size, strides = [3, 3], [op.stride] * 2
            v = self.spatial(
                "Conv", x, *parameters, group=len(weight), kernel_shape=size, strides=strides, pads=[1] * 4
            )
            return self.prelu(v, op.slope, out)
        if isinstance(op, p.AvgPool) and op.stride == 1:
            return self.node("Identity", x, out=out)
        if isinstance(op, p.AvgPool):
            return self.spatial("AveragePool", x, out=out, kernel_shape=[op.stride] * 2, strides=[op.stride] * 2)
        if isinstance(op, p.GlobalAvgPool):
            return self.node("ReduceMean", x, out=out, axes=[1, 2] if self.nhwc else [2, 3], keepdims=1)
        if isinstance(op, p.Linear):
            flat = self.node("Reshape", x, self.constant(np.array([1, -1])))
            v = self.node("Gemm", flat, self.constant(op.weight), self.constant(op.bias))
            shape = [1, 1, 1, -1] if self.nhwc else [1, -1, 1, 1]
            return self.node("Reshape", v, self.constant(np.array(shape)), out=out)
        raise UserError(f"{type(op).__name__} {out} has no ONNX form here yet; use a network with R >= 1")

    def input(self, op: p.Input, out: str) -> str:
        """Normalisation and intensity are one 1x1 convolution: row c is scale_c at c, the fourth i_c scale_c."""
        weight, bias = np.diag(op.scale), op.offset
        if op.intensity is not None:
            weight = np.vstack([weight, op.intensity * op.scale])
            bias = np.append(bias, np.float32(op.intensity @ op.offset))
        x = self.node("Cast", "image", to=TensorProto.FLOAT)
        if self.nhwc:
            dot = self.node("MatMul", x, self.constant(np.ascontiguousarray(weight.T)))
            return self.node("Add", dot, self.constant(bias), out=out)
        x = self.node("Transpose", x, perm=[0, 3, 1, 2])
        return self.node("Conv", x, self.constant(weight[:, :, None, None]), self.constant(bias), out=out)

    def binary_conv(self, op: p.BinaryConv, out: str) -> str:
        k, o = op.branches[0].threshold.size, op.branches[0].scale.size
        x = self.replicate(self.made[op.source], self.program.shapes[op.source][2], k)
        terms = [x] if op.identity else []
        terms += [self.branch(x, branch) for branch in op.branches]
        v = terms[0]
        for term in terms[1:]:
            v = self.node("Add", v, term)
        if not op.prelu_after_add:
            v = self.prelu(v, op.slope, out if op.add is None else None)
        if op.add is not None:
            other = self.replicate(self.made[op.add], self.program.shapes[op.add][2], o)
            after = op.prelu_after_add and op.slope is not None
            v = self.node("Add", other, v, out=None if after else out)
        return self.prelu(v, op.slope, out) if op.prelu_after_add else v

    def branch(self, x: str, branch: p.Branch) -> str:
        """scale * n + offset from a product of bits b in {0, 1} with weights w in {-1, +1}:

        1. dot = sum (2 b - 1) w = 2 sum b w - sum w, and n = (K - dot) / 2 (program.Branch).
        2. scale * n + offset = -scale * sum b w + (offset + scale * (K + sum w) / 2).
        """
        w = signs(branch)
        scale = -branch.scale
        offset = (branch.offset + branch.scale.astype(np.float64) * (w.shape[1] + w.sum(1)) / 2).astype(np.float32)
        if branch.shift != (0, 0):
            dy, dx = branch.shift  # a negative pad crops
            pads = [0, -dy, -dx, 0, 0, dy, dx, 0] if self.nhwc else [0, 0, -dy, -dx, 0, 0, dy, dx]
            x = self.node("Pad", x, self.constant(np.array(pads)))
        bits = self.node("GreaterOrEqual", x, self.constant(self.channelwise(branch.threshold)))
        if self.nhwc:
            operands = self.node("Cast", bits, to=TensorProto.UINT8), self.constant(w.T)
            if self.contrib:
                factors = self.constant(np.ones((), np.float32)), self.constant(scale), "", "", self.constant(offset)
                return self.node("MatMulIntegerToFloat", *operands, *factors, domain="com.microsoft")
            dot = self.node("Cast", self.node("MatMulInteger", *operands), to=TensorProto.FLOAT)
        else:
            weight = self.constant(w.astype(np.float32)[:, :, None, None])
            dot = self.node("Conv", self.node("Cast", bits, to=TensorProto.FLOAT), weight)
        scaled = self.node("Mul", dot, self.constant(self.channelwise(scale)))
        return self.node("Add", scaled, self.constant(self.channelwise(offset)))

    # --- the steps that ops share ---

    def replicate(self, x: str, have: int, want: int) -> str:
        """Channel k of the result is channel k mod `have`."""
        if have == want:
            return x
        copies, rest = divmod(want, have)
        parts = [x] * copies
        axis = 3 if self.nhwc else 1
        if rest:
            part = (self.constant(np.array([v])) for v in (0, rest, axis))
            parts.append(self.node("Slice", x, *part))
        return self.node("Concat", *parts, axis=axis)

    def prelu(self, v: str, slope: p.Floats | None, out: str | None) -> str:
        if slope is None:
            return v if out is None else self.node("Identity", v, out=out)
        slopes = self.constant(self.channelwise(slope))
        # The same values in a third of the time of ONNX Runtime's PRelu: one term is 0, or, for slopes up to 1, the larger one counts.
        if slope.max() > 1:
            below = self.node("Mul", self.node("Min", v, self.constant(np.zeros((), np.float32))), slopes)
            return self.node("Add", self.node("Relu", v), below, out=out)
        return self.node("Max", v, self.node("Mul", v, slopes), out=out)

    def spatial(self, kind: str, x: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """An operator that ONNX defines on NCHW only."""
        if not self.nhwc:
            return self.node(kind, x, *inputs, out=out, **attributes)
        y = self.node(kind, self.node("Transpose", x, perm=[0, 3, 1, 2]), *inputs, **attributes)
        return self.node("Transpose", y, out=out, perm=[0, 2, 3, 1])

    def channelwise(self, vector: p.Floats) -> p.Floats:
        return vector if self.nhwc else vector[:, None, None]

    def node(self, kind: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        out = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def constant(self, array: NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name


def signs(branch: p.Branch) -> NDArray[np.int8]:
    """The weights of a branch, O,K, as -1 and +1."""
    return unpack_bits(branch.weight, branch.threshold.size).astype(np.int8) * 2 - 1
