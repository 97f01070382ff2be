"""Input, real convolutions and constants of an integer program. No torch. See `real` and `fixed_numbers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.base import (
    MAX_CHANNELS,
    Indices,
    Map,
    Op,
    Shape,
    Shorts,
    array,
    reads_channels,
    replicated,
    source_shape,
    vector,
    whole,
)
from bcnn.program.ops.endings import Ending, check_endings, count_endings, finish
from bcnn.program.ops.fixed_numbers import (
    LOW,
    MOST_DOWN,
    Wide,
    down,
    down_by,
    fits,
    indices,
    plus,
    product,
    saturated,
    shorts,
)
from bcnn.program.ops.window import ONE_PIXEL, Window, pixels

INTENSITY_DOWN = 14


@dataclass(frozen=True, eq=False)
class FixedInput(Op):
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
        if shapes:
            raise UserError("only the first op may be an Input")
        for name, values in (("scale", self.scale), ("offset", self.offset)):
            indices(name, values, (3,))
        half = (1 << down("down", self.down)) >> 1
        fits("a value", np.abs(self.scale.astype(np.int64)), np.abs(self.offset.astype(np.int64)) + half, most=255)
        if self.intensity is not None:
            shorts("intensity", self.intensity, (3,))
            fits("the intensity", np.abs(self.intensity.astype(np.int64)).sum(keepdims=True), 1 << INTENSITY_DOWN)
        return (
            whole("height", self.height, 1, 1 << 14),
            whole("width", self.width, 1, 1 << 14),
            3 + (self.intensity is not None),
        )

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        """`maps` holds the image, uint8 H,W,3."""
        array("image", maps[0], np.uint8, (self.height, self.width, 3))
        wide = maps[0].astype(np.int64) * self.scale + self.offset
        x = saturated(down_by(wide, self.down))
        if self.intensity is None:
            return x
        sums = (x.astype(np.int64) * self.intensity).sum(axis=-1, keepdims=True)
        return np.concatenate([x, saturated(down_by(sums, INTENSITY_DOWN))], axis=-1)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return Counts(real_macs=3 * self.height * self.width if self.intensity is not None else 0)


@dataclass(frozen=True, eq=False)
class FixedDepthwise(Op):
    """One filter a channel: v = offset, then v (+)= R(x, weight) tap by tap in raster order; a tap outside the map adds nothing.

    weight = w * 2^(15 - e): the map made has e fractional bits less than the one read.
    """

    NUMBERS = "int16"

    source: Map
    reads: int  # K = O
    weight: Shorts  # [kernel height, kernel width, O]
    offset: Shorts  # [O]
    window: Window
    after: tuple[Ending, ...] = ()
    fraction: int = 8

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        k = reads_channels(self.reads, c)
        height, width = self.window.size(h, w)
        shorts("offset", self.offset, (k,))
        shorts("weight", self.weight, (*self.window.kernel, k))
        return check_endings(self.after, (height, width, k), shapes)

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        x = replicated(maps[self.source], self.reads)
        weight = self.weight.reshape(self.window.taps, self.reads)
        v = self.offset
        for tap, view in enumerate(self.window.views(x, 0)):
            v = plus(v, product(view, weight[tap]))
        return finish(v, self.after, maps)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = self.shape(shapes)
        macs = pixels(shape) * self.weight.size
        own = Counts(real_params=self.weight.size + self.offset.size, real_macs=macs, adds=pixels(shape) * shape[2])
        return own + count_endings(self.after, shape)


@dataclass(frozen=True, eq=False)
class FixedConv(Op):
    """Real convolution: offset + sum of weight * x in 32 bits, which a check bounds, then >> down of its channel, rounded and
    saturated. A tap outside the map adds nothing. A fully connected layer is one on a 1 x 1 map."""

    NUMBERS = "int16"

    source: Map
    reads: int  # K: channel k of the source is read as k mod C
    weight: Shorts  # [kernel height, kernel width, K / groups, O]
    offset: Indices  # [O]
    down: Shorts  # [O]
    window: Window = ONE_PIXEL
    groups: int = 1
    after: tuple[Ending, ...] = ()
    fraction: int = 8

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        k, o = reads_channels(self.reads, c), vector("offset", self.offset)
        groups = whole("groups", self.groups, 1, MAX_CHANNELS)
        if k % groups or o % groups:
            raise UserError(f"its {groups} groups divide neither or only one of {k} channels read and {o} made")
        height, width = self.window.size(h, w)
        indices("offset", self.offset, (o,))
        shorts("weight", self.weight, (*self.window.kernel, k // groups, o))
        shorts("down", self.down, (o,))
        if self.down.min() < 0 or self.down.max() > MOST_DOWN:
            raise UserError(f"down is not from 0 to {MOST_DOWN}")
        magnitudes = np.abs(self.weight.astype(np.int64)).reshape(-1, o).sum(axis=0)
        half = np.left_shift(1, self.down, dtype=np.int64) >> 1
        fits("a sum", magnitudes, np.abs(self.offset.astype(np.int64)) + half, most=-LOW)
        return check_endings(self.after, (height, width, o), shapes)

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        x = replicated(maps[self.source], self.reads)
        inner, made = self.reads // self.groups, self.offset.size // self.groups
        weight = self.weight.astype(np.int64).reshape(self.window.taps, inner, self.groups, made)
        height, width = self.window.size(*x.shape[:2])
        sums: Wide = np.broadcast_to(self.offset.astype(np.int64), (height, width, self.offset.size)).copy()
        v = sums.reshape(height, width, self.groups, made)
        for tap, view in enumerate(self.window.views(x, 0)):
            grouped = view.astype(np.int64).reshape(height, width, self.groups, inner)
            v += np.einsum("hwgi,igo->hwgo", grouped, weight[tap])
        return finish(saturated(down_by(sums, self.down.astype(np.int64))), self.after, maps)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = self.shape(shapes)
        macs = pixels(shape) * self.weight.size
        own = Counts(real_params=self.weight.size + self.offset.size, real_macs=macs, adds=pixels(shape) * shape[2])
        return own + count_endings(self.after, shape)


@dataclass(frozen=True, eq=False)
class FixedConstant(Op):
    """A map that is the same for every image."""

    NUMBERS = "int16"

    value: Shorts  # [H, W, C]
    fraction: int = 8

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        if not isinstance(self.value, np.ndarray) or self.value.ndim != 3:
            raise UserError("value must be a map H,W,C")
        shorts("value", self.value, self.value.shape)
        h, w, c = self.value.shape
        return h, w, c

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        return self.value

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return Counts(real_params=self.value.size)
