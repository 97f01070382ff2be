"""Real convolution and fully connected layer, and ops that work value by value. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.base import (
    MAX_CHANNELS,
    Floats,
    Map,
    Op,
    Shape,
    array,
    floats,
    reads_channels,
    replicated,
    source_shape,
    vector,
    whole,
)
from bcnn.program.ops.endings import Affine, Ending, absolute_endings, check_endings, count_endings, finish
from bcnn.program.ops.window import ONE_PIXEL, Window, pixels


@dataclass(frozen=True, eq=False)
class Conv(Op):
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

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        k, o = reads_channels(self.reads, c), vector("offset", self.offset)
        groups = whole("groups", self.groups, 1, MAX_CHANNELS)
        if k % groups or o % groups:
            raise UserError(f"its {groups} groups divide neither or only one of {k} channels read and {o} made")
        height, width = self.window.size(h, w)
        floats("offset", self.offset, (o,))
        floats("weight", self.weight, (*self.window.kernel, k // groups, o))
        return check_endings(self.after, (height, width, o), shapes)

    def run(self, maps: Sequence[Floats]) -> Floats:
        x = replicated(maps[self.source], self.reads)
        inner, made = self.reads // self.groups, self.offset.size // self.groups
        weight = self.weight.reshape(self.window.taps, inner, self.groups, made)
        v: Floats = self.offset.reshape(self.groups, made)
        for tap, view in enumerate(self.window.views(x, 0.0)):
            grouped = view.reshape(*view.shape[:2], self.groups, inner)
            for c in range(inner):
                v = v + grouped[..., c, None] * weight[tap, c]
        return finish(v.reshape(*v.shape[:2], self.offset.size), self.after, maps)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = self.shape(shapes)
        macs = pixels(shape) * self.weight.size
        own = Counts(real_params=self.weight.size + self.offset.size, real_macs=macs, adds=pixels(shape) * shape[2])
        return own + count_endings(self.after, shape)

    def absolute(self, more: Floats) -> Op:
        offset = np.abs(self.offset) + more
        return replace(self, weight=np.abs(self.weight), offset=offset, after=absolute_endings(self.after))


@dataclass(frozen=True, eq=False)
class Linear(Op):
    """1,1,C -> 1,1,O: v = bias, then v += x[c] * weight[c] for ascending c; then the endings."""

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
        return replace(
            self, weight=np.abs(self.weight), bias=np.abs(self.bias) + more, after=absolute_endings(self.after)
        )


@dataclass(frozen=True, eq=False)
class Pointwise(Op):
    """A map with endings and nothing before them: batch norm, PReLU, sums and products of maps that no other op can end with."""

    NUMBERS = "any"

    source: Map
    reads: int
    after: tuple[Ending, ...]
    fraction: int | None = None  # of an integer program's map, if not that of the source

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        if not self.after:
            raise UserError("does nothing: it has no endings")
        return check_endings(self.after, (h, w, reads_channels(self.reads, c)), shapes)

    def run(self, maps: Sequence[Floats]) -> Floats:
        return finish(replicated(maps[self.source], self.reads), self.after, maps)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return count_endings(self.after, self.shape(shapes))

    def absolute(self, more: Floats) -> Op:
        return replace(
            self, after=(Affine(None, np.broadcast_to(more, self.reads).copy()), *absolute_endings(self.after))
        )


@dataclass(frozen=True, eq=False)
class Constant(Op):
    """A map that is the same for every image."""

    value: Floats  # [H, W, C]

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        if not isinstance(self.value, np.ndarray) or self.value.ndim != 3:
            raise UserError("value must be a map H,W,C")
        floats("value", self.value, self.value.shape)
        h, w, c = self.value.shape
        return h, w, c

    def run(self, maps: Sequence[Floats]) -> Floats:
        return self.value

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return Counts(real_params=self.value.size)

    def absolute(self, more: Floats) -> Op:
        return Constant(np.abs(self.value))


@dataclass(frozen=True, eq=False)
class Input(Op):
    """uint8 H,W,3 -> H,W,3 or 4: v = u * scale + offset per channel, then r*i0 + g*i1 + b*i2 as fourth channel (sec. 4.1)."""

    height: int
    width: int
    scale: Floats  # [3]
    offset: Floats  # [3]
    intensity: Floats | None = None  # [3]

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        if shapes:
            raise UserError("only the first op may be an Input")
        for name, values in (("scale", self.scale), ("offset", self.offset)):
            floats(name, values, (3,))
        if self.intensity is not None:
            floats("intensity", self.intensity, (3,))
        return (
            whole("height", self.height, 1, 1 << 14),
            whole("width", self.width, 1, 1 << 14),
            3 + (self.intensity is not None),
        )

    def run(self, maps: Sequence[Floats]) -> Floats:
        """`maps` holds the image, uint8 H,W,3."""
        array("image", maps[0], np.uint8, (self.height, self.width, 3))
        x: Floats = maps[0].astype(np.float32) * self.scale + self.offset
        if self.intensity is None:
            return x
        r, g, b = x[..., 0], x[..., 1], x[..., 2]
        i = self.intensity
        return np.concatenate([x, (r * i[0] + g * i[1] + b * i[2])[..., None]], axis=-1)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return Counts(real_macs=3 * self.height * self.width if self.intensity is not None else 0)

    def absolute(self, more: Floats) -> Op:
        return replace(self, offset=np.abs(self.offset))
