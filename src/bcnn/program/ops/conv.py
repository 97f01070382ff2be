"""Real convolutions and fully connected layers. No torch. Those of integer programs see `arithmetic`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.arithmetic import HIGH, LOW, MAX_DOWN, Wide, down_by, plus, product, real, saturated
from bcnn.program.ops.base import Floats, Indices, Map, Op, Shape, Shorts, replicated
from bcnn.program.ops.checks import fits, floats, grouped, indices, reads_channels, shorts, source_shape, vector
from bcnn.program.ops.conversion import ToIntegers, ToReals, shift, sums
from bcnn.program.ops.endings import Affine, Ending, absolute_endings, check_endings, count_endings, finish
from bcnn.program.ops.pointwise import Pointwise
from bcnn.program.ops.window import ONE_PIXEL, Window, pixels, values

MAX_MORE = 5  # bits that a map has for a depth wise reader


class _Filters(Op):
    """What convolutions share, whatever they sum with: which pixels and channels meet, and what that costs."""

    WEIGHS = True

    source: Map
    reads: int  # K: channel k of the source is read as k mod C
    weight: Any
    offset: Any
    window: Window

    def made(self, groups: Any, shapes: Sequence[Shape]) -> Shape:
        """The shape of its map."""
        h, w, c = source_shape(self.source, shapes)
        o = vector("offset", self.offset)
        grouped(groups, reads_channels(self.reads, c), o)
        return *self.window.size(h, w), o

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape, weights = self.shape(shapes), self.weight.size
        held = weights + self.offset.size
        own = Counts(real_params=held, real_macs=pixels(shape) * weights, adds=values(shape))
        return own + count_endings(self.after, shape)


@dataclass(frozen=True, eq=False)
class Conv(_Filters):
    """Real convolution: v = offset, then v += weight * x tap by tap in raster order, in a tap by ascending channel of the group.

    A tap outside the map adds nothing. Adding 0 instead gives the same bits, since no v is ever -0.0: an offset of -0.0 is made 0.0.
    Depth wise is groups = K = O.
    """

    source: Map
    reads: int  # K: channel k of the source is read as k mod C
    weight: Floats  # [kernel height, kernel width, K / groups, O]
    offset: Floats  # [O]
    window: Window = ONE_PIXEL
    groups: int = 1
    after: tuple[Ending, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.offset, np.ndarray) and self.offset.dtype == np.float32:
            object.__setattr__(self, "offset", self.offset + np.float32(0))

    @property
    def depthwise(self) -> bool:
        return self.groups == self.reads == self.offset.size

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        shape = self.made(self.groups, shapes)
        floats("offset", self.offset, shape[2:])
        floats("weight", self.weight, (*self.window.kernel, self.reads // self.groups, shape[2]))
        return check_endings(self.after, shape, shapes)

    def run(self, maps: Sequence[Floats]) -> Floats:
        x = replicated(maps[self.source], self.reads)
        inner, made = self.reads // self.groups, self.offset.size // self.groups
        weight = self.weight.reshape(self.window.taps, inner, self.groups, made)
        v: Floats = self.offset.reshape(self.groups, made)
        for tap, view in enumerate(self.window.views(x, 0.0)):
            by_group = view.reshape(*view.shape[:2], self.groups, inner)
            for c in range(inner):
                v = v + by_group[..., c, None] * weight[tap, c]
        return finish(v.reshape(*v.shape[:2], self.offset.size), self.after, maps)

    def absolute(self, more: Floats) -> Op:
        offset = np.abs(self.offset) + more
        return replace(self, weight=np.abs(self.weight), offset=offset, after=absolute_endings(self.after))

    def to_integers(self, at: ToIntegers) -> Op:
        if self.depthwise:
            made = self.in_16_bits(at)
            return replace(made, after=(*made.after, *at.endings(self.after)))
        weight, offset, down = sums(self.weight, self.offset, at.of(self.source), at.f, at.bytes)
        after = at.endings(self.after)
        return FixedConv(self.source, self.reads, weight, offset, down, self.window, self.groups, after, at.made)

    # --- depth wise, in integers --------------------------------------------------------------------------------

    def shrink(self) -> int:
        """e: the fewest halvings that make every weight less than 1."""
        largest = float(np.abs(self.weight).max())
        return max(0, min(MAX_MORE, int(np.floor(np.log2(largest))) + 1 if largest > 0 else 0))

    def in_16_bits(self, at: ToIntegers) -> FixedDepthwise:
        """The sum has as many bits as the largest weight allows; a shift makes up for the rest."""
        read = at.of(self.source)
        largest = float(np.abs(self.weight).max())
        e = read - at.f
        if largest > 0:
            e = max(e, int(np.floor(np.log2(largest * 32768 / (HIGH + 0.5)))) + 1)
        offset = float(np.abs(self.offset).max())
        if offset > 0:
            e = max(e, read - int(np.floor(np.log2((HIGH + 0.5) / offset))))
        weight = at.shorts("weight", self.weight[:, :, 0, :], 15 - e, per_channel=True)
        after = () if e == read - at.f else (shift(at.f - read + e),)
        offsets = at.shorts("offset", self.offset, read - e)
        return FixedDepthwise(self.source, self.reads, weight, offsets, self.window, after, at.made)

    def limits(self, at: ToIntegers) -> Wide:
        """Of the magnitudes it reads: within them no sum leaves 16 bits."""
        made = self.in_16_bits(at)
        magnitudes = np.abs(made.weight.astype(np.int64)).reshape(-1, made.reads).sum(axis=0)
        room = HIGH - np.abs(made.offset.astype(np.int64)) - made.window.taps
        found: Wide = np.where(magnitudes > 0, (room << 15) // np.maximum(magnitudes, 1), HIGH)
        return found


@dataclass(frozen=True, eq=False)
class FixedDepthwise(_Filters):
    """One filter a channel: v = offset, then v (+)= R(x, weight) tap by tap in raster order; a tap outside the map adds nothing.

    weight = w * 2^(15 - e): the map made has e fractional bits less than the one read.
    """

    NUMBERS = "int16"
    depthwise = True

    source: Map
    reads: int  # K = O
    weight: Shorts  # [kernel height, kernel width, O]
    offset: Shorts  # [O]
    window: Window = field()
    after: tuple[Ending, ...] = ()
    fraction: int = 8

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        shorts("offset", self.offset, (self.reads,))
        shape = self.made(self.reads, shapes)
        shorts("weight", self.weight, (*self.window.kernel, self.reads))
        return check_endings(self.after, shape, shapes)

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        x = replicated(maps[self.source], self.reads)
        weight = self.weight.reshape(self.window.taps, self.reads)
        v = self.offset
        for tap, view in enumerate(self.window.views(x, 0)):
            v = plus(v, product(view, weight[tap]))
        return finish(v, self.after, maps)

    def to_reals(self, at: ToReals) -> Op:
        f, after = at.endings(self.after)
        weight = real(self.weight[:, :, None], 15 + f - at.of(self.source))
        return Conv(self.source, self.reads, weight, real(self.offset, f), self.window, self.reads, after)


@dataclass(frozen=True, eq=False)
class FixedConv(_Filters):
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
        shape = self.made(self.groups, shapes)
        indices("offset", self.offset, shape[2:])
        shorts("weight", self.weight, (*self.window.kernel, self.reads // self.groups, shape[2]))
        shorts("down", self.down, shape[2:])
        if self.down.min() < 0 or self.down.max() > MAX_DOWN:
            raise UserError(f"down is not from 0 to {MAX_DOWN}")
        magnitudes = np.abs(self.weight.astype(np.int64)).reshape(-1, shape[2]).sum(axis=0)
        half = np.left_shift(1, self.down, dtype=np.int64) >> 1
        fits("a sum", magnitudes, np.abs(self.offset.astype(np.int64)) + half, most=-LOW)
        return check_endings(self.after, shape, shapes)

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        x = replicated(maps[self.source], self.reads)
        inner, made = self.reads // self.groups, self.offset.size // self.groups
        weight = self.weight.astype(np.int64).reshape(self.window.taps, inner, self.groups, made)
        height, width = self.window.size(*x.shape[:2])
        sums: Wide = np.broadcast_to(self.offset.astype(np.int64), (height, width, self.offset.size)).copy()
        v = sums.reshape(height, width, self.groups, made)
        for tap, view in enumerate(self.window.views(x, 0)):
            by_group = view.astype(np.int64).reshape(height, width, self.groups, inner)
            v += np.einsum("hwgi,igo->hwgo", by_group, weight[tap])
        return finish(saturated(down_by(sums, self.down.astype(np.int64))), self.after, maps)

    def to_reals(self, at: ToReals) -> Op:
        f, after = at.endings(self.after)
        bits = f + self.down.astype(np.int64)  # of the sums, per output channel
        weight, offset = real(self.weight, bits - at.of(self.source)), real(self.offset, bits)
        if self.window.pointwise and self.groups == self.reads == offset.size:
            return Pointwise(self.source, self.reads, (Affine(weight[0, 0, 0], offset), *after))
        if self.window.pointwise and self.groups == 1 and at.program.shapes[self.source] == (1, 1, self.reads):
            return Linear(self.source, np.ascontiguousarray(weight[0, 0]), offset, after)
        return Conv(self.source, self.reads, weight, offset, self.window, self.groups, after)


@dataclass(frozen=True, eq=False)
class Linear(Op):
    """1,1,C -> 1,1,O: v = bias, then v += x[c] * weight[c] for ascending c; then the endings."""

    WEIGHS = True

    source: Map
    weight: Floats  # [C, O]
    bias: Floats  # [O]
    after: tuple[Ending, ...] = ()

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        o = vector("bias", self.bias)
        if (h, w) != (1, 1):
            raise UserError(f"reads a {h} x {w} map; a Linear op needs 1 x 1")
        floats("bias", self.bias, (o,))
        floats("weight", self.weight, (c, o))
        return check_endings(self.after, (1, 1, o), shapes)

    def run(self, maps: Sequence[Floats]) -> Floats:
        x = maps[self.source].reshape(-1)
        v = self.bias
        for c in range(x.size):
            v = v + x[c] * self.weight[c]
        return finish(v.reshape(1, 1, -1), self.after, maps)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        own = Counts(real_params=self.weight.size + self.bias.size, real_macs=self.weight.size)
        return own + count_endings(self.after, (1, 1, self.bias.size))

    def absolute(self, more: Floats) -> Op:
        bias = np.abs(self.bias) + more
        return replace(self, weight=np.abs(self.weight), bias=bias, after=absolute_endings(self.after))

    def to_integers(self, at: ToIntegers) -> Op:
        bytes_ = at.bytes or at.last  # a decoder is large, and needs no more
        made = sums(self.weight[None, None], self.bias, at.of(self.source), at.f, bytes_)
        return FixedConv(self.source, len(self.weight), *made, after=at.endings(self.after), fraction=at.made)
