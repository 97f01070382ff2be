"""The times in native/plan/cost.h, measured: what one product and sum of a real convolution takes, and one value to one bit.

    python -m benchmarks.calibrate_costs [--repeats 200]

An op's time is the sum over its short steps of the fastest run of each, one thread: on a shared machine that is what the code can do. A
sign is no op of its own:
  1. A binary 3 x 3 convolution of C channels to O takes f + s C + m C O for each pixel: the steps' own time, signs, dots.
  2. Of two that make O and 2 O channels of one map, twice the first less the second is f + s C.
  3. Of two such with C = 64 and 256 the difference is 192 s. It has the bits' way into the windows in it, as the op has.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
from programs import Draw, named

from bcnn.base.machine import facts
from bcnn.engine import Engine
from bcnn.program import ops as o
from bcnn.program.program import Program

SIDE = 28
MADE = 64  # O: a multiple of every register
WINDOW = o.Window((3, 3), (1, 1), (1, 1, 1, 1))


def program(channels: int, made: int, real: bool) -> Program:
    """An image spread to C channels, then a 3 x 3 convolution of them."""
    draw = Draw(channels, corners=False)
    spread = o.Pointwise(0, channels, (o.Affine(draw.floats(channels), draw.floats(channels)),))
    if real:
        weight = draw.floats(9 * channels * made).reshape(3, 3, channels, made)
        return named((draw.input(SIDE, SIDE), spread, o.Conv(1, channels, weight, draw.floats(made), WINDOW, 1, ())))
    return named((draw.input(SIDE, SIDE), spread, o.BinaryConv(1, channels, (draw.branch(channels, made, 9),), WINDOW)))


def nanoseconds(program: Program, repeats: int) -> float:
    """Of the convolution, for each pixel."""
    image = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    return Engine(program, threads=1).profile(image, repeats)[-1].seconds * 1e9 / SIDE**2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    for key, value in facts(threads=1).items():
        print(f"{key:9} {value}")
    few, many = 64, 256
    real = nanoseconds(program(many, MADE, True), repeats) / (9 * many * MADE)
    signs = {}
    for channels in (few, many):
        once, twice = (nanoseconds(program(channels, made, False), repeats) for made in (MADE, 2 * MADE))
        signs[channels] = 2 * once - twice
    print(f"\nkRealMacNs {real:.3f}\nkSignNs    {(signs[many] - signs[few]) / (many - few):.3f}")


if __name__ == "__main__":
    main()
