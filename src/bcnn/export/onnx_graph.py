"""Program -> ONNX model on standard operators: uint8 image N,H,W,3 -> logits and probabilities, in one of four forms.

    "bits"    weights are stored eight to a byte and made numbers when the model is loaded; what ops have in common is said once (`onnx_fold`)
    "int8"    weights are -1 and +1, a byte each
    "qonnx"   signs of activations and weights are made by BipolarQuant, an operator of QONNX, for a float Conv; maps are NCHW
    "float"   the same with signs made by standard operators, and weights that are +-1 already: a benchmark's form

In the first two a binary convolution is a MatMulInteger (a ConvInteger, where it has more taps than one), and maps are NHWC, which
makes it a plain matrix product. This file has the model and the steps that ops share; `onnx_ops` has what each op becomes.

A map has the name of the op that makes it, a parameter that of its op and field: what a viewer shows is what the network calls it.
Every tensor of a file costs its name twice and a head, some 50 bytes, which is as much as a parameter of 32 channels: where size counts, an
op's parameters of a value for each channel are the rows of one tensor, `real`, and a Split gives them their names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bcnn.errors import UserError
from bcnn.export.onnx_fold import Steps, folded
from bcnn.export.onnx_functions import DOMAIN, functions
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
    from bcnn.export import onnx_fixed, onnx_ops

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
    flat = graph.node(
        "Reshape", graph.nhwc_map(-1), graph.shape_of([-1, *shape[1:]]), out=None if integers else "logits"
    )
    logits = graph.real(flat, program.fractions[-1], "logits") if integers else flat
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name in (logits, graph.node("Softmax", logits, axis=-1, out="probabilities"))
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
    nodes, common = folded(graph.nodes, graph.steps, DOMAIN, OPSET) if graph.small else (graph.nodes, [])
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
        self._rows: list[tuple[str, NDArray[Any]]] = []  # its parameters so far that have a value for each channel
        self.steps: list[Steps] = []  # which nodes are an op's
        self.called: set[str] = set()  # functions of the model

    # --- names ----------------------------------------------------------------------------------------------------

    def begin(self, name: str, kind: str) -> None:
        """What follows belongs to the op of this name."""
        self._scope, self._kind, self._first = self._unique(name or "op", self._taken), kind, len(self.nodes)

    def end(self, value: str) -> None:
        """The last value is the op's map, and is called like the op."""
        self._store_rows()
        if self.nodes and value == self.nodes[-1].output[0]:
            self.nodes[-1].output[0] = value = self._scope
        self.made.append(value)
        self.steps.append(Steps(self._kind, self._scope, self._first, len(self.nodes)))

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
        name = self._unique(self._scope, self._named) if kind in PRODUCTS else None
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
        key = (array.dtype.str, array.shape, array.tobytes() if not what else b"")
        if not what and key in self._shared:
            return self._shared[key]
        name = self._unique(f"{self._scope}.{what}" if what else f"c{len(self.constants)}", self._taken)
        self.constants.append(numpy_helper.from_array(array, name))
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
        """A value for each channel, to be combined with a map."""
        if not self.small:
            return self.constant(values if self.nhwc else values[:, None, None], what)
        self._rows.append((self._unique(f"{self._scope}.{what}", self._taken), values))
        return self._rows[-1][0]

    def _store_rows(self) -> None:
        """The op's rows, those of one length and type in one tensor, before the op's first step. Integers are multiples of a step."""
        alike: dict[tuple[int, str], list[tuple[str, NDArray[Any], int]]] = defaultdict(list)
        for name, values in self._rows:
            small, step = in_steps(values) if self.integers else (values, 1)
            alike[small.size, small.dtype.str].append((name, small, step))
        late, self.nodes = self.nodes[self._first :], self.nodes[: self._first]
        for rows in alike.values():
            names, arrays, steps = zip(*rows, strict=True)
            if not self.integers and len(rows) == 1:
                self.constants.append(numpy_helper.from_array(arrays[0], names[0]))
                continue
            real = self.constant(np.stack(arrays), "real")
            if self.integers and arrays[0].dtype == np.int8:
                real = self.call("Rows", real, steps=list(steps))
            elif self.integers:
                real = self.node("Cast", real, to=TensorProto.INT32)
            self.nodes.append(helper.make_node("Split", [real], list(names)))
        self.nodes += late
        self._rows = []

    def signs(self, weight: NDArray[np.int8], what: str) -> str:
        """Weights of -1 and +1, in the form of the model."""
        if not self.nhwc:
            stored = self.constant(weight.astype(np.float32), what)
            return stored if self.weights == "float" else self.bipolar(stored)
        if self.weights == "int8":
            return self.constant(weight, what)
        bits, whole_rows = self.bits(weight, what)
        signs = self.call("Signs", bits)
        if whole_rows:
            return signs
        if weight.size % 8:
            flat = self.node("Reshape", signs, self.shape_of([-1]))
            signs = self.node("Slice", flat, self.shape_of([0]), self.shape_of([weight.size]))
        return self.node("Reshape", signs, self.shape_of(weight.shape))

    def bits(self, weight: NDArray[np.int8], what: str) -> tuple[str, bool]:
        """Weights of -1 and +1 as bits, eight to a byte; and whether these are rows of a matrix, of whole bytes each."""
        rows = weight.ndim == 2 and weight.shape[-1] % 8 == 0
        packed = np.packbits(weight.reshape(-1) > 0, bitorder="little").reshape(
            (-1, weight.shape[-1] // 8, 1) if rows else (-1, 1, 1)
        )
        return self.constant(packed, what.removesuffix("weight") + "bits"), rows

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


def in_steps(values: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Integers as multiples of a step: bytes, where 127 steps are enough, else two or four bytes and a step of 1."""
    wide = values.astype(np.int64)
    step = int(np.gcd.reduce(wide, axis=None)) or 1
    if np.abs(wide // step).max() <= 127:
        return (wide // step).astype(np.int8), step
    return wide.astype(np.int16 if np.abs(wide).max() < 1 << 15 else np.int32), 1
