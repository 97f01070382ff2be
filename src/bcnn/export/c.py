"""`--to c`: a folder with model.c and model.h, C99 for microcontrollers, and what tests and builds them. Integer programs. No torch.

    c_plan.py      which rows of which maps are in RAM at a time
    c_tables.py    the program as constant tables
    device/        what reads the tables on the device: a function an op, one row at a time; and the templates of the other files

Where a C compiler is at hand the written test program is built and run here, and nothing is written unless it finds every test vector
equal.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bcnn import __version__
from bcnn.deploy import card
from bcnn.deploy.packfile import Packed, vector_image
from bcnn.errors import UserError
from bcnn.export.c_tables import BY_ROWS, RULES, Tables, kind, tables
from bcnn.files import write_atomic
from bcnn.program import ops
from bcnn.program.interpret import interpret_maps

PARTS = Path(__file__).parent / "device"
ENDINGS = (ops.FixedAdd, ops.FixedGate, ops.FixedAffine, ops.FixedPReLU, ops.ReLU, ops.FixedClip, ops.Bound, ops.Shift, ops.FixedSign, ops.Table)  # fmt: skip
# The op of a file of device/ -> the function in it, and what that needs; an op that is not used costs no code.
FLOOR, MEANS, TAPS = "floor.c", "means.c", "taps.c"
FUNCTIONS: dict[type[ops.Op], tuple[str, tuple[str, ...]]] = {
    ops.FixedBinaryConv: ("fixed_binary_conv", (TAPS, "fixed_binary_conv.c")),
    ops.FixedConv: ("fixed_conv", (TAPS, "fixed_conv.c")),
    ops.FixedDepthwise: ("fixed_depthwise", ("fixed_depthwise.c",)),
    ops.FixedAvgPool: ("pool", (FLOOR, MEANS, TAPS, "pools.c")),
    ops.MaxPool: ("pool", (FLOOR, MEANS, TAPS, "pools.c")),
    ops.FixedGlobalAvgPool: ("fixed_global_avg_pool", (FLOOR, "fixed_global_avg_pool.c")),
    ops.FixedChannelAvg: ("channel_means", (FLOOR, MEANS, "channel_means.c")),
    ops.FixedAbsMean: ("channel_means", (FLOOR, MEANS, "channel_means.c")),
    ops.Pointwise: ("move", ("moves.c",)),
    ops.Concat: ("move", ("moves.c",)),
    ops.Select: ("move", ("moves.c",)),
    ops.Upsample: ("move", ("moves.c",)),
}
SUMS = (ops.FixedGlobalAvgPool,)  # take a row of their source in a step, and have no endings


def export(packed: Packed, path: Path) -> Iterator[str]:
    made = tables(packed.program)
    yield f"{path}: {made.flash:,} bytes of flash for constants, {made.ram:,} bytes of RAM."
    written = files(packed, made, path.resolve().name)
    proof = _proof(written, len(packed.test_seeds) or 1)
    path.mkdir(exist_ok=True)
    for name, text in written.items():
        write_atomic(path / name, text.encode())
    yield f"Wrote {', '.join(written)}."
    yield proof


def files(packed: Packed, made: Tables, name: str) -> dict[str, str]:
    """By name the text of every file of the folder."""
    program = packed.program
    known = card.of(program)
    plain = re.sub(r"[^a-z0-9_]", "_", name.lower()) or "model"
    seeds = packed.test_seeds or (0,)
    wanted = [interpret_maps(program, vector_image(seed, *program.shapes[0][:2]))[-1].reshape(-1) for seed in seeds]
    values = {
        "NAME": plain,
        "BIG": plain.upper(),
        "TITLE": _comment(known.title if known else name),
        "VERSION": __version__,
        "FLASH": made.flash,
        "RAM": made.ram,
        "HEIGHT": program.shapes[0][0],
        "WIDTH": program.shapes[0][1],
        "OUTPUTS": int(np.prod(program.shapes[-1])),
        "FRACTION": program.fractions[-1],
        "LABELS": _labels(plain, program.labels),
        "VECTORS": len(seeds),
        "SEEDS": ", ".join(f"{seed}u" for seed in seeds),
        "WANTED": "".join(f"    {{{', '.join(map(str, row.tolist()))}}},\n" for row in wanted),
        **dict(zip(("WORDS", "MADE", "NUMBERS"), made.arena, strict=True)),
    }
    names = ("model.h", "test.c", "CMakeLists.txt", "README.md")
    texts = {"model.c": _filled(model(made), values)}
    return texts | {part: _filled(_part(part), values) for part in names}


def model(made: Tables) -> str:
    """model.c, names still to be filled in."""
    used = list(dict.fromkeys(type(op) for op in made.program.ops if type(op) in FUNCTIONS))
    parts = list(dict.fromkeys(part for cls in used for part in FUNCTIONS[cls][1]))
    kinds = ", ".join([*(_constant(cls) for cls in (*RULES, *ENDINGS)), BY_ROWS])
    whole = "".join(
        f"    case {_constant(cls)}: {FUNCTIONS[cls][0]}(m, o, out, y); break;\n" for cls in used if cls not in SUMS
    )
    sums = "".join(f"    case {_constant(cls)}: {FUNCTIONS[cls][0]}(m, o, y); return;\n" for cls in used if cls in SUMS)
    if ops.FixedDepthwise in used:
        sums += f"    case {BY_ROWS}: fixed_depthwise_by_rows(m, o, y); return;\n"
    step = (
        "/* One step of an op: those that add up a row of their source, and those that make a row. */\n"
        "static void step(arena *m, const op *o, uint32_t y) {\n"
        f"    int16_t *out;\n    switch (o->kind) {{\n{sums}    default: break;\n    }}\n"
        "    out = m->numbers + slots[o->at + y];\n"
        f"    switch (o->kind) {{\n{whole}    default: break;\n    }}\n    finish(m, o, out, y);\n}}\n"
    )
    return "\n".join(
        [
            "/* Made by bcnn @VERSION@; do not edit. See model.h. */",
            '#include "model.h"\n\n#include <string.h>\n',
            f"enum {{ {kinds} }};\n\ntypedef bcnn_@NAME@_arena arena;\n\n#define OPS {len(made.ops)}\n",
            _part("types.c"),
            _array("uint32_t words", made.words, lambda v: f"0x{v:x}u"),
            _array("int32_t wide", made.wide, _int32),
            _array("uint32_t slots", made.slots, str),
            _array("int16_t numbers", made.numbers, str),
            _array("int8_t bytes", made.bytes, str),
            _array("need needs", made.needs, _struct),
            _array("branch branches", made.branches, _struct),
            _array("ending endings", made.endings, _struct),
            _array("op ops", made.ops, _struct),
            _part("numbers.c"),
            _part("endings.c"),
            *(_part(part) for part in parts),
            step,
            _part("pull.c"),
            _part("api.c"),
        ]
    )


# --- text -------------------------------------------------------------------------------------------------------------


def _part(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def _filled(text: str, values: dict[str, Any]) -> str:
    return re.sub(r"@([A-Z]+)@", lambda found: str(values[found[1]]), text)


def _constant(cls: type) -> str:
    return kind(object.__new__(cls))


def _array(declared: str, rows: list[Any], shown: Any) -> str:
    """In lines of at most 120 characters."""
    lines, line = [], "   "
    for row in rows:
        text = f" {shown(row)},"
        if len(line) + len(text) > 120:
            lines.append(line)
            line = "   "
        line += text
    if declared in BINARY and not rows:
        return ""
    body = "\n".join([*lines, line]) if rows else EMPTY.get(declared, "    0")
    return f"static const {declared}[{max(len(rows), 1)}] = {{\n{body}\n}};\n"


BINARY = ("uint32_t words", "branch branches")  # tables that nobody names but binary convolutions
EMPTY = {"need needs": "    {0, 0, 0, 0, 0}", "ending endings": "    {{0, 0}, {0, 0}, 0, 0, 0, 0, 0, 0, 0, 0}"}


def _struct(row: list[Any]) -> str:
    return "{" + ", ".join(_field(value) for value in row) + "}"


def _field(value: Any) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(_field(part) for part in value) + "}"
    return f"{value}u" if isinstance(value, int) and value > 0x7FFF else str(value)


def _int32(value: int) -> str:
    return "-2147483647 - 1" if value == -(1 << 31) else str(value)


def _comment(text: str) -> str:
    """Text of a file in a comment or a document: no end of the comment, no other lines, no signs that a compiler may stumble at."""
    return "".join(c if c.isascii() and c.isprintable() and c not in "*/\\@?" else " " for c in text)


def _labels(name: str, labels: tuple[str, ...]) -> str:
    """A macro costs no flash where nobody uses it."""
    if not labels:
        return ""
    quoted = ", ".join('"' + "".join(_escaped(byte) for byte in label.encode()) + '"' for label in labels)
    return f"#define BCNN_{name.upper()}_LABELS {{{quoted}}}\n"


def _escaped(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?@' else f"\\{byte:03o}"


# --- proof ------------------------------------------------------------------------------------------------------------


def compiler() -> str | None:
    """The C compiler of this machine: CC, or the first of the usual names."""
    names = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    return next((found for found in map(shutil.which, names) if found), None)


def _proof(written: dict[str, str], vectors: int) -> str:
    found = compiler()
    if found is None:
        return "Not run here: there is no C compiler; build test.c with model.c, it compares the test vectors."
    with tempfile.TemporaryDirectory() as folder:
        for name, text in written.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        said = build_and_run(found, Path(folder))
    if not said.startswith("equal"):
        raise UserError(f"the C program does not compute this program, nothing was written: {said.splitlines()[0]}")
    which = f"{vectors} test vector{'s' * (vectors > 1)}"
    return f"Built with {Path(found).name} and run here, {which}, whole and row by row: every output equals that of the packed file."


def build_and_run(found: str, folder: Path, *options: str) -> str:
    """What the test program of a folder says."""
    built = folder / "test"
    sources = [str(folder / name) for name in ("model.c", "test.c")]
    for command in ([found, "-std=c99", "-O2", *options, *sources, "-o", str(built)], [str(built)]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"{done.stdout}{done.stderr}".strip() or f"{Path(command[0]).name} ended with {done.returncode}"
    return done.stdout
