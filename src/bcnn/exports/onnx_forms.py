"""Program -> ONNX model on standard operators: uint8 image N,H,W,3 -> logits and probabilities, in one of four forms, a class each.

    "bits"    weights are stored eight to a byte and made numbers when the model is loaded; what ops have in common is said once
    "int8"    weights are -1 and +1, a byte each
    "qonnx"   signs of activations and weights are made by BipolarQuant, an operator of QONNX, for a float Conv; maps are NCHW
    "float"   the same with signs made by standard operators, and weights that are +-1 already: a benchmark's form

In the first two a binary convolution is a MatMulInteger (a ConvInteger, where it has more taps than one), and maps are NHWC, which
makes it a plain matrix product. `onnx_graph` has the steps that all forms share; `onnx_ops` and `onnx_fixed` what each op becomes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from bcnn.base.errors import UserError
from bcnn.exports import onnx_fixed, onnx_ops
from bcnn.exports.onnx_functions import DOMAIN, functions
from bcnn.exports.onnx_graph import BinaryOp, Field, Graph, signs
from bcnn.program import ops
from bcnn.program.ops import Floats, Window
from bcnn.program.program import Program

QONNX = "qonnx.custom_op.general"  # the domain of BipolarQuant
# The newest operator needed is Reduce* with axes as an attribute, which ends with 17. Read by every runtime since 2022.
OPSET, IR = 17, 8


class Nhwc(Graph):
    """In a product of signs 2 stands for +1, 0 for -1 and 1 for a tap outside the map: it subtracts a zero point of 1."""

    CHANNELS, SPACE, ORDER = 3, [1, 2], (0, 1, 2)
    SIGNS = np.array([2, 0, 1], np.uint8)

    def spatial(self, kind: str, x: str, *inputs: str, **attributes: Any) -> str:
        y = self.node(kind, self.node("Transpose", x, perm=[0, 3, 1, 2]), *inputs, **attributes)
        return self.node("Transpose", y, perm=[0, 2, 3, 1])

    def mixed(self, x: str, weight: Floats, what: str) -> str:
        return self.node("MatMul", x, self.constant(weight.T, what))

    def sign_product(self, x: str, weight: NDArray[np.int8], window: Window, groups: int, none: str, what: str) -> str:
        if window.pointwise and groups == 1:
            return self.node("MatMulInteger", x, self.sign_weights(weight[:, 0].T, what), none)
        operands = self.sign_weights(filters(weight, window), what), none
        return self.windowed("ConvInteger", x, *operands, window=window, outside=none, group=groups)

    def scaled(self, dot: str, branch: ops.Branch, bits: int, field: Field) -> str:
        return super().scaled(self.node("Cast", dot, to=TensorProto.FLOAT), branch, bits, field)


class Bits(Nhwc):
    SMALL = True

    def sign_weights(self, weight: NDArray[np.int8], what: str) -> str:
        rows = weight.ndim == 2 and weight.shape[-1] % 8 == 0
        made = self.call("Signs", bits=self.packed(weight if rows else weight.reshape(1, -1)))
        if rows:
            return made
        if weight.size % 8:
            flat = self.node("Reshape", made, self.shape_of([-1]))
            made = self.node("Slice", flat, self.shape_of([0]), self.shape_of([weight.size]))
        return self.node("Reshape", made, self.shape_of(weight.shape))

    def prelu(self, v: str, slopes: str, steep: bool) -> str:
        return self.node("PRelu", v, slopes)


class Int8(Nhwc):
    def sign_weights(self, weight: NDArray[np.int8], what: str) -> str:
        return self.constant(weight, what)


class Fused(Int8):
    """With the scaling in the product, one operator of ONNX Runtime's own: 10 % less time for the whole network."""

    DOMAINS = ("com.microsoft",)

    def branch(self, op: BinaryOp, branch: Any, x: str, threshold: str, window: Window, field: Field) -> str:
        """With bits of 0 and 1, without a zero point: dot = 2 sum b w - sum w."""
        if not window.pointwise or op.groups != 1:
            return super().branch(op, branch, x, threshold, window, field)
        bits = self.node("Cast", self.node("GreaterOrEqual", x, threshold), to=TensorProto.UINT8)
        w, half, folded = signs(branch, op.reads)[:, 0], *halves(branch, op.bits)
        bias = (folded + half.astype(np.float64) * w.sum(axis=1, dtype=np.float64)).astype(np.float32)
        factors = self.number(1), self.constant(-2 * half, "scale"), "", "", self.constant(bias, "offset")
        operands = bits, self.constant(w.T, "weight")
        return self.node("MatMulIntegerToFloat", *operands, *factors, domain="com.microsoft")


class Nchw(Graph):
    """Signs are floats; 0 is a tap outside the map."""

    CHANNELS, SPACE, ORDER = 1, [2, 3], (2, 0, 1)
    SIGNS = np.array([1, -1, 0], np.float32)

    def along(self, values: NDArray[Any]) -> NDArray[Any]:
        return values[:, None, None]

    def from_nhwc(self, x: str) -> str:
        return self.node("Transpose", x, perm=[0, 3, 1, 2])

    def to_nhwc(self, x: str) -> str:
        return self.node("Transpose", x, perm=[0, 2, 3, 1])

    def mixed(self, x: str, weight: Floats, what: str) -> str:
        return self.node("Conv", x, self.constant(weight[:, :, None, None], what))

    def sign_product(self, x: str, weight: NDArray[np.int8], window: Window, groups: int, none: str, what: str) -> str:
        weights = self.sign_weights(filters(weight, window), what)
        return self.windowed("Conv", x, weights, window=window, outside=none, group=groups)

    def sign_weights(self, weight: NDArray[np.int8], what: str) -> str:
        return self.constant(weight.astype(np.float32), what)


class Qonnx(Nchw):
    DOMAINS = (QONNX,)

    def compared(self, x: str, threshold: str) -> str:
        return self.bipolar(self.node("Sub", x, threshold))  # a difference is never rounded to another sign

    def sign_weights(self, weight: NDArray[np.int8], what: str) -> str:
        return self.bipolar(super().sign_weights(weight, what))

    def bipolar(self, x: str) -> str:
        """+1 where x >= 0, else -1."""
        return self.node("BipolarQuant", x, self.number(1), domain=QONNX)


class InFloats(Nchw):
    def scaled(self, dot: str, branch: ops.Branch, bits: int, field: Field) -> str:
        """Where time counts more: dot * (-scale / 2) + (offset + scale N / 2), which runtimes fuse into the product."""
        half, folded = halves(branch, bits)
        return self.affine(dot, -half, folded, field)


FORMS: dict[str, type[Graph]] = {"bits": Bits, "int8": Int8, "fused": Fused, "qonnx": Qonnx, "float": InFloats}


def filters(weight: NDArray[np.int8], window: Window) -> NDArray[np.int8]:
    """O,T,C -> O,C,kernel height,kernel width."""
    return weight.reshape(len(weight), *window.kernel, -1).transpose(0, 3, 1, 2)


def halves(branch: ops.Branch, bits: int) -> tuple[Floats, Floats]:
    """scale / 2, and offset + scale N / 2."""
    folded = branch.offset + branch.scale.astype(np.float64) * bits / 2
    return branch.scale * np.float32(0.5), folded.astype(np.float32)


def onnx_model(program: Program, form: str, maps: bool = False, batch: int | str = 1) -> onnx.ModelProto:
    """The model. With `maps` every map of the program is an output too, in order, for checks."""
    integers = program.numbers == "int16"
    tables = onnx_fixed if integers else onnx_ops
    graph = FORMS[form](program, tables.ENDINGS)
    for index, op in enumerate(program.ops):
        graph.begin(program.names[index], type(op).__name__.removeprefix("Fixed"))
        if type(op) not in tables.OPS:
            raise UserError(f"op {index} ({program.names[index]}): a {type(op).__name__} has no ONNX form here yet")
        try:
            graph.end(tables.OPS[type(op)](graph, op))
        except UserError as error:
            raise UserError(f"op {index} ({program.names[index]}): {error}") from None
    height, width, _ = program.shapes[0]
    image = helper.make_tensor_value_info("image", TensorProto.UINT8, [batch, height, width, 3])
    last = program.shapes[-1]
    shape: list[int | str] = [batch, last[2]] if last[:2] == (1, 1) else [batch, *last]
    how = ["Flatten"] if last[:2] == (1, 1) else ["Reshape", graph.shape_of([-1, *shape[1:]])]
    flat = graph.node(how[0], graph.nhwc_map(-1), *how[1:], out=None if integers else "logits")
    logits = graph.real(flat, program.fractions[-1], "logits") if integers else flat
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name in (logits, graph.node("Softmax", logits, out="probabilities"))
    ]
    kind = TensorProto.INT32 if integers else TensorProto.FLOAT
    for name, sides in zip(graph.made, program.shapes, strict=True) if maps else ():
        placed = [batch, *(sides[axis] for axis in graph.ORDER)]
        outputs.append(helper.make_tensor_value_info(name, kind, placed))
    nodes, common = graph.folded([value.name for value in (image, *outputs)], OPSET)
    proto = helper.make_graph(nodes, "bcnn", [image], outputs, graph.constants)
    domains = [*graph.DOMAINS, *([DOMAIN] if graph.called or common else [])]
    opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(
        proto, opset_imports=opsets, ir_version=IR, functions=[*functions(graph.called, OPSET), *common]
    )
