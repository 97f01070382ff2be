"""The nodes of an ONNX model while it is made, and the steps that ops share, whatever the form of the model (`onnx_forms`).

A map has the name of the op that makes it, a parameter that of its op and field: what a viewer shows is what the network calls it. Where size
counts, the node that makes a map has the op's name, which is in the file once then, and the map is a letter.

There the parameters of an op that have a value for each channel are rows of one tensor, `real`: every tensor of a file costs its name twice and
a head, some 50 bytes, which is as much as a parameter of 32 channels. Rows of integers are bytes, times a number for each row, `by`. They are
attributes of the node that reads them, which need no names of their own: of a call of `Rows`, for a Split into parameters, or of a function
that reads its own parameters and hands on the others (`Module`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from bcnn.exports.onnx_functions import DOMAIN, Steps, folded, lettered, stored
from bcnn.program import ops
from bcnn.program.bits import unpack_bits
from bcnn.program.ops import Ending, Floats, Window
from bcnn.program.program import Program

BinaryOp = ops.BinaryConv | ops.FixedBinaryConv
Field = Callable[[str], str]  # what a field of a branch is called
# of ONNX: then the attribute is left out
DEFAULTS = {"strides": [1, 1], "dilations": [1, 1], "pads": [0, 0, 0, 0], "group": 1}
PRODUCTS = ("MatMulInteger", "ConvInteger", "Conv", "MatMul")


def signs(branch: ops.Branch | ops.FixedBranch, channels: int) -> NDArray[np.int8]:
    """The weights of a branch, O,T,K/G, as -1 and +1."""
    return unpack_bits(branch.weight, channels).astype(np.int8) * 2 - 1


def branch_window(op: BinaryOp, branch: ops.Branch | ops.FixedBranch) -> Window:
    dy, dx = branch.shift
    top, left, bottom, right = op.window.padding
    return replace(op.window, padding=(top - dy, left - dx, bottom + dy, right + dx))


class Graph:
    """The nodes so far; `made[i]` is the value that holds map i."""

    CHANNELS: ClassVar[int]  # their axis in a map
    SPACE: ClassVar[list[int]]  # the axes of height and width
    ORDER: ClassVar[tuple[int, ...]]  # of the axes of H,W,C
    SIGNS: ClassVar[NDArray[Any]]  # what stands for +1, -1 and nothing in a product of signs
    SMALL = False  # size counts, and functions of the model are allowed
    DOMAINS: tuple[str, ...] = ()  # of operators that are none of ONNX's own

    def __init__(self, program: Program, endings: dict[type[Ending], Any]) -> None:
        self.shapes, self.endings = program.shapes, endings
        self.integers = program.numbers == "int16"
        self.small = self.SMALL or self.integers
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

    def folded(self, outside: list[str], opset: int) -> tuple[list[onnx.NodeProto], list[onnx.FunctionProto]]:
        """The nodes. Where size counts, ops that are alike are calls of one function, and values that are no parameter are letters; `outside`
        keeps its names."""
        if not self.small:
            return self.nodes, []
        nodes, common = folded(self.nodes, self.steps, opset)
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
        """`SIGNS`."""
        plus, minus, none = (self.number(value, self.SIGNS.dtype.type) for value in self.SIGNS)
        return plus, minus, none

    def channelwise(self, values: NDArray[Any], what: str) -> str:
        """A value for each channel, or several rows of them, to be combined with a map."""
        if not self.small:
            return self.constant(self.along(values), what)
        return self._rows.add(self._unique(f"{self._scope}.{what}", self._taken), values)

    def reader(self, function: str, *inputs: str, rows: dict[str, NDArray[Any]], **attributes: Any) -> str:
        """The op's first step: a function that reads the op's parameters, these rows itself."""
        for what, values in rows.items():
            self.channelwise(values, what)
        made = self.call(function, *inputs, **attributes)
        self.nodes[-1].output.append(self._unique(f"{made}.rest", self._taken))
        self._rows.read_by(self.nodes[-1])
        return made

    def packed(self, weight: NDArray[np.int8]) -> onnx.TensorProto:
        """Weights of -1 and +1 as bits, eight to a byte, from the lowest on; an axis more, for the eight."""
        return stored(np.packbits(weight > 0, axis=-1, bitorder="little")[..., None])

    # --- the form of the model ------------------------------------------------------------------------------------

    def along(self, values: NDArray[Any]) -> NDArray[Any]:
        """A value for each channel."""
        return values

    def placed(self, values: NDArray[Any]) -> NDArray[Any]:
        """A map H,W,C."""
        return values.transpose(self.ORDER)

    def from_nhwc(self, x: str) -> str:
        return x

    def to_nhwc(self, x: str) -> str:
        return x

    def spatial(self, kind: str, x: str, *inputs: str, **attributes: Any) -> str:
        """An operator that ONNX defines on NCHW only."""
        return self.node(kind, x, *inputs, **attributes)

    def mixed(self, x: str, weight: Floats, what: str) -> str:
        """Channels O,C of a map in real proportions."""
        raise NotImplementedError

    def sign_weights(self, weight: NDArray[np.int8], what: str) -> str:
        """Weights of -1 and +1."""
        raise NotImplementedError

    def sign_product(self, x: str, weight: NDArray[np.int8], window: Window, groups: int, none: str, what: str) -> str:
        """Sums of sign * sign."""
        raise NotImplementedError

    def compared(self, x: str, threshold: str) -> str:
        """The signs of a map."""
        return self.node("Where", self.node("GreaterOrEqual", x, threshold), *self.sign_numbers()[:2])

    def branch(self, op: BinaryOp, branch: Any, x: str, threshold: str, window: Window, field: Field) -> str:
        """scale * n + offset with n = (N - dot) / 2 (ops.Branch), from a product of signs."""
        dot = self.dots(op, branch, self.compared(x, threshold), window, field)
        return self.scaled(dot, branch, op.bits, field)

    def scaled(self, dot: str, branch: ops.Branch, bits: int, field: Field) -> str:
        """(N - dot) * (scale / 2) + offset rounds as n * scale + offset does: N - dot is a whole number, and halving is exact, short
        of denormals."""
        left_over = self.node("Sub", self.number(bits), dot)
        return self.affine(left_over, branch.scale * np.float32(0.5), branch.offset, field)

    def prelu(self, v: str, slopes: str, steep: bool) -> str:
        """The same values in a third of the time of ONNX Runtime's PRelu: one term is 0, or, for slopes up to 1, the larger one counts."""
        if steep:
            below = self.node("Mul", self.node("Min", v, self.number(0)), slopes)
            return self.node("Add", self.node("Relu", v), below)
        return self.node("Max", v, self.node("Mul", v, slopes))

    # --- steps that ops share -------------------------------------------------------------------------------------

    def nhwc_map(self, index: int) -> str:
        return self.to_nhwc(self.made[index])

    def affine(self, v: str, scale: Floats, offset: Floats, field: Field) -> str:
        scaled = self.node("Mul", v, self.channelwise(scale, field("scale")))
        return self.node("Add", scaled, self.channelwise(offset, field("offset")))

    def dots(self, op: BinaryOp, branch: Any, signed: str, window: Window, field: Field) -> str:
        """Sums of sign * sign, exact. A tap outside the map contributes nothing; where `pad` has bits, the map is padded with them before."""
        weight, none = signs(branch, op.reads // op.groups), self.sign_numbers()[2]
        if branch.pad is not None and max(window.padding) > 0:
            pad = self.SIGNS[1 - unpack_bits(branch.pad, op.reads)]
            signed = self._padded(signed, pad, window, self.shapes[op.source])
            window = replace(window, padding=(0, 0, 0, 0))
        return self.sign_product(signed, weight, window, op.groups, none, field("weight"))

    def _padded(self, x: str, pad: NDArray[Any], window: Window, shape: ops.Shape) -> str:
        """The map with a pixel of `pad`, a value for each channel, wherever the window leaves it."""
        if (pad == pad[0]).all():
            return self.pad(x, window.padding, self.constant(pad[0]))
        whole = Window((1, 1), (1, 1), window.padding)
        (inside,) = whole.views(np.ones((*shape[:2], 1), np.float32), 0.0)
        mask, values = self.constant(self.placed(inside > 0)), self.constant(self.along(pad), "pad")
        return self.node("Where", mask, self.pad(x, window.padding, self.constant(pad[0])), values)

    def for_all_images(self, sides: Sequence[int]) -> str:
        """The shape of a map for so many images as there are."""
        images = self.node("Shape", "image", start=0, end=1)
        return self.node("Concat", images, self.shape_of(sides), axis=0)

    def replicated(self, source: int, want: int) -> str:
        """Channel k of the result is channel k mod C of map `source`."""
        x, have = self.made[source], self.shapes[source][2]
        if have == want:
            return x
        if (source, want) not in self._replicas:
            made_first = len(self.nodes) == self._first
            copies, rest = divmod(want, have)
            repeats = [1, 1, 1, 1]
            repeats[self.CHANNELS] = copies
            whole = self.node("Tile", x, self.shape_of(repeats)) if copies > 1 else x
            if rest:
                part = self.node("Slice", x, *(self.shape_of([v]) for v in (0, rest, self.CHANNELS)))
                whole = self.node("Concat", whole, part, axis=self.CHANNELS)
            self._replicas[source, want] = whole
            if made_first:  # for whoever asks: not a step of this op
                self._first = len(self.nodes)
        return self._replicas[source, want]

    def among(self, x: str, first: int, reads: int, channels: int) -> str:
        """`reads` channels from `first` on, zeros for the others."""
        if reads == channels:
            return x
        before, behind = [0] * 4, [0] * 4
        before[self.CHANNELS], behind[self.CHANNELS] = first, channels - first - reads
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
                pads = [0] * 8
                for axis, before, behind in zip(self.SPACE, (top, left), (bottom, right), strict=True):
                    pads[axis], pads[4 + axis] = before, behind
                x = self.node("Pad", x, self.shape_of(pads), *([value] if value else []))
        return x

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


class Rows:
    """Those of one op; a parameter may be several rows."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.parameters: list[tuple[str, NDArray[Any]]] = []
        self.reader: onnx.NodeProto | None = None  # the op's first step, if it reads the rows
        self.own = 0  # how many parameters it reads itself

    def add(self, name: str, values: NDArray[Any]) -> str:
        self.parameters.append((name, values))
        return name

    def read_by(self, reader: onnx.NodeProto) -> None:
        """All so far are its own; its second output has those to come."""
        self.reader, self.own = reader, len(self.parameters)

    def store(self, steps: list[onnx.NodeProto]) -> None:
        """What gives the rows their names, before the op's steps or, if a reader hands them on, after it. One tensor for each length and type."""
        alike: dict[tuple[int, str], list[tuple[str, NDArray[Any], int]]] = defaultdict(list)
        for name, values in self.parameters:
            small, step = in_steps(values) if self.graph.integers else (values, 1)
            alike[small.shape[-1], small.dtype.str].append((name, np.atleast_2d(small), step))
        for (_, dtype), rows in alike.items():
            names, arrays, factors = map(list, zip(*rows, strict=True))
            together, sizes = np.concatenate(arrays), [len(array) for array in arrays]
            if not self.graph.integers:
                self._floats(names, together)
            elif dtype != np.dtype(np.int8).str:
                wide = self.graph.node("Cast", self.graph.constant(together, "real"), to=TensorProto.INT32)
                self.graph.nodes.append(self._split(wide, names, sizes))
            else:
                real = {"real": stored(together), "by": stored(np.repeat(factors, sizes).astype(np.int32)[:, None])}
                if self.reader is None:
                    self.graph.nodes.append(self._split(self.graph.call("Rows", **real), names, sizes))
                else:
                    self._handed_on(self.reader, real, names, sizes, steps)

    def _floats(self, names: list[str], values: NDArray[Any]) -> None:
        if len(names) == 1:
            self.graph.constants.append(stored(values[0], names[0]))
        else:
            self.graph.nodes.append(self._split(self.graph.constant(values, "real"), names, [1]))

    def _handed_on(
        self,
        reader: onnx.NodeProto,
        real: dict[str, Any],
        names: list[str],
        sizes: list[int],
        steps: list[onnx.NodeProto],
    ) -> None:
        reader.attribute.extend(helper.make_attribute(*given) for given in real.items())
        reader.input.append(self.graph.shape_of([*sizes[: self.own], sum(sizes[self.own :])]))
        others = names[self.own :]
        if len(others) == 1:
            reader.output[1] = others[0]
        elif others:
            steps.insert(1, self._split(reader.output[1], others, sizes[self.own :]))

    def _split(self, real: str, names: list[str], sizes: list[int]) -> onnx.NodeProto:
        uneven = [self.graph.shape_of(sizes)] if max(sizes) > 1 else []
        return helper.make_node("Split", [real, *uneven], names)


def in_steps(values: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Integers as multiples of a step: bytes, where 127 steps are enough, else two or four bytes and a step of 1."""
    wide = values.astype(np.int64)
    step = int(np.gcd.reduce(wide, axis=None)) or 1
    if np.abs(wide // step).max() <= 127:
        return (wide // step).astype(np.int8), step
    return wide.astype(np.int16 if np.abs(wide).max() < 1 << 15 else np.int32), 1
