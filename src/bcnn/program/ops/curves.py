"""Endings that are a function of each value: PReLU, ReLU, limits, signs, the sigmoid. No torch. See `endings` and `arithmetic`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.arithmetic import HIGH, LOW, down_by, plus, product, real, saturated
from bcnn.program.ops.base import Floats, Shape, Shorts, Values
from bcnn.program.ops.checks import floats, shorts, whole
from bcnn.program.ops.endings import Affine, Ending
from bcnn.program.ops.window import values

if TYPE_CHECKING:
    from bcnn.program.ops.conversion import ToIntegers, ToReals

BEND_UP = 8  # PReLU: slopes up to 2^8 + 1
STEPS = 256  # of a table


@dataclass(frozen=True, eq=False)
class PReLU(Ending):
    """v, or slope * v where v < 0."""

    BENDS = True

    slope: Floats  # [O]

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        return np.where(v < 0, self.slope * v, v)

    def counts(self, shape: Shape) -> Counts:
        return Counts(real_params=shape[2], prelus=values(shape))

    def absolute(self) -> Ending | None:
        return Affine(np.maximum(np.float32(1), np.abs(self.slope)), None)

    def to_integers(self, at: ToIntegers, f: int, bent: float) -> Sequence[Ending]:
        """As several that limit nearly no value seen: one steep channel would have all of them limited to 2^15 >> up."""
        if bend_up(self.slope) > BEND_UP:
            raise UserError(f"a slope of {self.slope[np.abs(self.slope - 1).argmax()]:.4g} is too steep")
        bent *= 2.0**f
        room = int(np.log2(-LOW / max(bent, 1))) if np.isfinite(bent) else 0
        room = min(max(room, 1), BEND_UP)  # the room that calibration leaves is 1 at least
        made = []
        for slope in gentle(self.slope, room):
            bend, up = slope.astype(np.float64) - 1, bend_up(slope)
            made.append(FixedPReLU(at.stepped(np.clip(np.rint(bend * 2.0 ** (15 - up)), -HIGH, HIGH)), up))
        return made


def bend_up(slope: Floats) -> int:
    """`up` of a FixedPReLU: 2^up is at least |slope - 1|."""
    largest = float(np.abs(slope.astype(np.float64) - 1).max())
    return max(0, int(np.ceil(np.log2(largest)))) if largest > 0 else 0


def gentle(slope: Floats, up: int) -> list[Floats]:
    """Slopes of FixedPReLUs of at most `up` that do the same one after the other. What is negative stays so until the last."""
    least, most = 1 - 2**up, 1 + 2**up
    last = np.clip(slope, least, most)
    factor = slope / np.where(last == 0, 1, last).astype(np.float64)  # 1 where nothing was cut off, else more
    factor = np.maximum(factor, 1)
    before = int(np.ceil(np.log(factor.max()) / np.log(most)))
    return [(factor ** (1 / before)).astype(np.float32) for _ in range(before)] + [last.astype(np.float32)]


@dataclass(frozen=True, eq=False)
class FixedPReLU(Ending):
    """w = v, at least -(2^15 >> up); then w (+) R(min(w, 0) << up, bend), where bend = (slope - 1) * 2^(15 - up).

    With up = 0, slopes from 0 to 2, there is no limit and no shift.
    """

    NUMBERS = "int16"

    bend: Shorts  # [O]
    up: int = 0

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        super().check(shape, shapes)
        whole("up", self.up, 0, BEND_UP)

    @property
    def least(self) -> int:  # type: ignore[override]
        return -((-LOW) >> self.up)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        v = np.maximum(v, np.int16(self.least))
        negative = np.minimum(v, np.int16(0)) << np.int16(self.up)
        return plus(v, product(negative, self.bend))

    def counts(self, shape: Shape) -> Counts:
        return Counts(real_params=shape[2], prelus=values(shape))

    def to_reals(self, at: ToReals, f: int) -> Sequence[Ending]:
        return (PReLU(1 + real(self.bend, 15 - self.up)),)


@dataclass(frozen=True, eq=False)
class ReLU(Ending):
    """v, or 0 where v < 0."""

    NUMBERS = "any"

    def apply(self, v: Values, maps: Sequence[Values]) -> Values:
        return np.where(v < 0, v.dtype.type(0), v)

    def absolute(self) -> Ending | None:
        return None


@dataclass(frozen=True, eq=False)
class Clip(Ending):
    """limits[0] where v is less, limits[1] where v is more."""

    limits: Floats  # [2]

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        floats("limits", self.limits, (2,))
        in_order(self.limits)

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        low, high = self.limits
        v = np.where(v < low, low, v)
        return np.where(v > high, high, v)

    def absolute(self) -> Ending | None:
        return None

    def to_integers(self, at: ToIntegers, f: int, bent: float) -> Sequence[Ending]:
        limits = np.clip(np.rint(self.limits.astype(np.float64) * 2.0**f), LOW + 1, HIGH)
        return (FixedClip(limits.astype(np.int16)),)


@dataclass(frozen=True, eq=False)
class FixedClip(Ending):
    """limits[0] where v is less, limits[1] where v is more."""

    NUMBERS = "int16"

    limits: Shorts  # [2]

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        shorts("limits", self.limits, (2,))
        in_order(self.limits)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        return np.clip(v, self.limits[0], self.limits[1])

    def to_reals(self, at: ToReals, f: int) -> Sequence[Ending]:
        return (Clip(real(self.limits, f)),)


def in_order(limits: Any) -> None:
    if limits[0] > limits[1]:
        raise UserError(f"clips to limits {limits.tolist()} that are not in order")


@dataclass(frozen=True, eq=False)
class Sign(Ending):
    """+1 where v >= threshold, else -1, as real numbers: for what is no binary convolution."""

    threshold: Floats  # [O]

    def apply(self, v: Floats, maps: Sequence[Floats]) -> Floats:
        return np.where(v >= self.threshold, np.float32(1), np.float32(-1))

    def counts(self, shape: Shape) -> Counts:
        return Counts(real_params=shape[2], signs=values(shape))

    def absolute(self) -> Ending | None:
        return None

    def to_integers(self, at: ToIntegers, f: int, bent: float) -> Sequence[Ending]:
        if f < 0:
            raise UserError("it makes signs of values too large to hold 1 beside them")
        return (FixedSign(at.above(self.threshold, f), min(1 << f, HIGH)),)


@dataclass(frozen=True, eq=False)
class FixedSign(Ending):
    """one where v > above, else -one: for what is no binary convolution."""

    NUMBERS = "int16"

    above: Shorts  # [O]
    one: int

    def check(self, shape: Shape, shapes: Sequence[Shape]) -> None:
        super().check(shape, shapes)
        whole("one", self.one, 1, HIGH)

    def apply(self, v: Shorts, maps: Sequence[Shorts]) -> Shorts:
        return np.where(v > self.above, np.int16(self.one), np.int16(-self.one))

    def counts(self, shape: Shape) -> Counts:
        return Counts(real_params=shape[2], signs=values(shape))

    def to_reals(self, at: ToReals, f: int) -> Sequence[Ending]:
        if self.one != min(1 << max(f, 0), HIGH):
            raise UserError("its signs are not +1 and -1")
        return (Sign(real(self.above.astype(np.int64) + 1, f)),)


@dataclass(frozen=True, eq=False)
class Sigmoid(Ending):
    """1 / (1 + e^-v), by one sequence of float32 operations that every executor follows:

    1. z = -v, kept in [-87, 87], so that nothing overflows or becomes denormal.
    2. z = k ln 2 + r with k the nearest whole number: adding and taking away 1.5 * 2^23 rounds to it.
    3. e^r by its series up to r^6 / 720, from the inside out; |r| <= 0.35, so what is left out is below 2^-24.
    4. e^z = e^r * 2^k, exact, where 2^k is put together from its exponent bits.
    """

    SCALES = RESTARTS = True

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

    def absolute(self) -> Ending | None:
        # its slope is a quarter at most, and what it rounds itself is below 1
        return Affine(None, np.ones(1, np.float32))

    def to_integers(self, at: ToIntegers, f: int, bent: float) -> Sequence[Ending]:
        return (Table.sigmoid(f, at.made),)


@dataclass(frozen=True, eq=False)
class Table(Ending):
    """A curve such as the sigmoid, by 256 straight lines: with w = v limited to -(128 << down) ... (128 << down) - 1,

    i = (w >> down) + 128,   r = w - ((i - 128) << down),   values[i] + ((values[i + 1] - values[i]) * r >> down, rounded)
    """

    NUMBERS = "int16"

    values: Shorts  # [257]
    down: int  # at most 8: all of v is in the table's range then

    @classmethod
    def sigmoid(cls, f: int, made: int) -> Table:
        """From f fractional bits to `made`."""
        down = max(0, f - 4)  # -8 to 8 in steps of 1/16
        x = np.clip((np.arange(257) - 128) * 2.0 ** (down - f), -100, 100)  # e^100 is finite, and the rest of it 0 or 1
        return cls(np.clip(np.rint(2.0**made / (1 + np.exp(-x))), -HIGH, HIGH).astype(np.int16), down)

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

    def before(self, made: int) -> int:
        """With how many fractional bits it is a sigmoid: its lines are 2^(down - f) long."""
        for f in range(16):
            other = Table.sigmoid(f, made)
            if other.down == self.down and np.array_equal(other.values, self.values):
                return f
        raise UserError("its table is no sigmoid")

    def to_reals(self, at: ToReals, f: int) -> Sequence[Ending]:
        return (Sigmoid(),)
