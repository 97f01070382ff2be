"""The endings of an op as a C function: what follows its sums, value by value. No torch.

The generator knows which endings follow each other, so the device interprets none. Ops with the same endings share a function. It
reads their parameters once a channel and goes down a row with them; shifts and limits are constants in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """An ending as code knows it. Its parameters, and the map that it reads, are in the table of endings."""

    kind: str
    shift: int = 0
    low: int = 0
    high: int = 0
    a: bool = False  # has a scale
    b: bool = False  # has an offset
    part: tuple[int, int] | None = None  # the channels that it changes, from and how many, where those are not all


# A function of device/*/endings.c and its arguments: n counts the endings of an op, p points into another map, a and b are a channel's.
CALLS = {
    "int16": {
        "TERM": "term_of(v, scale, all, offset)",
        "ADD": "added(v, *p{n}, {shift})",
        "GATE": "gated(v, *p{n}, {shift})",
        "SCALE": "scaled(v, a{n}, {shift})",
        "OFFSET": "moved(v, b{n})",
        "PRELU": "prelu(v, a{n}, half, {shift})",
        "RELU": "relu(v)",
        "CLIP": "clip(v, {low}, {high})",
        "BOUND": "bound(v, a{n})",
        "SHIFT": "shifted(v, {shift})",
        "SIGN": "sign(v, a{n}, {high})",
        "TABLE": "curve(v, e[{n}].a, {shift})",
    },
    "float32": {
        "ADD": "added(v, *p{n})",
        "GATE": "gated(v, *p{n})",
        "SCALE": "scaled(v, a{n})",
        "OFFSET": "moved(v, b{n})",
        "PRELU": "prelu(v, a{n})",
        "RELU": "relu(v)",
        "CLIP": "clip(v, value(e[{n}].a, 0), value(e[{n}].a, 1))",
        "SIGN": "sign(v, a{n})",
        "SIGMOID": "sigmoid(v)",
    },
}
MAPS = ("ADD", "GATE")
BY_CHANNEL = ("SCALE", "PRELU", "BOUND", "SIGN")  # have a parameter for each channel


def calls(forms: Sequence[Form], numbers: str) -> Iterator[tuple[int, Form, str, str]]:
    """Number of the ending, its form, the step's kind, and the call."""
    for n, form in enumerate(forms, -1 if forms[0].kind == "TERM" else 0):
        kinds = [form.kind] if form.kind != "AFFINE" else ["SCALE"] * form.a + ["OFFSET"] * form.b
        for kind in kinds:
            call = CALLS[numbers][kind].format(n=n, shift=form.shift, low=form.low, high=form.high)
            yield n, form, kind, call


def function(number: int, forms: Sequence[Form], numbers: str, pixels: int) -> str:
    """`finish_NUMBER`, which changes a row of an op in place, so many pixels in a round of its loop."""
    steps = list(calls(forms, numbers))
    maps = [n for n, _, kind, _ in steps if kind in MAPS]
    row: list[str] = []
    channel: list[str] = []
    change: list[str] = []
    down: list[str] = []
    if forms[0].kind == "TERM":
        row.append("    const branch *b = branches + o->parts;")
    for n, form, kind, call in steps:
        inside = f"k - {form.part[0]}u < {form.part[1]}u" if form.part else ""
        if kind in MAPS:
            y = f"map{n}->height == 1 ? 0 : y" if kind == "GATE" else "y"
            step = f"map{n}->width == 1 ? 0 : map{n}->channels" if kind == "GATE" else f"map{n}->channels"
            row.append(f"    const op *map{n} = ops + e[{n}].map;")
            row.append(f"    const number *from{n} = map_row(m, map{n}, {y});")
            row.append(f"    const uint32_t step{n} = {step};")
            row.append(f"    const uint32_t channels{n} = map{n}->channels;")
            row.append(f"    uint32_t c{n} = 0;")
            channel.append(f"        const number *p{n} = from{n} + c{n};")
            wrap = f"if (++c{n} == channels{n}) c{n} = 0;"
            down.append(f"        {f'if ({inside}) ' if inside else ''}{'{ ' + wrap + ' }' if inside else wrap}")
        elif kind in BY_CHANNEL:
            channel.append(f"        const parameter a{n} = value(e[{n}].a, k);")
        elif kind == "OFFSET":
            channel.append(f"        const parameter b{n} = value(e[{n}].b, k);")
        elif kind == "TERM":
            channel.append("        const int32_t scale = value(b->scale, k), offset = value(b->offset, k);")
            channel.append("        const int32_t all = o->reads * (scale / 2) + 16384;")
            call = call if form.low else f"clamped({call})"
        change.append(f"            {f'if ({inside}) ' if inside else ''}v = {call};")
    if numbers == "int16" and any(kind == "PRELU" for _, _, kind, _ in steps):
        row.append("    const int32_t half = o->half;")
    if "e[" in "".join([*row, *channel, *change]):
        row.insert(0, "    const ending *e = endings + o->endings;")
    further = "".join(f", p{n} += step{n}" for n in maps)
    once = ["            v = *at;", *change, "            *at = (number)v;", f"            at += step{further};"]
    return "\n".join(
        [
            f"static void finish_{number}(const arena *m, const op *o, number *row, uint32_t y) {{",
            *row,
            "    const uint32_t step = o->channels, width = o->width;",
            "    uint32_t k, x;",
            *([] if maps else ["    (void)m, (void)y;"]),
            "    for (k = 0; k < step; k++, row++) {",
            *channel,
            "        number *at = row;",
            f"        for (x = width; x; x -= {pixels}) {{",
            "            parameter v;",
            *once * pixels,
            "        }",
            *down,
            "    }",
            "}",
            "",
        ]
    )
