"""Program -> ONNX model: uint8 image 1,H,W,3 -> logits 1,classes, on standard operators, in one of two forms.

    "float"    every binary convolution is a float Conv with +-1 weights; maps are NCHW
    "integer"  it is a MatMulInteger of uint8 bits with int8 +-1 weights (a ConvInteger, where it has more taps than one); maps are
               NHWC, which makes it a plain matrix product

This file has the model and the steps that ops share; `onnx_ops` has what each op becomes.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bcnn.errors import UserError
from bcnn.program.ops import Ending, Floats, Window
from bcnn.program.program import Program

Products = Literal["float", "integer"]
OPSET = 17


def onnx_model(program: Program, products: Products, maps: bool = False, contrib: bool = False) -> onnx.ModelProto:
    """The model. With `maps` every map of the program is an output too, in order, for checks. `contrib` lets MatMulInteger and
    the scaling after it be one operator of ONNX Runtime's own, 10 % less time for the whole network."""
    from bcnn.export.onnx_ops import ENDINGS, OPS

    graph = Graph(program, products, contrib, ENDINGS)
    for index, op in enumerate(program.ops):
        if type(op) not in OPS:
            raise UserError(f"op {index} ({program.names[index]}): a {type(op).__name__} has no ONNX form here yet")
        graph.made.append(OPS[type(op)](graph, op))
    logits = graph.node("Reshape", graph.made[-1], graph.constant(np.array([1, -1])), out="logits")
    height, width, _ = program.shapes[0]
    image = helper.make_tensor_value_info("image", TensorProto.UINT8, [1, height, width, 3])
    shown = [logits, *(graph.made if maps else [])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in shown]
    proto = helper.make_graph(graph.nodes, "bcnn", [image], outputs, graph.constants)
    # IR version 10 goes with the opset and is read by every runtime since 2024, whatever the newest is here.
    opsets = [helper.make_opsetid("", OPSET), *([helper.make_opsetid("com.microsoft", 1)] if contrib else [])]
    return helper.make_model(proto, opset_imports=opsets, ir_version=10)


class Graph:
    """The nodes so far; `made[i]` is the value that holds map i."""

    def __init__(self, program: Program, products: Products, contrib: bool, endings: dict[type[Ending], Any]) -> None:
        self.shapes, self.contrib, self.endings = program.shapes, contrib, endings
        self.nhwc = products == "integer"
        self.channels = 3 if self.nhwc else 1  # their axis
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.made: list[str] = []

    def node(self, kind: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        out = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def constant(self, array: NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def channelwise(self, values: Floats) -> str:
        """A value for each channel, or a map H,W,C, to be combined with a map."""
        if values.ndim == 1:
            return self.constant(values if self.nhwc else values[:, None, None])
        return self.constant(values if self.nhwc else values.transpose(2, 0, 1))

    def replicated(self, source: int, want: int) -> str:
        """Channel k of the result is channel k mod C of map `source`."""
        x, have = self.made[source], self.shapes[source][2]
        if have == want:
            return x
        copies, rest = divmod(want, have)
        parts = [x] * copies
        if rest:
            part = (self.constant(np.array([v])) for v in (0, rest, self.channels))
            parts.append(self.node("Slice", x, *part))
        return self.node("Concat", *parts, axis=self.channels)

    def finish(self, v: str, after: tuple[Ending, ...], channels: int) -> str:
        for ending in after:
            v = self.endings[type(ending)](self, ending, v, channels)
        return v

    def spatial(self, kind: str, x: str, *inputs: str, **attributes: Any) -> str:
        """An operator that ONNX defines on NCHW only."""
        if not self.nhwc:
            return self.node(kind, x, *inputs, **attributes)
        y = self.node(kind, self.node("Transpose", x, perm=[0, 3, 1, 2]), *inputs, **attributes)
        return self.node("Transpose", y, perm=[0, 2, 3, 1])

    def windowed(self, kind: str, x: str, *inputs: str, window: Window, zeros: bool = True, **attributes: Any) -> str:
        """A convolution or pool. ONNX has no negative padding: then the map is cropped and, where that means `zeros`, padded before."""
        pads = list(window.padding)
        if min(pads) < 0:
            apart = pads if zeros else [min(pad, 0) for pad in pads]
            top, left, bottom, right = apart
            sides = [0, top, left, 0, 0, bottom, right, 0] if self.nhwc else [0, 0, top, left, 0, 0, bottom, right]
            x = self.node("Pad", x, self.constant(np.array(sides)))
            pads = [pad - done for pad, done in zip(pads, apart, strict=True)]
        if window.dilation != (1, 1):
            attributes["dilations"] = list(window.dilation)
        return self.spatial(
            kind, x, *inputs, kernel_shape=list(window.kernel), strides=list(window.stride), pads=pads, **attributes
        )
