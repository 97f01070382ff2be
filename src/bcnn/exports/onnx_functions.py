"""Functions of the exported ONNX models, domain `b`: steps that come back many times, said once. All but `Signs` are on int32 numbers, of integer programs.

A line of text each, in ONNX's own notation; `onnx_graph` puts those that a model calls into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import onnx
from onnx import numpy_helper, parser

from bcnn.exports.onnx_fold import lettered, stored, without_defaults

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
