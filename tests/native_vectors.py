"""Writes programs, an image and all maps of the interpreter to a file that native/test/core_test.cpp reads back and recomputes.

So the native core is tested without Python where Python is not at hand: under sanitizers, on another processor in an emulator.
Usage: python tests/native_vectors.py FILE
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bcnn.nets.config import preset
from bcnn.program import program as p
from bcnn.program.interpret import interpret_maps
from programs import of_config, random_program

KINDS = [p.Input, p.BinaryConv, p.DepthwiseConv, p.AvgPool, p.ChannelAvg, p.GlobalAvgPool, p.Linear]


def programs() -> list[p.Program]:
    sizes = [(1, 1), (3, 5), (9, 7), (12, 12), (8, 65), (5, 1)]
    found = [random_program(seed, *sizes[seed % len(sizes)], ops=3 + seed % 8) for seed in range(24)]
    found.append(of_config(preset("digits").replace(branches=2)))
    found.append(of_config(preset("imagenet").replace(image_size=32, classes=70)))  # the wide levels' plan
    return found


def write(program: p.Program, file: BinaryIO) -> None:
    height, width, _ = program.shapes[0]
    image = np.random.default_rng(height * width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    _ints(file, len(program.ops))
    for op, (h, w, c) in zip(program.ops, program.shapes, strict=True):
        branches = op.branches if isinstance(op, p.BinaryConv) else ()
        source = -1 if isinstance(op, p.Input) else op.source
        add = op.add if isinstance(op, p.BinaryConv) and op.add is not None else -1
        k = (
            branches[0].threshold.size
            if branches
            else c
            if isinstance(op, p.DepthwiseConv)
            else program.shapes[max(source, 0)][2]
        )
        flags = [getattr(op, "identity", False), getattr(op, "prelu_after_add", False)]
        _ints(file, KINDS.index(type(op)), h, w, c, source, add, k, getattr(op, "stride", 1), *flags, len(branches))
        for b in branches:
            _ints(file, *b.shift)
            for array in (b.threshold, b.weight, b.scale, b.offset):
                _array(file, array)
        offset = op.bias if isinstance(op, p.Linear) else getattr(op, "offset", None)
        arrays = [getattr(op, name, None) for name in ("scale", "intensity", "weight", "slope")]
        for array in [offset, *arrays]:
            _array(file, array)
    file.write(image.tobytes())
    for made in interpret_maps(program, image):
        file.write(made.astype("<f4").tobytes())


def _ints(file: BinaryIO, *values: int) -> None:
    file.write(np.array(values, "<i4").tobytes())


def _array(file: BinaryIO, array: np.ndarray | None) -> None:
    _ints(file, 0 if array is None else array.size)
    if array is not None:
        file.write(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())


if __name__ == "__main__":
    with Path(sys.argv[1]).open("wb") as out:
        for one in programs():
            write(one, out)
        _ints(out, 0)
