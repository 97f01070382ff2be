"""Writes programs, an image and all maps of the interpreter to a file that native/test/core_test.cpp reads back and recomputes.

So the native core is tested without Python where Python is not at hand: under sanitizers, on another processor in an emulator.
Usage: python tests/helpers/native_vectors.py FILE
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np
from integer_programs import fixed_of_config, random_fixed_program
from programs import of_config, random_program

from bcnn.nets.config import preset
from bcnn.program.interpret import interpret_maps
from bcnn.program.ops import Op
from bcnn.program.program import Program
from bcnn.program.record import Record, record

SIZES = [(1, 1), (3, 5), (9, 7), (12, 12), (8, 65), (5, 1)]


def programs() -> list[Program]:
    found = [random_program(seed, *SIZES[seed % len(SIZES)], ops=3 + seed % 8) for seed in range(60)]
    found += [random_fixed_program(seed, *SIZES[seed % len(SIZES)], ops=3 + seed % 8) for seed in range(80)]
    missing = {cls.__name__ for cls in Op.KINDS.values()} - {
        type(op).__name__ for program in found for op in program.ops
    }
    if missing:
        raise SystemExit(f"no program has a {', '.join(sorted(missing))}: draw more of them")
    found.append(of_config(preset("digits").replace(branches=2)))
    found.append(of_config(preset("imagenet").replace(image_size=32, classes=70)))  # the wide levels' plan
    found.append(fixed_of_config(preset("digits").replace(branches=2)))
    found.append(fixed_of_config(preset("imagenet").replace(image_size=32, classes=70)))
    return found


def write(program: Program, file: BinaryIO) -> None:
    height, width, _ = program.shapes[0]
    image = np.random.default_rng(height * width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    _ints(file, len(program.ops), 4 if program.numbers == "float32" else 2)
    for op, shape in zip(program.ops, program.shapes, strict=True):
        _ints(file, *shape)
        _record(file, record(op))
    file.write(image.tobytes())
    for made in interpret_maps(program, image):
        file.write(made.astype(made.dtype.newbyteorder("<")).tobytes())


def _record(file: BinaryIO, r: Record) -> None:
    _text(file, r.kind)
    _ints(file, len(r.numbers))
    for name, numbers in r.numbers.items():
        _text(file, name)
        _ints(file, len(numbers), *numbers)
    _ints(file, len(r.arrays))
    for name, array in r.arrays.items():
        _text(file, name)
        _ints(file, array.size, array.dtype.itemsize)
        file.write(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    _ints(file, len(r.parts))
    for name, parts in r.parts.items():
        _text(file, name)
        _ints(file, len(parts))
        for part in parts:
            _record(file, part)


def _text(file: BinaryIO, text: str) -> None:
    _ints(file, len(text))
    file.write(text.encode("ascii"))


def _ints(file: BinaryIO, *values: int) -> None:
    file.write(np.array(values, "<i4").tobytes())


if __name__ == "__main__":
    with Path(sys.argv[1]).open("wb") as out:
        for one in programs():
            write(one, out)
        _ints(out, 0)
