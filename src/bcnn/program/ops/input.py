"""Maps that no op makes of others: the image, and constants. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.arithmetic import WIDEST, down_by, real, saturated
from bcnn.program.ops.base import MAX_SIDE, Floats, Indices, Op, Shape, Shorts, Values
from bcnn.program.ops.checks import array, down, fits, floats, indices, shorts, whole
from bcnn.program.ops.conversion import ToIntegers, ToReals

INTENSITY_DOWN = 14


class _Image(Op):
    """What both forms of `Input` share: its size."""

    READS_IMAGE = True

    height: int
    width: int
    intensity: Any

    def image_shape(self, shapes: Sequence[Shape]) -> Shape:
        if shapes:
            raise UserError("only the first op may be an Input")
        height, width = (whole(what, getattr(self, what), 1, MAX_SIDE) for what in ("height", "width"))
        return height, width, 3 + (self.intensity is not None)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return Counts(real_macs=3 * self.height * self.width if self.intensity is not None else 0)

    def resized(self, size: tuple[int, int], before: Sequence[Shape], now: Sequence[Shape]) -> Op:
        made: Op = replace(self, height=size[0], width=size[1])  # type: ignore[type-var]
        return made


@dataclass(frozen=True, eq=False)
class Input(_Image):
    """uint8 H,W,3 -> H,W,3 or 4: v = u * scale + offset per channel, then r*i0 + g*i1 + b*i2 as fourth channel (sec. 4.1)."""

    height: int
    width: int
    scale: Floats  # [3]
    offset: Floats  # [3]
    intensity: Floats | None = None  # [3]

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        for name, values in (("scale", self.scale), ("offset", self.offset), ("intensity", self.intensity)):
            if values is not None or name != "intensity":
                floats(name, values, (3,))
        return self.image_shape(shapes)

    def run(self, maps: Sequence[Floats]) -> Floats:
        """`maps` holds the image, uint8 H,W,3."""
        array("image", maps[0], np.uint8, (self.height, self.width, 3))
        x: Floats = maps[0].astype(np.float32) * self.scale + self.offset
        if self.intensity is None:
            return x
        r, g, b = x[..., 0], x[..., 1], x[..., 2]
        i = self.intensity
        return np.concatenate([x, (r * i[0] + g * i[1] + b * i[2])[..., None]], axis=-1)

    def absolute(self, more: Floats) -> Op:
        return replace(self, offset=np.abs(self.offset))

    def to_integers(self, at: ToIntegers) -> Op:
        scale, offset = self.scale.astype(np.float64), self.offset.astype(np.float64)
        intensity = None
        if self.intensity is not None:
            weights = np.rint(self.intensity.astype(np.float64) * 2.0**INTENSITY_DOWN)
            if np.abs(weights).sum() > 1.9 * 2**15:  # in 32 bits with values of 16
                largest = np.abs(self.intensity).max()
                raise UserError(f"the weights of its intensity, of up to {largest:.4g}, are too large")
            intensity = weights.astype(np.int16)
        for bits in range(16, -1, -1):
            numbers = [np.rint(values * 2.0 ** (at.f + bits)) for values in (scale, offset)]
            if (255 * np.abs(numbers[0]) + np.abs(numbers[1]) + 2.0**bits).max() < WIDEST:
                scales, offsets = (values.astype(np.int32) for values in numbers)
                return FixedInput(self.height, self.width, scales, offsets, bits, intensity, at.made)
        raise UserError("the input's values do not fit 16 bits")


@dataclass(frozen=True, eq=False)
class FixedInput(_Image):
    """uint8 H,W,3 -> H,W,3 or 4: v = (u * scale + offset) >> down, rounded and saturated, per channel; then as fourth channel
    (r*i0 + g*i1 + b*i2) >> 14 of those, rounded and saturated (sec. 4.1)."""

    NUMBERS = "int16"

    height: int
    width: int
    scale: Indices  # [3]
    offset: Indices  # [3]
    down: int
    intensity: Shorts | None = None  # [3]
    fraction: int = 8

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        for name, values in (("scale", self.scale), ("offset", self.offset)):
            indices(name, values, (3,))
        half = (1 << down("down", self.down)) >> 1
        fits("a value", np.abs(self.scale.astype(np.int64)), np.abs(self.offset.astype(np.int64)) + half, most=255)
        if self.intensity is not None:
            shorts("intensity", self.intensity, (3,))
            fits("the intensity", np.abs(self.intensity.astype(np.int64)).sum(keepdims=True), 1 << INTENSITY_DOWN)
        return self.image_shape(shapes)

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        """`maps` holds the image, uint8 H,W,3."""
        array("image", maps[0], np.uint8, (self.height, self.width, 3))
        x = saturated(down_by(maps[0].astype(np.int64) * self.scale + self.offset, self.down))
        if self.intensity is None:
            return x
        sums = (x.astype(np.int64) * self.intensity).sum(axis=-1, keepdims=True)
        return np.concatenate([x, saturated(down_by(sums, INTENSITY_DOWN))], axis=-1)

    def to_reals(self, at: ToReals) -> Op:
        bits = self.fraction + self.down
        intensity = None if self.intensity is None else real(self.intensity, INTENSITY_DOWN)
        return Input(self.height, self.width, real(self.scale, bits), real(self.offset, bits), intensity)


class _Constant(Op):
    """What both forms of `Constant` share."""

    value: Any

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        if not isinstance(self.value, np.ndarray) or self.value.ndim != 3:
            raise UserError("value must be a map H,W,C")
        (floats if self.NUMBERS == "float32" else shorts)("value", self.value, self.value.shape)
        h, w, c = self.value.shape
        return h, w, c

    def run(self, maps: Sequence[Values]) -> Values:
        made: Values = self.value
        return made

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return Counts(real_params=self.value.size)


@dataclass(frozen=True, eq=False)
class Constant(_Constant):
    """A map that is the same for every image."""

    value: Floats  # [H, W, C]

    def absolute(self, more: Floats) -> Op:
        return Constant(np.abs(self.value))

    def to_integers(self, at: ToIntegers) -> Op:
        return FixedConstant(at.shorts("value", self.value, at.made), at.made)


@dataclass(frozen=True, eq=False)
class FixedConstant(_Constant):
    """A map that is the same for every image."""

    NUMBERS = "int16"

    value: Shorts  # [H, W, C]
    fraction: int = 8

    def to_reals(self, at: ToReals) -> Op:
        return Constant(real(self.value, self.fraction))
