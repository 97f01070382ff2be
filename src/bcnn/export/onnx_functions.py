"""Functions of the exported ONNX models, domain `bcnn`: steps that come back many times, said once. All are on int32 numbers, of integer programs.

A line of text each, in ONNX's own notation; `onnx_graph` puts those that a model calls into it.
"""

from __future__ import annotations

import re

import onnx
from onnx import parser

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
    "Stepped": ("x, step", "wide = Cast <to = 6> (x)  wider = Cast <to = 6> (step)  y = Mul (wide, wider)"),
    "Bent": (
        "v, x, step",
        "bend = bcnn.Stepped (x, step)  zero = Constant <value = int32 {0}> ()  below = Min (v, zero)"
        "  more = bcnn.Product (below, bend)  y = bcnn.Plus (v, more)",
    ),
    "Bounded": (
        "v, x, step",
        "limit = bcnn.Stepped (x, step)  least = Neg (limit)  high = Max (v, least)  y = Min (high, limit)",
    ),
    # bits, eight to a byte, to -1 and +1
    "Signs": (
        "bits, table, shape",
        "rows = Cast <to = 6> (bits)  signs = Gather (table, rows)  y = Reshape (signs, shape)",
    ),
    # a branch of a pointwise binary convolution: 2 stands for +1, 0 for -1, as the product subtracts 1
    "Branch": (
        "x, a, a_step, w, s, s_step, o, o_step",
        "above = bcnn.Stepped (a, a_step)  scale = bcnn.Stepped (s, s_step)  offset = bcnn.Stepped (o, o_step)"
        "  plus = Constant <value = uint8 {2}> ()  minus = Constant <value = uint8 {0}> ()  none = Constant <value = uint8 {1}> ()"
        "  bits = Greater (x, above)  signs = Where (bits, plus, minus)  dot = MatMulInteger (signs, w, none)"
        "  term = bcnn.Product (dot, scale)  y = bcnn.Plus (term, offset)",
    ),
    "BitBranch": (
        "x, a, a_step, bits, table, s, s_step, o, o_step",
        "shape = Constant <value_ints = [0, -1]> ()  w = bcnn.Signs (bits, table, shape)"
        "  y = bcnn.Branch (x, a, a_step, w, s, s_step, o, o_step)",
    ),
    "Tap": ("v, x, w, t", "own = Gather (w, t)  xw = bcnn.Product (x, own)  y = bcnn.Plus (v, xw)"),
}


def _filter() -> str:
    """A depth wise filter of 3 x 3 taps on a padded map. A tap ends as many pixels before the end as taps follow it."""
    lines = [
        "w = bcnn.Stepped (x_w, w_step)  v0 = bcnn.Stepped (x_o, o_step)  axes = Constant <value_ints = [1, 2]> ()"
    ]
    ends = (-2, -1, 2147483647)
    for tap in range(9):
        ky, kx = divmod(tap, 3)
        lines.append(
            f"b{tap} = Constant <value_ints = [{ky}, {kx}]> ()  e{tap} = Constant <value_ints = [{ends[ky]}, {ends[kx]}]> ()"
            f"  x{tap} = Slice (x, b{tap}, e{tap}, axes, strides)  t{tap} = Constant <value_int = {tap}> ()"
            f"  {'y' if tap == 8 else f'v{tap + 1}'} = bcnn.Tap (v{tap}, x{tap}, w, t{tap})"
        )
    return "  ".join(lines)


TEXTS["Filter"] = ("x, x_w, w_step, x_o, o_step, strides", _filter())


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
    return parser.parse_function(f"{head}\n{name} ({inputs}) => (y)\n{{ {steps} }}")
