"""Functions of the exported ONNX models, domain `b`: steps that come back many times, said once.

`TEXTS` has those that rules call, a line of text each, in ONNX's own notation. All but `Signs` are on int32 numbers, of integer programs.

`folded` finds more: two ops whose nodes are the same but for the values they read are two calls of one function, a node each, which a viewer
shows as a box with the op's kind, its name and its parameters, and opens to its steps. Nothing is computed otherwise: a runtime puts the steps
in place when it loads the model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, parser

DOMAIN = "b"  # one letter: it is written at every call
# bits, eight to a byte, lowest first, to 0 and 1
BITS = (
    "eight = Constant <value: tensor = @bits> ()  n = Cast <to = 6> (eight)"
    "  places = Constant <value = int32[8] {1, 2, 4, 8, 16, 32, 64, 128}> ()  high = Div (n, places)"
    "  two = Constant <value = int32 {2}> ()  bit = Mod (high, two)"
)
# name -> its attributes, inputs and outputs, and its steps
TEXTS = {
    # floor(v / d), d > 0: Mod has the sign of d, and what is left divides without a rest
    "Floor": ("(v, d) => (y)", "rest = Mod (v, d)  even = Sub (v, rest)  y = Div (even, d)"),
    # a + b, saturated
    "Plus": (
        "(a, b) => (y)",
        "low = Constant <value = int32 {-32768}> ()  most = Constant <value = int32 {32767}> ()"
        "  ab = Add (a, b)  y = Clip (ab, low, most)",
    ),
    # offset + ((v * scale + 2^14) >> 15), saturated, where |v * scale| < 2^30: lifted by 2^30 nothing is negative
    "Scaled": (
        "(v, scale, offset) => (y)",
        "up = Constant <value = int32 {1073758208}> ()  unit = Constant <value = int32 {32768}> ()  wide = Mul (v, scale)"
        "  lifted = Add (wide, up)  high = Div (lifted, unit)  term = Sub (high, unit)  y = b.Plus (term, offset)",
    ),
    # a row for each parameter: bytes, times the step of the row
    "Rows": (
        "<real, by> () => (y)",
        "bytes = Constant <value: tensor = @real> ()  n = Cast <to = 6> (bytes)  step = Constant <value: tensor = @by> ()"
        "  y = Mul (n, step)",
    ),
    # PReLU: v + (the slope less 1) * v, where v is below 0
    "Bent": (
        "(v, bend, low) => (y)",
        "w = Max (v, low)  above = Relu (w)  below = Sub (w, above)  y = b.Scaled (below, bend, w)",
    ),
    # weights of -1 and +1
    "Signs": (
        "<bits> () => (y)",
        f"{BITS}  pair = Constant <value = int8[2] {{-1, 1}}> ()  signs = Gather (pair, bit)  y = Flatten (signs)",
    ),
    # A convolution module: x and a pointwise binary convolution of x; and the rows of parameters that others need. In the product 0 stands for
    # -1 and 2 for +1, since it subtracts 1 of both.
    "Module": (
        "<bits, real, by> (x, sizes) => (y, others)",
        f"{BITS}  three = Constant <value = uint8[3] {{0, 2, 1}}> ()  columns = Gather (three, bit)  w = Flatten (columns)"
        "  rows = b.Rows <real: tensor = @real, by: tensor = @by> ()  above, scale, offset, others = Split (rows, sizes)"
        "  minus, plus, one = Split (three)  greater = Greater (x, above)  signs = Where (greater, plus, minus)"
        "  dot = MatMulInteger (signs, w, one, one)  term = b.Scaled (dot, scale, offset)  y = b.Plus (term, x)",
    ),
    # v and all taps of a depth wise filter on a padded map, one after the other
    "Taps": (
        "(v, x, w, corners, span, axes, strides) => (y)",
        "taps = Shape <end = 1> (w)  true = Cast <to = 9> (taps)"
        "  y = Loop <body = tap (int64 t, bool[] more, int32[] before) => (bool[] more, int32[] behind) {"
        "  begin = Gather (corners, t)  end = Add (begin, span)  at = Slice (x, begin, end, axes, strides)"
        "  own = Gather (w, t)  behind = b.Scaled (at, own, before) }> (taps, true, v)",
    ),
}


def functions(called: set[str], opset: int) -> list[onnx.FunctionProto]:
    """Those called, and those that they call."""
    every: set[str] = set()
    waiting = set(called)
    while waiting:
        every |= waiting
        waiting = {inner for name in waiting for inner in _calls(name)} - every
    return [_function(name, opset) for name in TEXTS if name in every]


def _calls(name: str) -> set[str]:
    return set(re.findall(rf"{DOMAIN}\.(\w+)", TEXTS[name][1]))


def _function(name: str, opset: int) -> onnx.FunctionProto:
    """Of the text, with letters for its values."""
    signature, steps = TEXTS[name]
    others = f', "{DOMAIN}" : 1' if _calls(name) else ""
    head = f'<domain: "{DOMAIN}", opset_import: ["" : {opset}{others}]>'
    made = parser.parse_function(f"{head}\n{name} {signature}\n{{ {steps} }}")
    nodes = list(_all(made.node))
    bodies = [value for body in _bodies(nodes) for value in (*body.input, *body.output)]
    made_here = (value for node in nodes for value in node.output)
    names = lettered((*made.input, *(value.name for value in bodies), *made_here))
    made.input[:], made.output[:] = ([names[value] for value in values] for values in (made.input, made.output))
    for value in bodies:
        value.name = names[value.name]
    for node in nodes:
        node.input[:], node.output[:] = ([names[value] for value in values] for values in (node.input, node.output))
        for given in node.attribute:
            if given.HasField("t"):
                given.t.CopyFrom(stored(numpy_helper.to_array(given.t)))
    return without_defaults(made)


def _bodies(nodes: Iterable[onnx.NodeProto]) -> list[onnx.GraphProto]:
    return [given.g for node in nodes for given in node.attribute if given.HasField("g")]


def _all(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those in the bodies of loops."""
    for node in nodes:
        yield node
        for body in _bodies([node]):
            yield from _all(body.node)


# --- what ops have in common ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """Nodes `first` to `last`, without it, are an op's."""

    kind: str
    name: str
    first: int
    last: int


def folded(
    nodes: list[onnx.NodeProto], ops: list[Steps], opset: int
) -> tuple[list[onnx.NodeProto], list[onnx.FunctionProto]]:
    """The nodes, and the functions that they call. Only calls of functions may have attributes of which ops have values of their own."""
    alike: dict[Any, list[Steps]] = {}
    for op in ops:
        if op.last - op.first > 1 and _closed(nodes, op):
            alike.setdefault(_shape(nodes[op.first : op.last]), []).append(op)
    functions, calls, kinds = [], dict[int, tuple[Steps, onnx.NodeProto]](), Counter[str]()
    for same in alike.values():
        steps = [nodes[op.first : op.last] for op in same]
        name = f"{same[0].kind}{kinds[same[0].kind] + 1}"  # with a number: none is called like an operator of ONNX
        function = _common(name, steps[0], opset)
        made_calls = [_call(name, op.name, own) for op, own in zip(same, steps, strict=True)]
        if _bytes([function, *made_calls]) < sum(map(_bytes, steps)):
            kinds[same[0].kind] += 1
            functions.append(function)
            calls |= {op.first: (op, call) for op, call in zip(same, made_calls, strict=True)}
    made, index = [], 0
    while index < len(nodes):
        if index in calls:
            op, call = calls[index]
            made.append(call)
            index = op.last
        else:
            made.append(nodes[index])
            index += 1
    return made, functions


def _bytes(parts: Iterable[onnx.NodeProto | onnx.FunctionProto]) -> int:
    return sum(len(part.SerializeToString()) for part in parts)


def _closed(nodes: list[onnx.NodeProto], op: Steps) -> bool:
    """Nobody else reads what the op makes on its way to its map."""
    inner = {name for node in nodes[op.first : op.last] for name in node.output} - set(nodes[op.last - 1].output)
    return not any(inner.intersection(node.input) for node in (*nodes[: op.first], *nodes[op.last :]))


def _outside(nodes: list[onnx.NodeProto]) -> list[str]:
    """What the nodes read and do not make, in the order of reading."""
    made = {name for node in nodes for name in node.output}
    return list(dict.fromkeys(name for node in nodes for name in node.input if name and name not in made))


def _shape(nodes: list[onnx.NodeProto]) -> tuple[Any, ...]:
    """What the nodes have in common with others that differ in names only."""
    places = {name: place for place, name in enumerate(_outside(nodes))}
    found: list[Any] = []
    for node in nodes:
        attributes = [
            given.name if node.domain == DOMAIN else given.SerializeToString(deterministic=True)
            for given in node.attribute
        ]
        read = [places.get(name) for name in node.input]
        for name in node.output:
            places[name] = len(places)
        found.append((node.op_type, node.domain, tuple(attributes), tuple(read), len(node.output)))
    return tuple(found)


def _common(name: str, nodes: list[onnx.NodeProto], opset: int) -> onnx.FunctionProto:
    inside = lettered((*_outside(nodes), *(name for node in nodes for name in node.output)))
    steps, own = [], iter(_own(nodes))
    for node in nodes:
        step = helper.make_node(node.op_type, [inside[v] for v in node.input], [inside[v] for v in node.output])
        step.domain = node.domain
        for given in node.attribute:
            if node.domain == DOMAIN:
                refers = {"ref_attr_name": next(own).name}
                step.attribute.append(onnx.AttributeProto(name=given.name, type=given.type, **refers))
            else:
                step.attribute.append(given)
        steps.append(step)
    opsets = [helper.make_opsetid("", opset)]
    if any(node.domain == DOMAIN for node in nodes):
        opsets.append(helper.make_opsetid(DOMAIN, 1))
    read, made = ([inside[v] for v in values] for values in (_outside(nodes), nodes[-1].output))
    attributes = [given.name for given in _own(nodes)]
    return without_defaults(helper.make_function(DOMAIN, name, read, made, steps, opsets, attributes))


def without_defaults(function: onnx.FunctionProto) -> onnx.FunctionProto:
    """The domain of ONNX's own operators is the empty name, and need not be written."""
    for opset in function.opset_import:
        if not opset.domain:
            opset.ClearField("domain")
    return function


def lettered(values: Iterable[str], kept: Iterable[str] = ()) -> dict[str, str]:
    """New names of values: a letter or a digit, two where these do not suffice; some may keep their names."""
    names = {name: name for name in ("", *kept)}
    letters = (first + second for first in ("", *ascii_letters) for second in ascii_letters + digits)
    free = (letter for letter in letters if letter not in names)
    often = (value for value, _ in Counter(values).most_common())
    return names | {value: next(free) for value in often if value not in names}


def _own(nodes: list[onnx.NodeProto]) -> list[onnx.AttributeProto]:
    """The attributes of which an op has values of its own, with a name each: `real`, `by`, `real2`, `by2`."""
    found = [
        onnx.AttributeProto.FromString(g.SerializeToString()) for n in nodes if n.domain == DOMAIN for g in n.attribute
    ]
    times = Counter[str]()
    for given in found:
        times[given.name] += 1
        if times[given.name] > 1:
            given.name += str(times[given.name])
    return found


def _call(name: str, op: str, nodes: list[onnx.NodeProto]) -> onnx.NodeProto:
    call = helper.make_node(name, _outside(nodes), list(nodes[-1].output), op, domain=DOMAIN)
    call.attribute.extend(_own(nodes))
    return call


def stored(array: NDArray[Any], name: str = "") -> onnx.TensorProto:
    """A tensor in the shorter of ONNX's two ways: its bytes, or its numbers, of which small ones take a byte whatever their type."""
    plain = numpy_helper.from_array(array, name or None)
    if array.dtype.kind not in "iu":
        return plain
    listed = helper.make_tensor(name, plain.data_type, array.shape, array.reshape(-1).tolist())
    if not name:
        listed.ClearField("name")
    return min(plain, listed, key=lambda tensor: len(tensor.SerializeToString()))
