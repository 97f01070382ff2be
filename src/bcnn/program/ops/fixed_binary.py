"""The binary convolution of an integer program. No torch. See `binary_conv` and `fixed_numbers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.base import Map, Op, Part, Shape, Shorts, Words, array, replicated, vector
from bcnn.program.ops.binary_conv import Dots, check_branches
from bcnn.program.ops.endings import Ending, check_endings, finish
from bcnn.program.ops.fixed_numbers import HIGH, plus, product, shorts, up
from bcnn.program.ops.window import ONE_PIXEL, Window


@dataclass(frozen=True, eq=False)
class FixedBranch(Part):
    """One residual of a convolution module: R(dot << up, scale) (+) offset, where

    1. a bit is 1 where x > above: above = ceil(threshold * 2^f) - 1.
    2. dot is the sum of sign * sign, from -N to N; a tap outside the map contributes nothing, or is a pixel of `pad` bits.
    3. N << up is at most 2^15 - 1, and scale = s * 2^(f + 15 - up) for batch norm's s (and f of the map made).
    """

    above: Shorts  # [K]; may be -32768: any bit but that of the least value is 1
    weight: Words  # [O, T, words(K / G)]
    scale: Shorts  # [O]
    offset: Shorts  # [O]
    up: int
    pad: Words | None = None  # [words(K)]
    shift: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class FixedBinaryConv(Dots, Op):
    """v = branch 0 (+) branch 1 (+) ..., left to right; then the endings."""

    NUMBERS = "int16"

    source: Map
    reads: int
    branches: tuple[FixedBranch, ...]
    window: Window = ONE_PIXEL
    groups: int = 1
    after: tuple[Ending, ...] = ()
    fraction: int = 8  # f of the map made, for those who read it as real numbers

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        check_branches(self.branches)
        o = vector("scale", self.branches[0].scale)
        shape = self.dots_shape(self.branches, o, shapes)
        for p, branch in enumerate(self.branches):
            array(f"branch {p}: above", branch.above, np.int16, (self.reads,))
            shorts(f"branch {p}: scale", branch.scale, (o,))
            shorts(f"branch {p}: offset", branch.offset, (o,))
            if self.bits << up(f"branch {p}: up", branch.up) > HIGH:
                raise UserError(f"branch {p}: a dot of {self.bits} signs, shifted by {branch.up}, is more than 16 bits")
        return check_endings(self.after, shape, shapes)

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        x = replicated(maps[self.source], self.reads)
        v, *others = (self.term(x, branch) for branch in self.branches)
        for term in others:
            v = plus(v, term)
        return finish(v, self.after, maps)

    def term(self, x: Shorts, branch: FixedBranch) -> Shorts:
        dots = self.dots(x > branch.above, branch).astype(np.int16)
        return plus(product(dots << np.int16(branch.up), branch.scale), branch.offset)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return self.dots_counts(len(self.branches), self.shape(shapes), shapes)
