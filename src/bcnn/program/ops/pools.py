"""Averages and maxima, of both numbers. No torch.

Means of float32 are running sums, divided. Means of integers are exact sums and the nearest whole number, halves up, saturated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.arithmetic import LOW, Wide, mean, saturated
from bcnn.program.ops.base import Floats, Map, Op, Shape, Values
from bcnn.program.ops.checks import source_shape, up, whole
from bcnn.program.ops.conversion import ToIntegers, ToReals
from bcnn.program.ops.window import Window, pixels, values, whole_map


class _Pool(Op):
    """What pools over a window share: it must touch the map everywhere, and one over all of the map grows with it."""

    NUMBERS = "any"
    MOVES = True

    source: Map
    window: Window

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        height, width = self.window.size(h, w)
        _every_window_touches(self.window, h, w)
        return height, width, c

    def resized(self, size: tuple[int, int], before: Sequence[Shape], now: Sequence[Shape]) -> Op:
        made: Op = self
        if whole_map(self.window, before[self.source]):
            made = replace(self, window=Window(now[self.source][:2]))  # type: ignore[type-var]
        return made


@dataclass(frozen=True, eq=False)
class AvgPool(_Pool):
    """v = 0, then v += x over the taps on the map in raster order; times float32(1 / taps).

    The taps counted are all of the window, or with `inside` those on the map (torch's count_include_pad=False). Before
    replication, which commutes with it. Of integers the mean of the same taps, the nearest whole number.
    """

    INTEGER_NAME = "FixedAvgPool"

    source: Map
    window: Window = field()
    inside: bool = False

    def run(self, maps: Sequence[Values]) -> Values:
        x = maps[self.source]
        counted = self.window.inside(*x.shape[:2]) if self.inside else np.array(self.window.taps)
        if x.dtype == np.int16:
            wide: Wide = np.zeros(1, np.int64)
            for view in self.window.views(x, 0):
                wide = wide + view
            return saturated(mean(wide, np.asarray(counted, np.int64)))
        total: Floats = np.zeros(1, np.float32)
        for view in self.window.views(x, 0.0):  # a sum that begins with 0.0 is never -0.0: adding 0 is leaving out
            total = total + view
        return total * np.asarray(1 / counted.astype(np.float64), np.float32)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return Counts(adds=values(self.shape(shapes)) * self.window.taps)


@dataclass(frozen=True, eq=False)
class MaxPool(_Pool):
    """The largest value of the taps on the map: v = the first in raster order, then x where x > v."""

    source: Map
    window: Window = field()

    def run(self, maps: Sequence[Values]) -> Values:
        x = maps[self.source]
        v, *others = self.window.views(x, LOW if x.dtype == np.int16 else -np.inf)
        for view in others:
            v = np.where(view > v, view, v)
        return np.ascontiguousarray(v)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return Counts(prelus=values(self.shape(shapes)) * self.window.taps)


def _every_window_touches(window: Window, height: int, width: int) -> None:
    """A pool of no pixels has no value."""
    for side, given in enumerate((height, width)):
        made = window.size(height, width)[side]
        first = [position * window.stride[side] - window.padding[side] for position in (0, made - 1)]
        taps = [[at + k * window.dilation[side] for k in range(window.kernel[side])] for at in first]
        if not all(any(0 <= tap < given for tap in position) for position in taps):
            raise UserError("has windows that lie outside the map")


@dataclass(frozen=True, eq=False)
class ChannelAvg(Op):
    """R < 1: output channel j is the mean of the input channels c with c mod `channels` = j, summed in ascending c, divided.
    Of integers the nearest whole number."""

    NUMBERS = "any"
    INTEGER_NAME = "FixedChannelAvg"
    MOVES = True

    source: Map
    channels: int

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        return h, w, whole("channels", self.channels, 1, c)

    def run(self, maps: Sequence[Values]) -> Values:
        groups = [maps[self.source][..., j :: self.channels] for j in range(self.channels)]
        if groups[0].dtype == np.int16:
            means = [mean(group.sum(axis=-1, dtype=np.int64), group.shape[-1]) for group in groups]
            return saturated(np.stack(means, axis=-1))
        sums = [np.cumsum(group, axis=-1, dtype=np.float32)[..., -1] for group in groups]
        return np.stack(
            [total / np.float32(group.shape[-1]) for total, group in zip(sums, groups, strict=True)], axis=-1
        )

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = shapes[self.source]
        return Counts(adds=values(shape), mults=pixels(shape) * self.channels)


@dataclass(frozen=True, eq=False)
class AbsMean(Op):
    """H,W,C -> H,W,1: v = 0, then v += |x| by ascending channel; times float32(1 / C). XNOR-Net's scale of its input is a pool of it.
    Of integers the nearest whole number, saturated."""

    NUMBERS = "any"
    INTEGER_NAME = "FixedAbsMean"
    MOVES = True

    source: Map

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, _ = source_shape(self.source, shapes)
        return h, w, 1

    def run(self, maps: Sequence[Values]) -> Values:
        x = maps[self.source]
        if x.dtype == np.int16:
            return saturated(mean(np.abs(x.astype(np.int64)).sum(axis=-1, keepdims=True), x.shape[-1]))
        total: Floats = np.cumsum(np.abs(x), axis=-1, dtype=np.float32)[..., -1:]
        return total * np.float32(1 / x.shape[-1])

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = shapes[self.source]
        return Counts(adds=values(shape), mults=pixels(shape))


@dataclass(frozen=True, eq=False)
class GlobalAvgPool(Op):
    """H,W,C -> 1,1,C: sum over pixels in raster order, times float32(1 / (H W)). Of integers the mean of
    x * 2^up, the nearest whole number, saturated: a mean is known better than its terms."""

    NUMBERS = "any"
    INTEGER_NAME = "FixedGlobalAvgPool"
    MEANS = True

    source: Map
    up: int = 0  # of integers only

    @property
    def numbers(self) -> str:
        return "int16" if self.up else "any"

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        up("up", self.up)
        return 1, 1, source_shape(self.source, shapes)[2]

    def run(self, maps: Sequence[Values]) -> Values:
        x = maps[self.source]
        flat = x.reshape(-1, x.shape[-1])
        if x.dtype == np.int16:
            return saturated(mean(flat.astype(np.int64).sum(axis=0) << self.up, len(flat))).reshape(1, 1, -1)
        total = np.cumsum(flat, axis=0, dtype=np.float32)[-1]
        made: Floats = (total * np.float32(1 / len(flat))).reshape(1, 1, -1)
        return made

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return Counts(adds=values(shapes[self.source]))

    def to_integers(self, at: ToIntegers) -> Op:
        change = at.made - at.of(self.source)
        if change < 0:
            raise UserError("its mean has fewer fractional bits than what it is a mean of")
        return replace(self, up=min(change, 15))

    def to_reals(self, at: ToReals) -> Op:
        return replace(self, up=0)
