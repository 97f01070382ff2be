"""`--to web`: one HTML file with the engine in WebAssembly, the packed model and a page. It works from a double click, offline.

    engine.wasm    native/ compiled for SIMD128, `make wasm`; it travels in the package, so that nobody needs a compiler
    page/*.js      packed file -> checked program -> engine (json, sha256, packfile, shapes, shapes_fixed, engine), photo -> bytes (resize), page
    page.html      what they are put into, with style.css

The page proves itself: whenever it is opened it runs the test vectors in its file and says how many logits are equal to the bit. Its
policy names its one script and its one style by their hashes and forbids all connections, so photos cannot leave it.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import re
import tempfile
import zlib
from pathlib import Path
from typing import Any

from bcnn.base.errors import UserError
from bcnn.base.files import write_atomic
from bcnn.packed import card, fields, packfile
from bcnn.packed.container import DTYPES
from bcnn.packed.packfile import Packed
from bcnn.program import ops
from bcnn.program.program import SMALLEST_CROP, Limits, TooLargeError

PARTS = Path(__file__).parent / "page"
ENGINE = PARTS / "engine.wasm"
CORE = (
    "json.js",
    "sha256.js",
    "packfile.js",
    "shapes.js",
    "shapes_fixed.js",
    "engine.js",
    "resize.js",
)  # what needs no page
# Multiply-accumulates and operations of one image: some seconds of a browser, which has no other way to stop them than its own patience.
WORK = 1 << 35


def export(packed: Packed, path: Path) -> list[str]:
    content = page(packed, path.stem).encode()
    write_atomic(path, content)
    vectors = len(packed.test_seeds)
    return [
        f"Wrote {path}: {len(content):,} bytes. Open it in a browser; it needs no network and no server.",
        f"Not run here: the page itself compares the {vectors} test vectors of the file each time it is opened, and says so.",
    ]


def page(packed: Packed, name: str) -> str:
    """The HTML of a model that is called `name` where it has no title of its own."""
    found = card.of(packed.program)
    style = _part("style.css")
    script = f'"use strict";\n(() => {{\n{core()}\n{_part("page.js")}}})();\n'
    values = {
        "policy": f"default-src 'none'; script-src {_hash(script)} 'wasm-unsafe-eval'; style-src {_hash(style)}; img-src data: blob:; media-src blob:",
        "title": html.escape(found.title if found else name),
        "name": html.escape(f"{name}.bcnn"),
        "style": style,
        "engine": base64.b64encode(zlib.compress(ENGINE.read_bytes(), 9)).decode(),
        "model": base64.b64encode(_bytes(packed)).decode(),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], _part("page.html"))


def core() -> str:
    """The script without the page: what node can run, too."""
    limits = {**dataclasses.asdict(Limits()), "work": WORK, "crop": SMALLEST_CROP}
    dtypes = {name: next(key for key, dtype in DTYPES.items() if dtype == own) for name, own in fields.DTYPES.items()}
    known = {
        "FORMAT": packfile.FORMAT,
        "LIMITS": limits,
        "KINDS": kinds(),
        "STREAMS": fields.STREAMS,
        "DTYPES": dtypes,
        "NUMBERS": numbers(),
    }
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in known.items())
    return constants + "\n".join(_part(name) for name in CORE)


def numbers() -> dict[str, str]:
    """By kind, in which programs a file may have it."""
    made: dict[str, str] = {}
    for known in (ops.Op, ops.Ending):
        floats, integers = (known.kinds(numbers) for numbers in ("float32", "int16"))
        for kind in known.KINDS:
            made[kind] = "any" if kind in floats and kind in integers else "float32" if kind in floats else "int16"
    return made


def kinds() -> dict[str, Any]:
    """By class the fields of every part of a program: name, type, and the default as a file would have it, if there is one."""
    made: dict[str, Any] = {}
    for name, cls in sorted(vars(ops).items()):
        if not (isinstance(cls, type) and issubclass(cls, ops.Part) and cls is not ops.Part):
            continue
        if "KINDS" in vars(cls):
            made[name] = {kind: _fields(known) for kind, known in vars(cls)["KINDS"].items()}
        elif not hasattr(cls, "KINDS"):
            made[name] = _fields(cls)
    return made


def _fields(cls: type[ops.Part]) -> list[list[Any]]:
    listed: list[list[Any]] = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        default = [] if field.default is dataclasses.MISSING else [_plain(field.default)]
        listed.append([field.name, str(field.type), *default])
    return listed


def _plain(value: Any) -> Any:
    if isinstance(value, ops.Part):
        assert value == type(value)()  # so that no fields at all stand for it
        return []
    return list(value) if isinstance(value, tuple) else value


def _bytes(packed: Packed) -> bytes:
    """The packed file again: the same program gives the same bytes, and its test vectors are computed on the way."""
    try:
        dataclasses.replace(packed.program, limits=dataclasses.replace(packed.program.limits, work=WORK))
    except TooLargeError:
        raise UserError(f"one image takes more than the {WORK:,} operations that a page does") from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bcnn"
        packfile.save(packed.program, path, packed.test_seeds)
        content = path.read_bytes()
    if packed.test_logits.tobytes() not in content:
        raise UserError("its test vectors are not what its program computes; see what `bcnn verify` says of it")
    return content


def _part(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a policy names a script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
