"""What follows the sums of an op in an integer program, value by value. No torch. See `endings` and `fixed_numbers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.base import Map, Shape, Shorts, replicated, whole
from bcnn.program.ops.endings import Add, Ending, Gate
from bcnn.program.ops.fixed_numbers import (
    HIGH,
    LOW,
    MOST_UP,
    down,
    down_by,
    plus,
    product,
    saturated,
    shifted,
    shorts,
    up,
)

BEND_UP = 8  # PReLU: slopes up to 2^8 + 1
STEPS = 256  # of a table


class FixedEnding:
    """On 16-bit maps."""

    NUMBERS = "int16"


@dataclass(frozen=True, eq=False)
class FixedAdd(FixedEnding, Ending):
    """v[first : first + reads] (+)= map * 2^up: the whole, a replicated map (channel k mod C), or one added to some channels only."""

    source: Map
    reads: int  # channels added
    first: int = 0  # the channel of v where they begin
    up: int = 0  # may be negative

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        Add(self.source, self.reads, self.first).check(shape, shapes)
        up("up", self.up, -MOST_UP)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        other = shifted(replicated(maps[self.source], self.reads), self.up)
        out = v.copy()
        part = slice(self.first, self.first + self.reads)
        out[..., part] = plus(v[..., part], other)
        return out

    def counts(self, shape: Shape) -> Counts:
        return Add(self.source, self.reads, self.first).counts(shape)


@dataclass(frozen=True, eq=False)
class FixedGate(FixedEnding, Ending):
    """v * map >> down, rounded and saturated; the map has v's height or 1, width or 1, and channels or 1."""

    source: Map
    down: int

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        Gate(self.source).check(shape, shapes)
        down("down", self.down)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        return saturated(down_by(v.astype(np.int64) * maps[self.source], self.down))

    def counts(self, shape: Shape) -> Counts:
        return Gate(self.source).counts(shape)


@dataclass(frozen=True, eq=False)
class FixedAffine(FixedEnding, Ending):
    """(v * scale >> down, rounded and saturated) (+) offset per channel; either may be left out, not both."""

    scale: Shorts | None
    offset: Shorts | None
    down: int = 0

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        if self.scale is None and self.offset is None:
            raise UserError("has neither scale nor offset")
        for name, values in (("scale", self.scale), ("offset", self.offset)):
            if values is not None:
                shorts(name, values, (shape[2],))
        down("down", self.down)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        if self.scale is not None:
            v = saturated(down_by(v.astype(np.int64) * self.scale, self.down))
        return v if self.offset is None else plus(v, self.offset)

    def counts(self, shape: Shape) -> Counts:
        n = shape[0] * shape[1] * shape[2]
        scaled, moved = self.scale is not None, self.offset is not None
        return Counts(real_params=(scaled + moved) * shape[2], mults=n * scaled, adds=n * moved)


@dataclass(frozen=True, eq=False)
class FixedPReLU(FixedEnding, Ending):
    """w = v, at least -(2^15 >> up); then w (+) R(min(w, 0) << up, bend), where bend = (slope - 1) * 2^(15 - up).

    With up = 0, slopes from 0 to 2, there is no limit and no shift.
    """

    bend: Shorts  # [O]
    up: int = 0

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        shorts("bend", self.bend, (shape[2],))
        whole("up", self.up, 0, BEND_UP)

    @property
    def least(self) -> int:
        return -((-LOW) >> self.up)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        v = np.maximum(v, np.int16(self.least))
        negative = np.minimum(v, np.int16(0)) << np.int16(self.up)
        return plus(v, product(negative, self.bend))

    def counts(self, shape: Shape) -> Counts:
        return Counts(real_params=shape[2], prelus=shape[0] * shape[1] * shape[2])


@dataclass(frozen=True, eq=False)
class FixedClip(FixedEnding, Ending):
    """limits[0] where v is less, limits[1] where v is more."""

    limits: Shorts  # [2]

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        shorts("limits", self.limits, (2,))
        if self.limits[0] > self.limits[1]:
            raise UserError(f"clips to limits {self.limits.tolist()} that are not in order")

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        return np.clip(v, self.limits[0], self.limits[1])

    def counts(self, shape: Shape) -> Counts:
        return Counts(prelus=shape[0] * shape[1] * shape[2])


@dataclass(frozen=True, eq=False)
class Bound(FixedEnding, Ending):
    """v from -limit to limit, per channel: whoever reads the map can then prove that its sums fit 16 bits, and add without saturating."""

    limit: Shorts  # [O]

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        shorts("limit", self.limit, (shape[2],))
        if self.limit.min() < 0:
            raise UserError("has a limit below 0")

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        return np.minimum(np.maximum(v, -self.limit), self.limit)

    def counts(self, shape: Shape) -> Counts:
        return Counts(prelus=shape[0] * shape[1] * shape[2])


@dataclass(frozen=True, eq=False)
class Shift(FixedEnding, Ending):
    """v * 2^up, saturated; rounded if up is negative: another number of fractional bits."""

    up: int

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        up("up", self.up, -MOST_UP)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        return shifted(v, self.up)

    def counts(self, shape: Shape) -> Counts:
        return Counts()


@dataclass(frozen=True, eq=False)
class FixedSign(FixedEnding, Ending):
    """one where v > above, else -one: for what is no binary convolution."""

    above: Shorts  # [O]
    one: int

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        shorts("above", self.above, (shape[2],))
        whole("one", self.one, 1, HIGH)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        return np.where(v > self.above, np.int16(self.one), np.int16(-self.one))

    def counts(self, shape: Shape) -> Counts:
        return Counts(real_params=shape[2], signs=shape[0] * shape[1] * shape[2])


@dataclass(frozen=True, eq=False)
class Table(FixedEnding, Ending):
    """A curve such as the sigmoid, by 256 straight lines: with w = v limited to -(128 << down) ... (128 << down) - 1,

    i = (w >> down) + 128,   r = w - ((i - 128) << down),   values[i] + ((values[i + 1] - values[i]) * r >> down, rounded)
    """

    values: Shorts  # [257]
    down: int  # at most 8: all of v is in the table's range then

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        shorts("values", self.values, (STEPS + 1,))
        whole("down", self.down, 0, 8)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        half = (STEPS // 2) << self.down
        w = np.clip(v.astype(np.int64), -half, half - 1)
        at = (w >> self.down) + STEPS // 2
        rest = w - ((at - STEPS // 2) << self.down)
        values = self.values.astype(np.int64)
        return saturated(values[at] + down_by((values[at + 1] - values[at]) * rest, self.down))

    def counts(self, shape: Shape) -> Counts:
        return Counts(prelus=shape[0] * shape[1] * shape[2])
