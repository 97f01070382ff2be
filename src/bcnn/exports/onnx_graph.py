"""Program -> ONNX model on standard operators: uint8 image N,H,W,3 -> logits and probabilities, in one of four forms.

    "bits"    weights are stored eight to a byte and made numbers when the model is loaded; what ops have in common is said once (`onnx_fold`)
    "int8"    weights are -1 and +1, a byte each
    "qonnx"   signs of activations and weights are made by BipolarQuant, an operator of QONNX, for a float Conv; maps are NCHW
    "float"   the same with signs made by standard operators, and weights that are +-1 already: a benchmark's form

In the first two a binary convolution is a MatMulInteger (a ConvInteger, where it has more taps than one), and maps are NHWC, which
makes it a plain matrix product. This file has the model and the steps that ops share; `onnx_ops` has what each op becomes.

A map has the name of the op that makes it, a parameter that of its op and field: what a viewer shows is what the network calls it. Where size
counts, the node that makes a map has the op's name, which is in the file once then, and the map is a letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from bcnn.base.errors import UserError
from bcnn.exports.onnx_fold import Steps, folded, lettered, stored
from bcnn.exports.onnx_functions import DOMAIN, functions
from bcnn.exports.onnx_rows import Rows
from bcnn.program.ops import Ending, Window
from bcnn.program.program import Program

Weights = Literal["bits", "int8", "qonnx", "float"]
QONNX = "qonnx.custom_op.general"  # the domain of BipolarQuant
# The newest operator needed is Reduce* with axes as an attribute, which ends with 17. Read by every runtime since 2022.
OPSET, IR = 17, 8
DEFAULTS = {
    "strides": [1, 1],
    "dilations": [1, 1],
    "pads": [0, 0, 0, 0],
    "group": 1,
}  # of ONNX: then the attribute is left out
PRODUCTS = ("MatMulInteger", "ConvInteger", "Conv", "MatMul")


def onnx_model(
    program: Program, weights: Weights, maps: bool = False, contrib: bool = False, batch: int | str = 1
) -> onnx.ModelProto:
    """The model. With `maps` every map of the program is an output too, in order, for checks. `contrib` lets MatMulInteger and
    the scaling after it be one operator of ONNX Runtime's own, 10 % less time for the whole network."""
    from bcnn.exports import onnx_fixed, onnx_ops

    integers = program.numbers == "int16"
    rules, endings = (onnx_fixed.OPS, onnx_fixed.ENDINGS) if integers else (onnx_ops.OPS, onnx_ops.ENDINGS)
    graph = Graph(program, weights, contrib, endings)
    for index, op in enumerate(program.ops):
        graph.begin(program.names[index], type(op).__name__.removeprefix("Fixed"))
        if type(op) not in rules:
            raise UserError(f"op {index} ({program.names[index]}): a {type(op).__name__} has no ONNX form here yet")
        try:
            graph.end(rules[type(op)](graph, op))
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
    for name, (h, w, c) in zip(graph.made, program.shapes, strict=True):
        if maps:
            outputs.append(
                helper.make_tensor_value_info(
                    name,
                    TensorProto.INT32 if integers else TensorProto.FLOAT,
                    [batch, h, w, c] if graph.nhwc else [batch, c, h, w],
                )
            )
    nodes, common = graph.folded([value.name for value in (image, *outputs)])
    proto = helper.make_graph(nodes, "bcnn", [image], outputs, graph.constants)
    others = [
        *(["com.microsoft"] if contrib else []),
        *([QONNX] if weights == "qonnx" else []),
        *([DOMAIN] if graph.called or common else []),
    ]
    opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in others)]
    return helper.make_model(
        proto, opset_imports=opsets, ir_version=IR, functions=[*functions(graph.called, OPSET), *common]
    )


class Graph:
    """The nodes so far; `made[i]` is the value that holds map i."""

    def __init__(self, program: Program, weights: Weights, contrib: bool, endings: dict[type[Ending], Any]) -> None:
        self.shapes, self.weights, self.contrib, self.endings = program.shapes, weights, contrib, endings
        self.nhwc = weights in ("bits", "int8")
        self.integers = program.numbers == "int16"
        self.small = weights == "bits" or self.integers  # size counts, and functions of the model are allowed
        self.channels = 3 if self.nhwc else 1  # their axis
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.made: list[str] = []
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}  # small constants -> their name
        self._taken = {"image", "logits", "probabilities"}
        self._named: set[str] = set()  # nodes, which have a space of their own
        self._replicas: dict[tuple[int, int], str] = {}  # map, channels -> the value that holds it with so many
        self._scope, self._kind, self._first = "", "", 0  # of the op: name, what it is, its first node
        self._rows = Rows(self)  # its parameters so far that have a value for each channel
        self.steps: list[Steps] = []  # which nodes are an op's
        self.called: set[str] = set()  # functions of the model
        self.bounds: dict[str, int] = {}  # of the op: values that a bound made -> how large they are at most

    # --- names ----------------------------------------------------------------------------------------------------

    def begin(self, name: str, kind: str) -> None:
        """What follows belongs to the op of this name."""
        self._scope, self._kind, self._first = self._unique(name or "op", self._taken), kind, len(self.nodes)
        self._rows, self.bounds = Rows(self), {}

    def end(self, value: str) -> None:
        """The last value is the op's map, and is called like the op."""
        late, self.nodes = self.nodes[self._first :], self.nodes[: self._first]
        self._rows.store(late)
        self.nodes += late
        if self.nodes and value == self.nodes[-1].output[0]:
            if self.small:
                self.nodes[-1].name = self._scope
            else:
                self.nodes[-1].output[0] = value = self._scope
        self.made.append(value)
        self.steps.append(Steps(self._kind, self._scope, self._first, len(self.nodes)))

    def folded(self, outside: list[str]) -> tuple[list[onnx.NodeProto], list[onnx.FunctionProto]]:
        """The nodes. Where size counts, ops that are alike are calls of one function, and values that are no parameter are letters; `outside`
        keeps its names."""
        if not self.small:
            return self.nodes, []
        nodes, common = folded(self.nodes, self.steps, DOMAIN, OPSET)
        shared = set(self._shared.values())
        kept = [*outside, *(constant.name for constant in self.constants if constant.name not in shared)]
        names = lettered((value for node in nodes for value in (*node.input, *node.output)), kept)
        for node in nodes:
            node.input[:], node.output[:] = ([names[value] for value in values] for values in (node.input, node.output))
        self.constants = [constant for constant in self.constants if constant.name in names]  # that somebody reads
        for constant in self.constants:
            constant.name = names[constant.name]
        return nodes, common

    @staticmethod
    def _unique(name: str, taken: set[str]) -> str:
        found, copy = name, 2
        while found in taken:
            found, copy = f"{name}.{copy}", copy + 1
        taken.add(found)
        return found

    # --- nodes and constants --------------------------------------------------------------------------------------

    def node(self, kind: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        out = out or self._unique(f"{len(self.nodes)}", self._taken)
        # A name each for the nodes that a person looks for; one for every step would be a tenth of a small file.
        name = self._unique(self._scope, self._named) if kind in PRODUCTS and not self.small else None
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name, **attributes))
        return out

    def call(self, function: str, *inputs: str, **attributes: Any) -> str:
        """A function of `onnx_functions`."""
        self.called.add(function)
        return self.node(function, *inputs, domain=DOMAIN, **attributes)

    def split(self, x: str, parts: int, **axis: int) -> list[str]:
        """So many equal parts of the first axis, or another."""
        names = [self._unique(f"{len(self.nodes)}", self._taken) for _ in range(parts)]
        self.nodes.append(helper.make_node("Split", [x], names, **axis))
        return names

    def constant(self, array: NDArray[Any], what: str = "") -> str:
        """A parameter, named by what it is; without that, a number or shape that others may share."""
        array = np.asarray(array, order="C")
        if self.small and array.nbytes < 2 * len(f"{self._scope}.{what}"):
            what = ""  # shorter than its name, which is written twice
        key = (array.dtype.str, array.shape, array.tobytes() if not what else b"")
        if not what and key in self._shared:
            return self._shared[key]
        name = self._unique(f"{self._scope}.{what}" if what else f"c{len(self.constants)}", self._taken)
        self.constants.append(stored(array, name))
        if not what:
            self._shared[key] = name
        return name

    def number(self, value: float, dtype: type = np.float32) -> str:
        return self.constant(np.array(value, dtype))

    def shape_of(self, sides: Sequence[Any]) -> str:
        return self.constant(np.array(sides, np.int64))

    def sign_numbers(self) -> tuple[str, str, str]:
        """What stands for +1, -1 and nothing in a product of signs: see `onnx_ops.dots`."""
        values = (2, 0, 1) if self.nhwc else (1, -1, 0)
        plus, minus, none = (self.number(value, np.uint8 if self.nhwc else np.float32) for value in values)
        return plus, minus, none

    def channelwise(self, values: NDArray[Any], what: str) -> str:
        """A value for each channel, or several rows of them, to be combined with a map."""
        if not self.small:
            return self.constant(values if self.nhwc else values[:, None, None], what)
        return self._rows.add(self._unique(f"{self._scope}.{what}", self._taken), values)

    def reader(self, function: str, *inputs: str, rows: dict[str, NDArray[Any]], **attributes: Any) -> str:
        """The op's first step: a function that reads the op's parameters, these rows itself (`onnx_rows`)."""
        for what, values in rows.items():
            self.channelwise(values, what)
        made = self.call(function, *inputs, **attributes)
        self.nodes[-1].output.append(self._unique(f"{made}.rest", self._taken))
        self._rows.read_by(self.nodes[-1])
        return made

    def signs(self, weight: NDArray[np.int8], what: str) -> str:
        """Weights of -1 and +1, in the form of the model."""
        if not self.nhwc:
            stored = self.constant(weight.astype(np.float32), what)
            return stored if self.weights == "float" else self.bipolar(stored)
        if self.weights == "int8":
            return self.constant(weight, what)
        rows = weight.ndim == 2 and weight.shape[-1] % 8 == 0
        bits = self.packed(weight if rows else weight.reshape(1, -1))
        signs = self.call("Signs", bits=bits)
        if rows:
            return signs
        if weight.size % 8:
            flat = self.node("Reshape", signs, self.shape_of([-1]))
            signs = self.node("Slice", flat, self.shape_of([0]), self.shape_of([weight.size]))
        return self.node("Reshape", signs, self.shape_of(weight.shape))

    def packed(self, weight: NDArray[np.int8]) -> onnx.TensorProto:
        """Weights of -1 and +1 as bits, eight to a byte, from the lowest on; an axis more, for the eight."""
        return stored(np.packbits(weight > 0, axis=-1, bitorder="little")[..., None])

    def bipolar(self, x: str) -> str:
        """QONNX: +1 where x >= 0, else -1."""
        return self.node("BipolarQuant", x, self.number(1), domain=QONNX)

    # --- steps that ops share -------------------------------------------------------------------------------------

    def nhwc_map(self, index: int) -> str:
        value = self.made[index]
        return value if self.nhwc else self.node("Transpose", value, perm=[0, 2, 3, 1])

    def replicated(self, source: int, want: int) -> str:
        """Channel k of the result is channel k mod C of map `source`."""
        x, have = self.made[source], self.shapes[source][2]
        if have == want:
            return x
        if (source, want) not in self._replicas:
            made_first = len(self.nodes) == self._first
            copies, rest = divmod(want, have)
            repeats = [1, 1, 1, 1]
            repeats[self.channels] = copies
            whole = self.node("Tile", x, self.shape_of(repeats)) if copies > 1 else x
            if rest:
                part = self.node("Slice", x, *(self.shape_of([v]) for v in (0, rest, self.channels)))
                whole = self.node("Concat", whole, part, axis=self.channels)
            self._replicas[source, want] = whole
            if made_first:  # for whoever asks: not a step of this op
                self._first = len(self.nodes)
        return self._replicas[source, want]

    def among(self, x: str, first: int, reads: int, channels: int) -> str:
        """`reads` channels from `first` on, zeros for the others."""
        if reads == channels:
            return x
        before, behind = [0] * 4, [0] * 4
        before[self.channels], behind[self.channels] = first, channels - first - reads
        return self.node("Pad", x, self.shape_of(before + behind))

    def real(self, x: str, fraction: int, out: str) -> str:
        """What integers of so many fractional bits stand for: exact."""
        return self.node("Mul", self.node("Cast", x, to=TensorProto.FLOAT), self.number(2.0**-fraction), out=out)

    def finish(self, v: str, after: tuple[Ending, ...], channels: int) -> str:
        for ending in after:
            v = self.endings[type(ending)](self, ending, v, channels)
        return v

    def pad(self, x: str, sides: Sequence[int], value: str = "") -> str:
        """top, left, bottom, right; a negative side crops. Two steps, if both occur: a crop may leave nothing to crop from."""
        for part in ([min(side, 0) for side in sides], [max(side, 0) for side in sides]):
            if any(part):
                top, left, bottom, right = part
                pads = [0, top, left, 0, 0, bottom, right, 0] if self.nhwc else [0, 0, top, left, 0, 0, bottom, right]
                x = self.node("Pad", x, self.shape_of(pads), *([value] if value else []))
        return x

    def spatial(self, kind: str, x: str, *inputs: str, **attributes: Any) -> str:
        """An operator that ONNX defines on NCHW only."""
        if not self.nhwc:
            return self.node(kind, x, *inputs, **attributes)
        y = self.node(kind, self.node("Transpose", x, perm=[0, 3, 1, 2]), *inputs, **attributes)
        return self.node("Transpose", y, perm=[0, 2, 3, 1])

    def windowed(
        self,
        kind: str,
        x: str,
        *inputs: str,
        window: Window,
        outside: str | None = "",
        group: int = 1,
        **attributes: Any,
    ) -> str:
        """A convolution or pool. ONNX has no negative padding there: then the map is cropped before, and padded with `outside`
        ("": zeros; None: leave the padding to the operator)."""
        pads = list(window.padding)
        if min(pads) < 0:
            apart = pads if outside is not None else [min(pad, 0) for pad in pads]
            x = self.pad(x, apart, outside or "")
            pads = [pad - done for pad, done in zip(pads, apart, strict=True)]
        given: dict[str, Any] = {
            "strides": list(window.stride),
            "dilations": list(window.dilation),
            "pads": pads,
            "group": group,
        }
        for name, values in given.items():
            if values != DEFAULTS[name]:
                attributes[name] = values
        if not inputs:
            attributes["kernel_shape"] = list(window.kernel)  # a convolution has it from its weights
        return self.spatial(kind, x, *inputs, **attributes)
