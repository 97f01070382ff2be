"""Averages and maxima. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.base import Floats, Map, Op, Shape, Values, source_shape, whole
from bcnn.program.ops.window import Window, pixels


@dataclass(frozen=True, eq=False)
class AvgPool(Op):
    """v = 0, then v += x over the taps on the map in raster order; times float32(1 / taps).

    The taps counted are all of the window, or with `inside` those on the map (torch's count_include_pad=False). Before
    replication, which commutes with it.
    """

    source: Map
    window: Window
    inside: bool = False

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        height, width = self.window.size(h, w)
        _every_window_touches(self.window, h, w)
        return height, width, c

    def run(self, maps: Sequence[Floats]) -> Floats:
        x = maps[self.source]
        total: Floats = np.zeros(1, np.float32)
        for view in self.window.views(x, 0.0):  # a sum that begins with 0.0 is never -0.0: adding 0 is leaving out
            total = total + view
        if not self.inside:
            return total * np.float32(1 / self.window.taps)
        return total * (1 / self.window.inside(*x.shape[:2]).astype(np.float64)).astype(np.float32)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = self.shape(shapes)
        return Counts(adds=pixels(shape) * shape[2] * self.window.taps)


@dataclass(frozen=True, eq=False)
class MaxPool(Op):
    """The largest value of the taps on the map: v = the first in raster order, then x where x > v."""

    NUMBERS = "any"

    source: Map
    window: Window

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        height, width = self.window.size(h, w)
        _every_window_touches(self.window, h, w)
        return height, width, c

    def run(self, maps: Sequence[Values]) -> Values:
        x = maps[self.source]
        least = -32768 if x.dtype == np.int16 else -np.inf
        first, *others = self.window.views(x, least)
        v = first
        for view in others:
            v = np.where(view > v, view, v)
        return np.ascontiguousarray(v)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = self.shape(shapes)
        return Counts(prelus=pixels(shape) * shape[2] * self.window.taps)


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
    """R < 1: output channel j is the mean of the input channels c with c mod `channels` = j, summed in ascending c, divided."""

    source: Map
    channels: int

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        return h, w, whole("channels", self.channels, 1, c)

    def run(self, maps: Sequence[Floats]) -> Floats:
        x = maps[self.source]
        means = []
        for j in range(self.channels):
            group = x[..., j :: self.channels]
            means.append(np.cumsum(group, axis=-1, dtype=np.float32)[..., -1] / np.float32(group.shape[-1]))
        return np.stack(means, axis=-1)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = shapes[self.source]
        return Counts(adds=pixels(shape) * shape[2], mults=pixels(shape) * self.channels)


@dataclass(frozen=True, eq=False)
class AbsMean(Op):
    """H,W,C -> H,W,1: v = 0, then v += |x| by ascending channel; times float32(1 / C). XNOR-Net's scale of its input is a pool of it."""

    source: Map

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, _ = source_shape(self.source, shapes)
        return h, w, 1

    def run(self, maps: Sequence[Floats]) -> Floats:
        x = np.abs(maps[self.source])
        total: Floats = np.cumsum(x, axis=-1, dtype=np.float32)[..., -1:]
        return total * np.float32(1 / x.shape[-1])

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = shapes[self.source]
        return Counts(adds=pixels(shape) * shape[2], mults=pixels(shape))


@dataclass(frozen=True, eq=False)
class GlobalAvgPool(Op):
    """H,W,C -> 1,1,C: sum over pixels in raster order, times float32(1 / (H W))."""

    source: Map

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        return 1, 1, source_shape(self.source, shapes)[2]

    def run(self, maps: Sequence[Floats]) -> Floats:
        x = maps[self.source]
        flat = x.reshape(-1, x.shape[-1])
        total = np.cumsum(flat, axis=0, dtype=np.float32)[-1]
        made: Floats = (total * np.float32(1 / len(flat))).reshape(1, 1, -1)
        return made

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = shapes[self.source]
        return Counts(adds=pixels(shape) * shape[2])
