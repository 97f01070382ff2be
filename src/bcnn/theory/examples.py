"""Functions to try: `bcnn approximate NAME`. No torch.

Each is an expression, or for the picture a function of our own, with a domain, d and Q that show it well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bcnn.theory import expression
from bcnn.theory.plan import Function, Interval
from bcnn.theory.tiling import Floats64

# A sailing boat, 24 x 24 pixels, drawn for this file. One letter a pixel, the top row first.
PICTURE = """
bbbbbbbbbbbbbbbbbbbbbbbb
bbbbbbbbbbbbbbbbbbbyybbb
bbbbbbbbbbbbbbbbbbyyyybb
bbbbbbbbbbbbkbbbbbyyyybb
bbwwwbbbbbbbkrrbbbbyybbb
bwwwwwbbbbbwkrrrrbbbbbbb
bbbbbbbbbbbwkrrbbbbbbbbb
bbbbbbbbbbwwkbbbbbbbbbbb
bbbbbbbbbbwwkobbbbbbbbbb
bbbbbbbbbwwwkoobbbbbbbbb
bbbbbbbbbwwwkooobbwwwbbb
bbbbbbbbwwwwkoooowwwwwbb
bbbbbbbbwwwwkooooobbbbbb
bbbbbbbwwwwwkoooooobbbbb
bbbbbbbwwwwwkooooooobbbb
bbbbbbwwwwwwkoooooooobbb
bbbbbbwwwwwwkbbbbbbbbbbb
bbbbbbbbbbbbkbbbbbbbbbbb
ggggnnnnnnnnnnnnnnnngggg
gggggnnnnnnnnnnnnnnggggg
ggggggnnnnnnnnnnnngggggg
gtgggggggggtgggggggggggt
ggggtgggggggggggtggggggg
gggggggggtgggggggggggggg
"""
COLOURS = {
    "b": (0.62, 0.82, 0.95), "y": (0.98, 0.82, 0.25), "w": (0.97, 0.97, 0.95), "k": (0.25, 0.18, 0.15), "r": (0.85, 0.20, 0.20),
    "o": (0.95, 0.60, 0.20), "n": (0.50, 0.28, 0.15), "g": (0.10, 0.35, 0.60), "t": (0.35, 0.62, 0.80),
}  # fmt: skip


def picture() -> Floats64:
    """H, W, 3 in 0 ... 1, the bottom row first: y grows upwards."""
    return np.array([[COLOURS[letter] for letter in row] for row in reversed(PICTURE.split())])


def boat(x: Floats64, y: Floats64) -> Floats64:
    """[3, points]: red, green and blue of the pixel nearest to (x, y); pixel centres are the whole numbers from 1 on."""
    pixels = picture()
    height, width, _ = pixels.shape
    row = np.clip(np.floor(np.asarray(y) - 0.5), 0, height - 1).astype(int)
    column = np.clip(np.floor(np.asarray(x) - 0.5), 0, width - 1).astype(int)
    return np.moveaxis(pixels[row, column], -1, 0)


@dataclass(frozen=True)
class Example:
    """A function and the settings that show it."""

    title: str
    f: Function
    domain: tuple[Interval, ...]
    d: float
    Q: float
    jumps: tuple[tuple[float, ...], ...] = ()
    ends: bool = True


EXAMPLES = {
    "step": Example(
        title="x / 2 + step(x - 0.3) - 1.4 step(x - 0.7)",
        f=expression.parse("x/2 + step(x - 0.3) - 1.4*step(x - 0.7)"),
        domain=((0, 1),),
        d=0.05,
        Q=32,
        jumps=((0.3, 0.7),),
    ),
    "sinc": Example("sin(x) / x", expression.parse("sinc(x)"), ((-20, 20),), d=0.25, Q=64),
    "ripple": Example(
        title="cos(9 r) / (1 + 3 r), r = hypot(x, y)",
        f=expression.parse("cos(9*hypot(x, y)) / (1 + 3*hypot(x, y))"),
        domain=((-1, 1), (-1, 1)),
        d=0.05,
        Q=16,
    ),
    # Pixels are the cells centred at x_min + d, ..., x_max - d: the paper's tiling without ends. All jumps lie on cell edges, so
    # the network is the picture up to 1 / (2 Q) = half a step of brightness.
    "picture": Example("a picture of 24 x 24 pixels, three outputs", boat, ((0, 25), (0, 25)), d=1, Q=24, ends=False),
}
