"""Averages of an integer program: exact sums, and the nearest whole number, halves up. No torch. See `pools`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnn.program.counts import Counts
from bcnn.program.ops.base import Map, Op, Shape, Shorts, source_shape
from bcnn.program.ops.fixed_numbers import Wide, mean, saturated, up
from bcnn.program.ops.pools import AbsMean, AvgPool, ChannelAvg, GlobalAvgPool
from bcnn.program.ops.window import Window


@dataclass(frozen=True, eq=False)
class FixedAvgPool(Op):
    """The mean over all taps of the window (those outside the map are 0), or with `inside` over those on the map."""

    NUMBERS = "int16"

    source: Map
    window: Window
    inside: bool = False

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        return AvgPool(self.source, self.window, self.inside).shape(shapes)

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        x = maps[self.source]
        total: Wide = np.zeros(1, np.int64)
        for view in self.window.views(x, 0):
            total = total + view
        counted = self.window.inside(*x.shape[:2]).astype(np.int64) if self.inside else self.window.taps
        return saturated(mean(total, counted))

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return AvgPool(self.source, self.window, self.inside).counts(shapes)


@dataclass(frozen=True, eq=False)
class FixedGlobalAvgPool(Op):
    """H,W,C -> 1,1,C: the mean of x * 2^up over all pixels, saturated: a mean is known better than its terms."""

    NUMBERS = "int16"

    source: Map
    up: int = 0

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        up("up", self.up)
        return 1, 1, source_shape(self.source, shapes)[2]

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        x = maps[self.source]
        total = x.reshape(-1, x.shape[-1]).astype(np.int64).sum(axis=0) << self.up
        return saturated(mean(total, x.shape[0] * x.shape[1])).reshape(1, 1, -1)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return GlobalAvgPool(self.source).counts(shapes)


@dataclass(frozen=True, eq=False)
class FixedChannelAvg(Op):
    """R < 1: output channel j is the mean of the input channels c with c mod `channels` = j."""

    NUMBERS = "int16"

    source: Map
    channels: int

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        return ChannelAvg(self.source, self.channels).shape(shapes)

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        x = maps[self.source].astype(np.int64)
        groups = [x[..., j :: self.channels] for j in range(self.channels)]
        return saturated(np.stack([mean(group.sum(axis=-1), group.shape[-1]) for group in groups], axis=-1))

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return ChannelAvg(self.source, self.channels).counts(shapes)


@dataclass(frozen=True, eq=False)
class FixedAbsMean(Op):
    """H,W,C -> H,W,1: the mean of |x| over the channels, saturated."""

    NUMBERS = "int16"

    source: Map

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        return AbsMean(self.source).shape(shapes)

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        x = np.abs(maps[self.source].astype(np.int64))
        return saturated(mean(x.sum(axis=-1, keepdims=True), x.shape[-1]))

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return AbsMean(self.source).counts(shapes)
