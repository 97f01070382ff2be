"""Functions of the exported ONNX models, domain `bcnn`: steps that come back many times, said once. All but `Signs` are on int32 numbers, of integer programs.

A line of text each, in ONNX's own notation; `onnx_graph` puts those that a model calls into it.
"""

from __future__ import annotations

import re

import onnx
from onnx import parser

from bcnn.export.onnx_fold import lettered

DOMAIN = "bcnn"
# name -> its inputs, and its steps; the last one makes `y`
TEXTS = {
    # floor(v / d), d > 0: Mod has the sign of d, and what is left divides without a rest
    "Floor": ("v, d", "rest = Mod (v, d)  even = Sub (v, rest)  y = Div (even, d)"),
    # (a * b + 2^14) >> 15, where |a * b| < 2^30: lifted by 2^30 nothing is negative
    "Product": (
        "a, b",
        "up = Constant <value = int32 {1073758208}> ()  unit = Constant <value = int32 {32768}> ()"
        "  ab = Mul (a, b)  lifted = Add (ab, up)  high = Div (lifted, unit)  y = Sub (high, unit)",
    ),
    # a + b, saturated
    "Plus": (
        "a, b",
        "low = Constant <value = int32 {-32768}> ()  most = Constant <value = int32 {32767}> ()"
        "  ab = Add (a, b)  y = Clip (ab, low, most)",
    ),
    # a row for each parameter: bytes, times the step of the row
    "Rows": (
        "x",
        "columns = Transpose (x)  n = Cast <to = 7> (columns)  s = Constant <value_ints: ints = @steps> ()  ns = Mul (n, s)"
        "  rows = Transpose (ns)  y = Cast <to = 6> (rows)",
    ),
    # PReLU: v + (the slope less 1) * v, where v is below 0
    "Bent": (
        "v, bend, low",
        "w = Max (v, low)  zero = Constant <value = int32 {0}> ()  below = Min (w, zero)"
        "  more = bcnn.Product (below, bend)  y = bcnn.Plus (w, more)",
    ),
    # v within a limit, then times a power of two, saturated
    "Bounded": (
        "v, limit, unit",
        "least = Neg (limit)  high = Max (v, least)  w = Min (high, limit)  wide = Mul (w, unit)"
        "  zero = Constant <value = int32 {0}> ()  y = bcnn.Plus (wide, zero)",
    ),
    # bits, eight to a byte, lowest first, to -1 and +1
    "Signs": (
        "bits",
        'places = Constant <value = uint8[8] {0, 1, 2, 3, 4, 5, 6, 7}> ()  right = BitShift <direction = "RIGHT"> (bits, places)'
        "  two = Constant <value = uint8 {2}> ()  bit = Mod (right, two)  index = Cast <to = 6> (bit)"
        "  pair = Constant <value = int8[2] {-1, 1}> ()  signs = Gather (pair, index)  y = Flatten (signs)",
    ),
    # a branch of a pointwise binary convolution: 2 stands for +1, 0 for -1, as the product subtracts 1
    "Branch": (
        "x, above, w, scale, offset",
        "plus = Constant <value = uint8 {2}> ()  minus = Constant <value = uint8 {0}> ()  none = Constant <value = uint8 {1}> ()"
        "  bits = Greater (x, above)  signs = Where (bits, plus, minus)  dot = MatMulInteger (signs, w, none)"
        "  term = bcnn.Product (dot, scale)  y = bcnn.Plus (term, offset)",
    ),
    # v and one tap of a depth wise filter on a padded map, whose weights are multiples of a step
    "Tap": (
        "v, x, w, step, begin, span, strides",
        "end = Add (begin, span)  axes = Constant <value_ints = [1, 2]> ()  at = Slice (x, begin, end, axes, strides)"
        "  own = Mul (w, step)  term = bcnn.Product (at, own)  y = bcnn.Plus (v, term)",
    ),
}
# the attributes of those that have any
ATTRIBUTES = {"Rows": "steps"}


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
    inputs, steps = TEXTS[name]
    others = f', "{DOMAIN}" : 1' if _calls(name) else ""
    head = f'<domain: "{DOMAIN}", opset_import: ["" : {opset}{others}]>'
    attributes = f"<{ATTRIBUTES[name]}>" if name in ATTRIBUTES else ""
    made = parser.parse_function(f"{head}\n{name} {attributes} ({inputs}) => (y)\n{{ {steps} }}")
    kept = {value: value for value in (*made.input, *made.output)}
    names = lettered((value for node in made.node for value in node.output), kept)
    for node in made.node:
        node.input[:], node.output[:] = ([names[value] for value in values] for values in (node.input, node.output))
    return made
