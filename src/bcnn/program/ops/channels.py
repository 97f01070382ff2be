"""Ops that move values and compute nothing: concatenation, selected channels, nearest upsampling. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.ops.base import MAX_SIDE, Indices, Map, Op, Shape, Values
from bcnn.program.ops.checks import array, source_shape, vector, whole


@dataclass(frozen=True, eq=False)
class Concat(Op):
    """Maps of one height and width, their channels behind each other."""

    NUMBERS = "any"
    MOVES = True

    sources: tuple[Map, ...]

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        if not isinstance(self.sources, tuple) or not 1 <= len(self.sources) <= 1024:
            raise UserError("must have 1 to 1024 sources")
        read = [source_shape(source, shapes) for source in self.sources]
        if len({shape[:2] for shape in read}) > 1:
            raise UserError(f"joins maps of different sizes: {', '.join(map(str, read))}")
        return *read[0][:2], sum(shape[2] for shape in read)

    def run(self, maps: Sequence[Values]) -> Values:
        return np.concatenate([maps[source] for source in self.sources], axis=-1)


@dataclass(frozen=True, eq=False)
class Select(Op):
    """Channel o is channel index[o] of the source: a slice, a shuffle, any order."""

    NUMBERS = "any"
    MOVES = True

    source: Map
    index: Indices  # [O]

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        o = vector("index", self.index)
        array("index", self.index, np.int32, (o,))
        if self.index.min() < 0 or self.index.max() >= c:
            raise UserError(f"index names channels outside the {c} of its source")
        return h, w, o

    def run(self, maps: Sequence[Values]) -> Values:
        return np.ascontiguousarray(maps[self.source][..., self.index])


@dataclass(frozen=True, eq=False)
class Upsample(Op):
    """Nearest: pixel (y, x) is pixel (y // factor[0], x // factor[1]) of the source."""

    NUMBERS = "any"
    MOVES = True

    source: Map
    factor: tuple[int, int]

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        for value in self.factor:
            whole("factor", value, 1, MAX_SIDE)
        return h * self.factor[0], w * self.factor[1], c

    def run(self, maps: Sequence[Values]) -> Values:
        return maps[self.source].repeat(self.factor[0], axis=0).repeat(self.factor[1], axis=1)
