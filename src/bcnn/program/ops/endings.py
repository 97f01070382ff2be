"""What follows the sums of an op, value by value: an ordered list of endings, `after`. No torch.

v is the H,W,O map so far. A kernel may do the first of them in registers, and loops over the rest; each is one rounding an
operation, so both give the same bits. Those of integer programs work on 16-bit numbers, see `arithmetic`. Here are sums with other
maps, products with them and with parameters, limits and shifts; curves have their own file, `curves`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.arithmetic import HIGH, LOW, MAX_DOWN, MAX_UP, Wide, down_by, plus, real, saturated, shifted
from bcnn.program.ops.base import Floats, Kind, Map, Shape, Shorts, Values, replicated
from bcnn.program.ops.checks import down, floats, shorts, source_shape, up, whole
from bcnn.program.ops.window import pixels, values

if TYPE_CHECKING:
    from bcnn.program.ops.conversion import ToIntegers, ToReals


class Ending(Kind):
    """One step. What few endings do stands here with the value that says no."""

    KINDS: ClassVar[dict[str, type[Ending]]] = {}
    ADDS: ClassVar[bool] = False  # a map to v, which has the format of it
    SCALES: ClassVar[bool] = False  # v, so that what it makes may have another format than what it reads
    RESTARTS: ClassVar[bool] = False  # values from 0 to 1, whatever it reads, which have a format of their own
    BENDS: ClassVar[bool] = False  # negative values, by factors that may be large
    least: int = LOW  # of an integer program: what is less is limited before, which the map may hide

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        """Whether it fits a map of `shape`, after maps of `shapes`; a `UserError` if not. Parameters have a value for each channel."""
        for name, kind, vector in self.fields():
            check = {"Floats": floats, "Shorts": shorts}.get(kind.removesuffix(" | None"))
            if check and not (vector is None and kind.endswith(" | None")):
                check(name, vector, shape[2:])

    def apply(self, v: Values, maps: Sequence[Values]) -> Values:
        raise NotImplementedError

    def counts(self, shape: Shape) -> Counts:
        """Most compare each value with something."""
        return Counts(prelus=values(shape))

    def absolute(self) -> Ending | None:
        """What it does to magnitudes, see `Op.absolute`; none: it leaves them, or makes them smaller."""
        return self

    # --- integers -------------------------------------------------------------------------------------------------

    def largest(self, v: Floats) -> float:
        """Magnitude of v and of what it makes on the way."""
        return float(np.abs(v).max())

    def reach(self, most: Wide) -> Wide:
        """What the values that it makes can reach, of those up to `most`."""
        return most

    def to_integers(self, at: ToIntegers, f: int, bent: float) -> Sequence[Ending]:
        """What does the same to values of `f` fractional bits; `bent` is what `Formats` says of it."""
        if self.NUMBERS != "any":
            raise UserError(f"{type(self).__name__} has no integer form")
        return (self,)

    def before(self, made: int) -> int:
        """Fractional bits of what it reads, if what it makes has so many."""
        return made

    def to_reals(self, at: ToReals, f: int) -> Sequence[Ending]:
        """What does the same to the real numbers that values of `f` fractional bits stand for."""
        if self.NUMBERS != "any":
            raise UserError(f"{type(self).__name__} has no form in real numbers")
        return (self,)


# --- other maps -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Add(Ending):
    """v[first : first + reads] += map: the whole, a replicated map (channel k mod C), or one added to the last channels only."""

    ADDS = True

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
        return Counts(adds=pixels(shape) * self.reads)

    def to_integers(self, at: ToIntegers, f: int, bent: float) -> Sequence[Ending]:
        up = f - at.of(self.source)
        if abs(up) > MAX_UP:
            size = "smaller" if up > 0 else "larger"
            raise UserError(f"it adds map {self.source}, whose values are 2^{abs(up)} times {size}")
        return (FixedAdd(self.source, self.reads, self.first, up),)


@dataclass(frozen=True, eq=False)
class FixedAdd(Ending):
    """v[first : first + reads] (+)= map * 2^up: the whole, a replicated map (channel k mod C), or one added to some channels only."""

    NUMBERS = "int16"

    source: Map
    reads: int  # channels added
    first: int = 0  # the channel of v where they begin
    up: int = 0  # may be negative

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        Add(self.source, self.reads, self.first).check(shape, shapes)
        up("up", self.up, -MAX_UP)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        other = shifted(replicated(maps[self.source], self.reads), self.up)
        out = v.copy()
        part = slice(self.first, self.first + self.reads)
        out[..., part] = plus(v[..., part], other)
        return out

    def counts(self, shape: Shape) -> Counts:
        return Counts(adds=pixels(shape) * self.reads)

    def to_reals(self, at: ToReals, f: int) -> Sequence[Ending]:
        if at.of(self.source) + self.up != f:
            raise UserError(f"it adds map {self.source} in another unit than its own")
        return (Add(self.source, self.reads, self.first),)


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
        return Counts(mults=values(shape))

    def to_integers(self, at: ToIntegers, f: int, bent: float) -> Sequence[Ending]:
        if at.of(self.source) < 0:
            raise UserError(f"it multiplies by map {self.source}, whose values are too large for a gate")
        return (FixedGate(self.source, at.of(self.source)),)


@dataclass(frozen=True, eq=False)
class FixedGate(Ending):
    """v * map >> down, rounded and saturated; the map has v's height or 1, width or 1, and channels or 1."""

    NUMBERS = "int16"

    source: Map
    down: int

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        Gate(self.source).check(shape, shapes)
        down("down", self.down)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        return saturated(down_by(v.astype(np.int64) * maps[self.source], self.down))

    def counts(self, shape: Shape) -> Counts:
        return Counts(mults=values(shape))

    def to_reals(self, at: ToReals, f: int) -> Sequence[Ending]:
        if at.of(self.source) != self.down:
            raise UserError(f"it multiplies by map {self.source} in another unit than its own")
        return (Gate(self.source),)


# --- parameters -------------------------------------------------------------------------------------------------------


class _PerChannel(Ending):
    """What both forms of `Affine` share: either of their two vectors may be left out, not both."""

    scale: Any
    offset: Any

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        if self.scale is None and self.offset is None:
            raise UserError("has neither scale nor offset")
        super().check(shape, shapes)

    def counts(self, shape: Shape) -> Counts:
        n, (scaled, moved) = values(shape), (self.scale is not None, self.offset is not None)
        return Counts(real_params=(scaled + moved) * shape[2], mults=n * scaled, adds=n * moved)


@dataclass(frozen=True, eq=False)
class Affine(_PerChannel):
    """v * scale + offset per channel, two roundings; either may be left out, not both. An offset of -0.0 is 0.0."""

    SCALES = True

    scale: Floats | None
    offset: Floats | None

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        if self.scale is not None:
            v = v * self.scale
        return v if self.offset is None else v + self.offset

    def absolute(self) -> Ending | None:
        return Affine(*(None if vector is None else np.abs(vector) for vector in (self.scale, self.offset)))

    def largest(self, v: Floats) -> float:
        own = super().largest(v)
        return own if self.scale is None else max(own, super().largest(v * self.scale))

    def to_integers(self, at: ToIntegers, f: int, bent: float) -> Sequence[Ending]:
        offset = None if self.offset is None else at.shorts("offset", self.offset, f)
        if self.scale is None:
            return (FixedAffine(None, offset),)
        largest = float(np.abs(self.scale).max())
        down = int(np.clip(np.floor(np.log2(HIGH / largest)), 0, MAX_DOWN)) if largest > 0 else 0
        return (FixedAffine(at.shorts("scale", self.scale, down), offset, down),)


@dataclass(frozen=True, eq=False)
class FixedAffine(_PerChannel):
    """(v * scale >> down, rounded and saturated) (+) offset per channel; either may be left out, not both."""

    NUMBERS = "int16"

    scale: Shorts | None
    offset: Shorts | None
    down: int = 0

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        super().check(shape, shapes)
        down("down", self.down)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        if self.scale is not None:
            v = saturated(down_by(v.astype(np.int64) * self.scale, self.down))
        return v if self.offset is None else plus(v, self.offset)

    def to_reals(self, at: ToReals, f: int) -> Sequence[Ending]:
        scale = None if self.scale is None else real(self.scale, self.down)
        return (Affine(scale, None if self.offset is None else real(self.offset, f)),)


# --- of integer programs only -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bound(Ending):
    """v from -limit to limit, per channel: whoever reads the map can then prove that its sums fit 16 bits, and add without saturating."""

    NUMBERS = "int16"

    limit: Shorts  # [O]

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        super().check(shape, shapes)
        if self.limit.min() < 0:
            raise UserError("has a limit below 0")

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        return np.minimum(np.maximum(v, -self.limit), self.limit)

    def reach(self, most: Wide) -> Wide:
        return self.limit.astype(np.int64)

    def to_reals(self, at: ToReals, f: int) -> Sequence[Ending]:
        return ()


@dataclass(frozen=True, eq=False)
class Shift(Ending):
    """v * 2^up, saturated; rounded if up is negative: another number of fractional bits."""

    NUMBERS = "int16"

    up: int

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        up("up", self.up, -MAX_UP)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        return shifted(v, self.up)

    def counts(self, shape: Shape) -> Counts:
        return Counts()

    def reach(self, most: Wide) -> Wide:
        return np.minimum(most << self.up, HIGH) if self.up > 0 else most

    def before(self, made: int) -> int:
        return made - self.up

    def to_reals(self, at: ToReals, f: int) -> Sequence[Ending]:
        return ()


# --- all endings of an op ---------------------------------------------------------------------------------------------


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
