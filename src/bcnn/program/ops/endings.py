"""What follows the sums of an op, value by value: an ordered list of endings, `after`. No torch.

v is the H,W,O map so far. A kernel may do the first of them in registers, and loops over the rest; each is one rounding an
operation, so both give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.base import Floats, Map, Part, Shape, Values, floats, replicated, source_shape, whole


class Ending(Part):
    """One step. `KINDS` has every class by its name."""

    KINDS: ClassVar[dict[str, type[Ending]]] = {}
    NUMBERS: ClassVar[str] = "float32"  # see Op.NUMBERS

    def __init_subclass__(cls) -> None:
        Ending.KINDS[cls.__name__] = cls

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        """Whether it fits a map of `shape`, after maps of `shapes`; a `UserError` if not."""

    def apply(self, v: Values, maps: Sequence[Values]) -> Values:
        raise NotImplementedError

    def counts(self, shape: Shape) -> Counts:
        raise NotImplementedError

    def absolute(self) -> Ending | None:
        """What it does to magnitudes, see `Op.absolute`; none: it leaves them, or makes them smaller."""
        return self


@dataclass(frozen=True, eq=False)
class Add(Ending):
    """v[first : first + reads] += map: the whole, a replicated map (channel k mod C), or one added to the last channels only."""

    source: Map
    reads: int  # channels added
    first: int = 0  # the channel of v where they begin

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        h, w, c = source_shape(self.source, shapes, "the map added")
        whole("first", self.first, 0, shape[2] - 1)
        whole("reads", self.reads, 1, shape[2] - self.first)
        if (h, w) != shape[:2] or c > self.reads:
            raise UserError(f"adds {self.reads} channels of map {self.source}, {(h, w, c)}, to one of {shape}")

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        other = replicated(maps[self.source], self.reads)
        if self.reads == v.shape[-1]:
            return other + v
        out = v.copy()
        out[..., self.first : self.first + self.reads] += other
        return out

    def counts(self, shape: Shape) -> Counts:
        return Counts(adds=shape[0] * shape[1] * self.reads)


@dataclass(frozen=True, eq=False)
class Gate(Ending):
    """v *= map, which has v's height or 1, width or 1, and channels or 1."""

    source: Map

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        gate = source_shape(self.source, shapes, "the map it is gated by")
        if any(part not in (1, full) for part, full in zip(gate, shape, strict=True)):
            raise UserError(f"is gated by map {self.source}, {gate}, which does not spread over {shape}")

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        return v * maps[self.source]

    def counts(self, shape: Shape) -> Counts:
        return Counts(mults=shape[0] * shape[1] * shape[2])


@dataclass(frozen=True, eq=False)
class Affine(Ending):
    """v * scale + offset per channel, two roundings; either may be left out, not both. An offset of -0.0 is 0.0."""

    scale: Floats | None
    offset: Floats | None

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        if self.scale is None and self.offset is None:
            raise UserError("an Affine has neither scale nor offset")
        for name, values in (("scale", self.scale), ("offset", self.offset)):
            if values is not None:
                floats(name, values, (shape[2],))

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        if self.scale is not None:
            v = v * self.scale
        return v if self.offset is None else v + self.offset

    def counts(self, shape: Shape) -> Counts:
        n = shape[0] * shape[1] * shape[2]
        given = (self.scale is not None) + (self.offset is not None)
        return Counts(
            real_params=given * shape[2],
            mults=n if self.scale is not None else 0,
            adds=n if self.offset is not None else 0,
        )

    def absolute(self) -> Ending | None:
        return Affine(*(None if values is None else np.abs(values) for values in (self.scale, self.offset)))


@dataclass(frozen=True, eq=False)
class PReLU(Ending):
    """v, or slope * v where v < 0."""

    slope: Floats  # [O]

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        floats("slope", self.slope, (shape[2],))

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        return np.where(v < 0, self.slope * v, v)

    def counts(self, shape: Shape) -> Counts:
        return Counts(real_params=shape[2], prelus=shape[0] * shape[1] * shape[2])

    def absolute(self) -> Ending | None:
        return Affine(np.maximum(np.float32(1), np.abs(self.slope)), None)


@dataclass(frozen=True, eq=False)
class ReLU(Ending):
    """v, or 0 where v < 0."""

    NUMBERS = "any"

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        return np.where(v < 0, v.dtype.type(0), v)

    def counts(self, shape: Shape) -> Counts:
        return Counts(prelus=shape[0] * shape[1] * shape[2])

    def absolute(self) -> Ending | None:
        return None


@dataclass(frozen=True, eq=False)
class Clip(Ending):
    """limits[0] where v is less, limits[1] where v is more."""

    limits: Floats  # [2]

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        floats("limits", self.limits, (2,))
        if self.limits[0] > self.limits[1]:
            raise UserError(f"clips to limits {self.limits.tolist()} that are not in order")

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        low, high = self.limits
        v = np.where(v < low, low, v)
        return np.where(v > high, high, v)

    def counts(self, shape: Shape) -> Counts:
        return Counts(prelus=shape[0] * shape[1] * shape[2])

    def absolute(self) -> Ending | None:
        return None


@dataclass(frozen=True, eq=False)
class Sign(Ending):
    """+1 where v >= threshold, else -1, as real numbers: for what is no binary convolution."""

    threshold: Floats  # [O]

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        floats("threshold", self.threshold, (shape[2],))

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        return np.where(v >= self.threshold, np.float32(1), np.float32(-1))

    def counts(self, shape: Shape) -> Counts:
        return Counts(real_params=shape[2], signs=shape[0] * shape[1] * shape[2])

    def absolute(self) -> Ending | None:
        return None


@dataclass(frozen=True, eq=False)
class Sigmoid(Ending):
    """1 / (1 + e^-v), by one sequence of float32 operations that every executor follows:

    1. z = -v, kept in [-87, 87], so that nothing overflows or becomes denormal.
    2. z = k ln 2 + r with k the nearest whole number: adding and taking away 1.5 * 2^23 rounds to it.
    3. e^r by its series up to r^6 / 720, from the inside out; |r| <= 0.35, so what is left out is below 2^-24.
    4. e^z = e^r * 2^k, exact, where 2^k is put together from its exponent bits.
    """

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        one, big = np.float32(1), np.float32(1.5 * 2**23)
        z = -v
        z = np.where(z < np.float32(-87), np.float32(-87), z)
        z = np.where(z > np.float32(87), np.float32(87), z)
        k = (z * np.float32(1.4426950408889634) + big) - big
        r = (z - k * np.float32(0.693145751953125)) - k * np.float32(1.428606765330187e-06)
        e = r * np.float32(1 / 720) + np.float32(1 / 120)
        for factor in (1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
            e = e * r + np.float32(factor)
        finite = np.where(np.isnan(k), np.float32(0), k)  # NaN stays NaN by r
        power = ((finite.astype(np.int32) + 127) << 23).view(np.float32)
        made: Floats = one / (one + e * power)
        return made

    def counts(self, shape: Shape) -> Counts:
        return Counts(prelus=shape[0] * shape[1] * shape[2])

    def absolute(self) -> Ending | None:
        return Affine(
            None, np.ones(1, np.float32)
        )  # its slope is a quarter at most, and what it rounds itself is below 1


def check_endings(after: Sequence[Ending], shape: Shape, shapes: Sequence[Shape]) -> Shape:
    """`shape`, once every ending fits it."""
    if not isinstance(after, tuple) or len(after) > 64:
        raise UserError("after must be a tuple of at most 64 endings")
    for ending in after:
        try:
            ending.check(shape, shapes)
        except UserError as error:
            raise UserError(f"{type(ending).__name__}: {error}") from None
    return shape


def finish(v: Values, after: Sequence[Ending], maps: Sequence[Values]) -> Values:
    for ending in after:
        v = ending.apply(v, maps)
    return v


def count_endings(after: Sequence[Ending], shape: Shape) -> Counts:
    return sum((ending.counts(shape) for ending in after), Counts())


def absolute_endings(after: Sequence[Ending]) -> tuple[Ending, ...]:
    return tuple(ending for ending in (each.absolute() for each in after) if ending is not None)
