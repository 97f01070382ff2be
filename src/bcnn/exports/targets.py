"""The targets of `bcnn export`, one line each, and what their modules need not care about.

A target is a module of this folder with the function

    def export(packed: Packed, path: Path, **options: str) -> Iterable[str]

that proves what it makes against the test vectors in `packed`, writes it to `path` (`files.write_atomic`) and returns a sentence
a line: what was written, how large, what was checked and what was not. What fails its proof is a `UserError`, and nothing is written.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bcnn.base.errors import UserError, nearest
from bcnn.integers import convert
from bcnn.packed.packfile import open_packed
from bcnn.packed.shipped import find

FLOATS = "written is the float32 network of its parameters, which chooses another class for some images"
NUMBER: tuple[str, ...] = ()  # an option whose value is a whole number, and which need not be given


@dataclass(frozen=True)
class Target:
    module: str  # in this folder
    about: str  # for the list that `bcnn export MODEL` prints
    suffix: str  # of the file it writes; "": it writes a folder
    options: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # name -> choices, the default first; or a number
    numbers: tuple[str, ...] = (
        "float32",
    )  # of the programs it can say; one in integers is made float32 where it must be
    extra: str = ""  # of the package: what `pip install` brings its imports


TARGETS = {
    "c": Target(
        "c",
        "C99 for microcontrollers, no heap: a folder with model.c, model.h and a test",
        "",
        options={"ram": NUMBER},
        numbers=("float32", "int16"),
    ),
    "onnx": Target(
        "onnx",
        "an ONNX model, for ONNX Runtime and what else reads that",
        ".onnx",
        options={"weights": ("bits", "int8")},
        numbers=("float32", "int16"),
        extra="onnx",
    ),
    "qonnx": Target("qonnx", "an ONNX model with QONNX's BipolarQuant, for FINN and hls4ml", ".onnx", extra="onnx"),
    "web": Target(
        "web",
        "a page for the browser that works offline, engine and model inside",
        ".html",
        numbers=("float32", "int16"),
    ),
}


def export(
    model: str | Path,
    to: str,
    path: str | Path | None = None,
    tell: Callable[[str], object] = lambda line: None,
    **options: str,
) -> list[str]:
    """Write a shipped model or a packed file as `to`; the sentences to print. Without `path`: the model's name beside you.
    `tell` hears each sentence as soon as it is true."""
    if to not in TARGETS:
        raise UserError(f"cannot export to {to!r}; {nearest(to, TARGETS)}")
    target, source = TARGETS[to], find(model)
    chosen = _chosen(to, target, options)
    path = Path(path) if path is not None else Path(source.stem + target.suffix)
    _check_path(path, source, target)
    packed, lines = open_packed(source), list[str]()
    if packed.program.numbers == "int16" and target.numbers == ("float32",):
        packed = convert.packed_in_floats(packed)
        lines.append(f"{source.name} computes in integers, --to {to} in float32: {FLOATS}")
        tell(lines[0])
    try:
        module = importlib.import_module(f"bcnn.exports.{target.module}")
    except ModuleNotFoundError as error:
        if not target.extra or (error.name or "").startswith("bcnn"):
            raise
        raise UserError(f"--to {to} needs {error.name}; install it with: pip install 'bcnn[{target.extra}]'") from None
    try:
        for line in module.export(packed, path, **chosen):
            lines.append(line)
            tell(line)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    return lines


def _chosen(to: str, target: Target, options: Mapping[str, str]) -> dict[str, str]:
    """Every option of the target: what was given, or its default."""
    for name, value in options.items():
        if name not in target.options:
            able = [other for other, it in TARGETS.items() if name in it.options]
            raise UserError(f"--{name} is no option of --to {to}; it is one of --to {', '.join(able) or 'no target'}")
        if target.options[name] is NUMBER:
            if not (value.isascii() and value.isdigit()):
                raise UserError(f"--{name} is {value!r}, not a whole number of bytes")
        elif value not in target.options[name]:
            raise UserError(f"--{name} is {value!r}; --to {to} knows {', '.join(target.options[name])}")
    return {name: options.get(name, next(iter(choices), "")) for name, choices in target.options.items()}


def _check_path(path: Path, source: Path, target: Target) -> None:
    """Before the work, not after it."""
    folder = path.parent
    if not folder.is_dir():
        raise UserError(f"cannot write {path}: there is no folder {folder}")
    if target.suffix and path.is_dir():
        raise UserError(
            f"cannot write {path}: it is a folder; give a file with -o, such as {path / 'model'}{target.suffix}"
        )
    if not target.suffix and path.exists() and not path.is_dir():
        raise UserError(f"cannot write {path}: it is a file; give a folder with -o")
    if path.exists() and source.exists() and path.samefile(source):
        raise UserError(f"{path} is the packed file itself; give another one with -o")
    if not os.access(path if path.is_dir() else folder, os.W_OK):
        raise UserError(f"cannot write {path}: no permission to write in {path if path.is_dir() else folder}")
