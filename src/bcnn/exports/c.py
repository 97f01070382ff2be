"""`--to c`: a folder with model.c and model.h, C99 for microcontrollers, and what tests and builds them. Integers or floats. No torch.

    c_plan.py      which rows of which maps are in RAM at a time
    c_tables.py    constant tables, and the bytes they take
    c_rules.py     the program as rows of those tables
    device/        what reads the tables on the device: a function an op, one row at a time; and the templates of the other files.
                   int16/ and float32/ have what differs: the arithmetic, and ops that compute more than the others share

Where a C compiler is at hand the written test program is built and run here, and nothing is written unless it finds every test vector
equal.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bcnn.base.errors import UserError
from bcnn.base.files import write_atomic
from bcnn.base.version import __version__
from bcnn.exports.c_endings import function
from bcnn.exports.c_rules import BINARY_PIXELS, BINARY_TABLES, BY_ROWS, KIND, fits, kind, kinds, tables
from bcnn.exports.c_tables import ROWS, Tables
from bcnn.packed import card
from bcnn.packed.packfile import Packed, vector_image
from bcnn.program import ops
from bcnn.program.interpret import interpret_maps
from bcnn.program.ops import Values
from bcnn.program.program import Program

PARTS = Path(__file__).parent / "device"
# Of a program's numbers: a value of a map in C, a parameter once it is read, and an output in test.c.
NUMBERS = {"int16": ("int16_t", "int32_t", "int16_t"), "float32": ("float", "float", "uint32_t")}
# The kind of an op -> the function that makes a row or takes one, and the files of device/ that has; an op that is not used costs no code.
FLOOR, MEANS, TAPS, FILTER = "floor.c", "means.c", "taps.c", "filter.c"
SHARED = {
    "BINARY_CONV": ("binary_conv", (TAPS, "ones.c", "binary_conv_numbers.c", "binary_conv.c")),
    **dict.fromkeys(("POINTWISE", "CONCAT", "SELECT", "UPSAMPLE"), ("move", ("copy_ops.c",))),
}
FUNCTIONS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "int16": {
        **SHARED,
        BINARY_PIXELS: ("binary_pixels", ("ones.c", "binary_pixels.c")),
        BINARY_TABLES: ("binary_tables", ("ones.c", "binary_pixels.c", "binary_tables.c")),
        "CONV": ("conv", (TAPS, "conv.c")),
        "DEPTHWISE": ("filter", ("depthwise.c", FILTER)),
        **dict.fromkeys(("AVG_POOL", "MAX_POOL"), ("pool", (FLOOR, MEANS, TAPS, "pools.c"))),
        "GLOBAL_AVG_POOL": ("global_avg_pool", (FLOOR, "global_avg_pool.c")),
        **dict.fromkeys(("CHANNEL_AVG", "ABS_MEAN"), ("channel_means", (FLOOR, MEANS, "channel_means.c"))),
    },
    "float32": {
        **SHARED,
        **dict.fromkeys(("CONV", "LINEAR"), ("filter", ("conv.c", FILTER))),
        **dict.fromkeys(("AVG_POOL", "MAX_POOL"), ("pool", (TAPS, "pools.c"))),
        "GLOBAL_AVG_POOL": ("global_avg_pool", ("global_avg_pool.c",)),
        **dict.fromkeys(("CHANNEL_AVG", "ABS_MEAN"), ("channel_means", ("channel_means.c",))),
    },
}
SUMS = "GLOBAL_AVG_POOL"  # takes a row of its source in a step, and has no endings
MADE = "Made by bcnn"  # stands in model.h


def export(packed: Packed, path: Path, ram: str = "") -> Iterator[str]:
    made = tables(packed.program)
    if ram and made.ram > int(ram):
        raise UserError(f"this program needs {made.ram:,} bytes of RAM, and --ram is {int(ram):,}; nothing was written")
    written = files(packed, made, path.resolve().name)
    _check_folder(path, written)
    yield f"{path}: {made.flash(code(made)):,} bytes of flash for constants, {made.ram:,} bytes of RAM."
    proof = _proof(written, len(packed.test_seeds) or 1)
    path.mkdir(exist_ok=True)
    for name, text in written.items():
        write_atomic(path / name, text.encode())
    yield f"Wrote {', '.join(written)}."
    yield proof


def _check_folder(path: Path, names: Iterable[str]) -> None:
    """An earlier export may be written over; a README.md or CMakeLists.txt of somebody else is left alone."""
    header = path / "model.h"
    ours = header.is_file() and MADE in header.read_text(encoding="utf-8", errors="replace")
    theirs = [name for name in names if (path / name).exists()]
    if theirs and not ours:
        raise UserError(f"{path} has a {theirs[0]} that is not of an export; give another folder with -o")


def files(packed: Packed, made: Tables, name: str) -> dict[str, str]:
    """By name the text of every file of the folder."""
    program = packed.program
    known = card.of(program)
    plain = re.sub(r"[^a-z0-9_]", "_", name.lower()) or "model"
    seeds = packed.test_seeds or (0,)
    wanted = [interpret_maps(program, vector_image(seed, *program.shapes[0][:2]))[-1].reshape(-1) for seed in seeds]
    integers = program.numbers == "int16"
    big = f"BCNN_{plain.upper()}"
    values = {
        "NAME": plain,
        "BIG": plain.upper(),
        "TITLE": _comment(known.title if known else name),
        "VERSION": __version__,
        "FLASH": made.flash(code(made)),
        "RAM": made.ram,
        "HEIGHT": program.shapes[0][0],
        "WIDTH": program.shapes[0][1],
        "OUTPUTS": int(np.prod(program.shapes[-1])),
        "NOFLOAT": ", no floating point" * integers,
        "FRACTION": f"#define {big}_FRACTION ({program.fractions[-1]}) /* an output v stands for v / 2^FRACTION */\n"
        if integers
        else "",
        "CAREFUL": "" if integers else CAREFUL,
        "LABELS": _labels(plain, program.labels),
        "VECTORS": len(seeds),
        "SEEDS": ", ".join(f"{seed}u" for seed in seeds),
        "EQUAL": _part("equal.c", program.numbers) + "\n",
        "WANTED": "".join(f"    {{{', '.join(_stored(row))}}},\n" for row in wanted),
        **dict(zip(("NUMBER", "PARAMETER", "STORED"), NUMBERS[program.numbers], strict=True)),
        **dict(zip(("WORDS", "MADE", "NUMBERS"), made.arena, strict=True)),
    }
    texts = {"model.c": _filled(model(made), values)}
    return texts | {part: _filled(_part(part), values) for part in ("model.h", "test.c", "CMakeLists.txt", "README.md")}


CAREFUL = (
    "- Every operation is one float32 rounding, in a fixed order: not with -ffast-math (an error), and with clang not with\n"
    "  -ffp-contract=fast; the processor must not flush denormals. `test.c` says whether all is well.\n"
)


def model(made: Tables) -> str:
    """model.c, names still to be filled in."""
    own = code(made)
    return "\n".join(
        [
            "/* Made by bcnn @VERSION@; do not edit. See model.h. */",
            '#include "model.h"\n\n#include <string.h>\n',
            f"enum {{ {', '.join(kinds())} }};\n\ntypedef bcnn_@NAME@_arena arena;\ntypedef @NUMBER@ number; /* of a map */",
            f"typedef @PARAMETER@ parameter; /* once it is read */\n\n#define OPS {len(made.ops)}",
            f"#define MIXED {int(made.mixed)} /* parameters of 16 bits beside those of 8 */\n",
            _part("types.c"),
            *(_array(name, rows) for name, rows in made.named_in(own).items()),
            own,
        ]
    )


def code(made: Tables) -> str:
    """What reads the tables: the parts that this program needs."""
    numbers = made.program.numbers
    functions = FUNCTIONS[numbers]
    kinds_used = [
        row[KIND] if row[KIND] != BY_ROWS else kind(type(op))
        for row, op in zip(made.ops, made.program.ops, strict=True)
    ]
    names = list(dict.fromkeys(name for name in kinds_used if name in functions))
    parts = list(dict.fromkeys(part for name in names for part in functions[name][1]))
    call = "    case {name}: {function}(m, o, out, y); break;\n"
    calls = [call.format(name=name, function=functions[name][0]) for name in names if name not in (SUMS, BINARY_TABLES)]
    if BINARY_TABLES in names:
        either = (
            call.format(name=BINARY_TABLES, function=functions[name][0]) for name in (BINARY_PIXELS, BINARY_TABLES)
        )
        calls.append("#ifdef POPCOUNT\n{}#else\n{}#endif\n".format(*either))
    whole = "".join(calls)
    sums = f"    case {SUMS}: {functions[SUMS][0]}(m, o, y); return;\n" if SUMS in names else ""
    if FILTER in parts:
        sums += f"    case {BY_ROWS}: filter_by_rows(m, o, y); return;\n"
    step = (
        "/* One step of an op: those that add up a row of their source, and those that make a row. */\n"
        "static void step(arena *m, const op *o, uint32_t y) {\n"
        f"    number *out;\n    switch (o->kind) {{\n{sums}    default: break;\n    }}\n"
        "    out = m->numbers + slots[o->at + y];\n"
        f"    switch (o->kind) {{\n{whole}    default: break;\n    }}\n    finish(m, o, out, y);\n}}\n"
    )
    before = [_part(part, numbers) for part in ("numbers.c", "rows.c")]
    if "depthwise.c" in parts:
        before.append(_tap_sum(made.program))
    after = [step, _part("input.c", numbers), _part("pull.c"), _part("api.c")]
    text = "\n".join([*before, *_endings(made), *(_part(part, numbers) for part in parts), *after])
    pixels = BINARY_PIXELS in names
    text = text.replace("@PIXELS@", str(int(pixels))).replace("@ONES@", str(int(pixels or "BINARY_CONV" in names)))
    return _pruned(text)


def _pruned(text: str) -> str:
    """Without functions that nobody calls."""
    while True:
        parts = re.split(r"\n\n(?=static |/\*|#)", text)
        names = [re.search(r"^static (?:APART )?\w+ \*?(\w+)\(", part, re.MULTILINE) for part in parts]
        kept = [
            p for p, name in zip(parts, names, strict=True) if not name or len(re.findall(rf"\b{name[1]}\(", text)) > 1
        ]
        if len(kept) == len(parts):
            return text
        text = "\n\n".join(kept)


def _tap_sum(program: Program) -> str:
    """Taps saturate one by one, unless no sum can leave 16 bits."""
    plain = all(fits(program, op) for op in program.ops if isinstance(op, ops.FixedDepthwise))
    value = "v" if plain else "saturated(v)"
    return f"/* The sum of some taps{', which the maps read are too small to overflow' * plain}. */\nstatic int32_t tap_sum(int32_t v) {{ return {value}; }}\n"


def _endings(made: Tables) -> Iterator[str]:
    numbers = made.program.numbers
    yield _part("endings.c", numbers)
    cases = ["    default: (void)m, (void)row, (void)y; break;\n"]
    for n, (forms, pixels) in enumerate(made.finishes.items(), 1):
        yield function(n, forms, numbers, pixels)
        cases.append(f"    case {n}: finish_{n}(m, o, row, y); break;\n")
    yield (
        "/* The endings of a row that an op has just made, in place. */\n"
        "static void finish(const arena *m, const op *o, number *row, uint32_t y) {\n"
        f"    switch (o->finish) {{\n{''.join(cases)}    }}\n}}\n"
    )


# --- text -------------------------------------------------------------------------------------------------------------


def _part(name: str, numbers: str = "") -> str:
    """A file of device/, or of these numbers' folder there."""
    own = PARTS / numbers / name
    return (own if own.exists() else PARTS / name).read_text(encoding="utf-8")


def _filled(text: str, values: dict[str, Any]) -> str:
    return re.sub(r"@([A-Z]+)@", lambda found: str(values[found[1]]), text)


def _array(name: str, rows: list[Any]) -> str:
    """In lines of at most 120 characters."""
    lines, line = [], "   "
    for row in rows or [EMPTY.get(name, 0)]:
        text = f" {_shown(name, row)},"
        if len(line) + len(text) > 120:
            lines.append(line)
            line = "   "
        line += text
    body = "\n".join([*lines, line])
    return f"static const {ROWS[name][0]} {name}[{max(len(rows), 1)}] = {{\n{body}\n}};\n"


EMPTY = {"needs": [0] * 5, "endings": [(0, 0), (0, 0), 0, 0]}


def _shown(name: str, row: Any) -> str:
    if isinstance(row, list):
        return _struct(row)
    if isinstance(row, float):
        return _float(row)
    return f"0x{row:x}u" if name == "words" else _int32(row) if name == "wide" else str(row)


def _float(value: float) -> str:
    """In C99's hexadecimal form, the only one that every compiler must read to the bit."""
    mantissa, exponent = value.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}f"


def _stored(row: Values) -> list[str]:
    """Outputs for test.c: whole numbers, or the bits of floats, which have a form for infinity, too."""
    return (
        list(map(str, row.tolist()))
        if row.dtype == np.int16
        else [f"0x{bits:x}u" for bits in row.view(np.uint32).tolist()]
    )


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


def compiler() -> list[str] | None:
    """The command of this machine's C compiler: CC, which may have words such as those of `zig cc`, or the first of the usual names."""
    commands = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else [["cc"], ["gcc"], ["clang"]]
    return next((command for command in commands if command and shutil.which(command[0])), None)


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
    return f"Built with {' '.join([Path(found[0]).name, *found[1:]])} and run here, {which}, whole and row by row: every output equals that of the packed file."


def build_and_run(found: Sequence[str], folder: Path, *options: str) -> str:
    """What the test program of a folder says."""
    built = folder / "test"
    sources = [str(folder / name) for name in ("model.c", "test.c")]
    for command in ([*found, "-std=c99", "-O2", *options, *sources, "-o", str(built)], [str(built)]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"{done.stdout}{done.stderr}".strip() or f"{Path(command[0]).name} ended with {done.returncode}"
    return done.stdout
