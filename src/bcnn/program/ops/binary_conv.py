"""The binary convolution: signs of a map against signs of weights, in integers, then one scale and offset. No torch.

That of integer programs ends in the arithmetic of `arithmetic`.

Legend: H x W map size, C channels of the map read, K channels after replication (K = RC), O channels made, T taps of the window,
G groups. Bits: 1 stands for +1, 0 for -1; channel c is bit c % 32 of word c // 32, tail bits are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.program.bits import unpack_bits
from bcnn.program.counts import Counts
from bcnn.program.ops.arithmetic import HIGH, plus, product, real
from bcnn.program.ops.base import Floats, Map, Op, Part, Shape, Shorts, Words, replicated
from bcnn.program.ops.checks import array, floats, grouped, reads_channels, shorts, source_shape, up, vector, whole
from bcnn.program.ops.conversion import ToIntegers, ToReals, shift
from bcnn.program.ops.endings import Ending, absolute_endings, check_endings, count_endings, finish
from bcnn.program.ops.window import ONE_PIXEL, Window, pixels, values

MAX_BITS = (1 << 16) - 1  # of one dot: counts are 16-bit numbers in some kernels
MAX_BRANCHES = 1024
SIGN_UP = 7  # bits by which dots of up to 255 signs are shifted: what kernels do with one instruction


def words(channels: int) -> int:
    """32-bit words that hold a bit per channel."""
    return -(-channels // 32)


class _Dots(Op):
    """What binary convolutions share, whatever follows their dots: fields that say which signs meet, the dots, the counts."""

    WEIGHS = True

    source: Map
    reads: int  # K: channel k of the source is read as k mod C
    branches: tuple[Any, ...]
    window: Window
    groups: int
    after: tuple[Ending, ...]

    @property
    def bits(self) -> int:
        """N: of one dot."""
        return self.window.taps * (self.reads // self.groups)

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        if not isinstance(self.branches, tuple) or not 1 <= len(self.branches) <= MAX_BRANCHES:
            raise UserError(f"has {len(self.branches)} branches; between 1 and {MAX_BRANCHES} are allowed")
        k, o = reads_channels(self.reads, c), vector("scale", self.branches[0].scale)
        groups = grouped(self.groups, k, o)
        height, width = self.window.size(h, w)
        if self.bits > MAX_BITS:
            raise UserError(f"sums {self.bits} signs; a count holds at most {MAX_BITS}")
        inner = k // groups
        for p, branch in enumerate(self.branches):
            array(f"branch {p}: weight", branch.weight, np.uint32, (o, self.window.taps, words(inner)))
            _no_tail(f"branch {p}: weight", branch.weight, inner)
            if branch.pad is not None:
                array(f"branch {p}: pad", branch.pad, np.uint32, (words(k),))
                _no_tail(f"branch {p}: pad", branch.pad, k)
            for part, size in zip(branch.shift, (h, w), strict=True):
                whole(f"branch {p}: shift", part, -size, size)
            self.check(f"branch {p}: ", branch, o)
        return check_endings(self.after, (height, width, o), shapes)

    def check(self, what: str, branch: Any, made: int) -> None:
        """What follows the dots of a branch."""
        raise NotImplementedError

    def dots(self, ones: NDArray[np.bool_], branch: Any) -> Floats:
        """Sums of sign * sign, H',W',O: exact, as all of them are far below 2^24. `ones`: where the sign of a value is +1."""
        signs = np.where(ones, np.float32(1), np.float32(-1))
        outside: float | Floats = 0.0
        if branch.pad is not None:
            outside = np.where(unpack_bits(branch.pad, self.reads), np.float32(1), np.float32(-1))
        inner, made = self.reads // self.groups, len(branch.weight) // self.groups
        weight = np.where(unpack_bits(branch.weight, inner), np.float32(1), np.float32(-1))  # O,T,K/G
        dy, dx = branch.shift
        top, left, bottom, right = self.window.padding
        window = Window(
            self.window.kernel, self.window.stride, (top - dy, left - dx, bottom + dy, right + dx), self.window.dilation
        )
        height, width = window.size(*signs.shape[:2])
        # One product of two matrices a tap: for a map H',W',K NumPy would make H' small ones of it.
        views = [np.ascontiguousarray(view).reshape(height * width, -1) for view in window.views(signs, outside)]
        parts = []
        for group in range(self.groups):
            channels, rows = slice(group * inner, (group + 1) * inner), slice(group * made, (group + 1) * made)
            dot = views[0][:, channels] @ weight[rows, 0].T
            for tap in range(1, len(views)):
                dot += views[tap][:, channels] @ weight[rows, tap].T
            parts.append(dot)
        return np.concatenate(parts, axis=-1).reshape(height, width, -1)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        shape = self.shape(shapes)
        made, p, read = values(shape), len(self.branches), pixels(shapes[self.source]) * self.reads
        own = Counts(
            binary_params=p * shape[2] * self.bits,
            real_params=p * (self.reads + 2 * shape[2]),
            binary_macs=p * made * self.bits,
            adds=p * (read + made) + (p - 1) * made,  # bias, offset, sum of the branches
            mults=p * made,
            signs=p * read,
        )
        return own + count_endings(self.after, shape)


@dataclass(frozen=True, eq=False)
class Branch(Part):
    """One residual of a convolution module (Fig. 4), bias, sign, convolution and batch norm folded:

    1. sign(x + b) is +1 exactly where x >= -b: `threshold` = -b, and a bit is 1 where x >= threshold.
    2. dot = sum of sign * sign over T taps and K / G channels = N - 2 n with N = T K / G, n = popcount(input bits ^ weight bits).
    3. A tap outside the map contributes nothing to dot: it counts as half a mismatch for each of its channels in n, so that step 2
       stays true. With `pad` bits it is a pixel like any other.
    4. batch norm = s * dot + o with s = gamma / sqrt(var + eps), o = beta - s * mean.
    5. Inserting 2 in 4: `scale` * n + `offset` with scale = -2 s (exact) and offset = o + s N.

    `shift` = (dy, dx) moves all taps: pixel (y + dy, x + dx) is read for (y, x) (sec. 4.2.1, FxF as F*F branches).
    """

    threshold: Floats  # [K]
    weight: Words  # [O, T, words(K / G)]
    scale: Floats  # [O]
    offset: Floats  # [O]
    pad: Words | None = None  # [words(K)]: the bits of a pixel outside the map; none: it contributes nothing
    shift: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class BinaryConv(_Dots):
    """v = (n_0 * scale_0 + offset_0) + (n_1 * scale_1 + offset_1) + ... over the branches, left to right; then the endings.

    A convolution module (Fig. 4) is one with an `Add` of its own source first in `after`. A fully connected layer is one whose
    kernel is the whole map.
    """

    source: Map
    reads: int  # K: channel k of the source is read as k mod C
    branches: tuple[Branch, ...] = field()
    window: Window = ONE_PIXEL
    groups: int = 1
    after: tuple[Ending, ...] = ()

    def check(self, what: str, branch: Branch, made: int) -> None:
        floats(f"{what}threshold", branch.threshold, (self.reads,))
        floats(f"{what}scale", branch.scale, (made,))
        floats(f"{what}offset", branch.offset, (made,))

    def run(self, maps: Sequence[Floats]) -> Floats:
        x = replicated(maps[self.source], self.reads)
        first, *others = (self.mismatches(x, branch) * branch.scale + branch.offset for branch in self.branches)
        v = first
        for term in others:
            v = v + term
        return finish(v, self.after, maps)

    def mismatches(self, x: Floats, branch: Branch) -> Floats:
        """n = (N - dot) / 2, H',W',O."""
        return (np.float32(self.bits) - self.dots(x >= branch.threshold, branch)) * np.float32(0.5)

    def absolute(self, more: Floats) -> Op:
        size = np.zeros(1, np.float32) + more
        for branch in self.branches:  # |dot| <= N, and |scale| is 2 |s|
            size = size + np.abs(branch.scale) * np.float32(self.bits)
        first = self.branches[0]  # whose dots times zero are all that is left of them
        one = replace(first, scale=first.scale * 0, offset=size.astype(np.float32))
        return replace(self, branches=(one,), after=absolute_endings(self.after))

    def to_integers(self, at: ToIntegers) -> Op:
        n = self.bits
        most = min(SIGN_UP, int(np.floor(np.log2(HIGH / n))))
        slopes = [branch.scale.astype(np.float64) / -2 for branch in self.branches]  # per unit of the dot
        offsets = [b.offset.astype(np.float64) + b.scale.astype(np.float64) * n / 2 for b in self.branches]
        largest = max(float(np.abs(values).max()) for values in slopes) * 2.0 ** (15 - most)
        largest = max(largest, max(float(np.abs(values).max()) for values in offsets))
        f = min(at.f, int(np.floor(np.log2(HIGH / largest))) if largest > 0 else at.f)
        branches = []
        for branch, slope, offset in zip(self.branches, slopes, offsets, strict=True):
            above = at.above(branch.threshold, at.of(self.source))
            scale = at.shorts("scale", slope, f + 15 - most)
            own = at.shorts("offset", offset, f)
            branches.append(FixedBranch(above, branch.weight, scale, own, most, branch.pad, branch.shift))
        after = at.endings(self.after)
        if f != at.f:
            after = (shift(at.f - f), *after)
        return FixedBinaryConv(self.source, self.reads, tuple(branches), self.window, self.groups, after, at.made)


@dataclass(frozen=True, eq=False)
class FixedBranch(Part):
    """One residual of a convolution module: R(dot << up, scale) (+) offset, where

    1. a bit is 1 where x > above: above = ceil(threshold * 2^f) - 1.
    2. dot is the sum of sign * sign, from -N to N; a tap outside the map contributes nothing, or is a pixel of `pad` bits.
    3. N << up is at most 2^15 - 1, and scale = s * 2^(f + 15 - up) for batch norm's s (and f of the map made).
    """

    above: Shorts  # [K]; may be -32768: any bit but that of the least value is 1
    weight: Words  # [O, T, words(K / G)]
    scale: Shorts  # [O]
    offset: Shorts  # [O]
    up: int
    pad: Words | None = None  # [words(K)]
    shift: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class FixedBinaryConv(_Dots):
    """v = branch 0 (+) branch 1 (+) ..., left to right; then the endings."""

    NUMBERS = "int16"

    source: Map
    reads: int
    branches: tuple[FixedBranch, ...] = field()
    window: Window = ONE_PIXEL
    groups: int = 1
    after: tuple[Ending, ...] = ()
    fraction: int = 8  # f of the map made, for those who read it as real numbers

    def check(self, what: str, branch: FixedBranch, made: int) -> None:
        array(f"{what}above", branch.above, np.int16, (self.reads,))
        shorts(f"{what}scale", branch.scale, (made,))
        shorts(f"{what}offset", branch.offset, (made,))
        if self.bits << up(f"{what}up", branch.up) > HIGH:
            raise UserError(f"{what}a dot of {self.bits} signs, shifted by {branch.up}, is more than 16 bits")

    def run(self, maps: Sequence[Shorts]) -> Shorts:
        x = replicated(maps[self.source], self.reads)
        v, *others = (self.term(x, branch) for branch in self.branches)
        for term in others:
            v = plus(v, term)
        return finish(v, self.after, maps)

    def term(self, x: Shorts, branch: FixedBranch) -> Shorts:
        dots = self.dots(x > branch.above, branch).astype(np.int16)
        return plus(product(dots << np.int16(branch.up), branch.scale), branch.offset)

    def to_reals(self, at: ToReals) -> Op:
        f, after = at.endings(self.after)
        branches = []
        for branch in self.branches:
            s = np.ldexp(branch.scale.astype(np.float64), branch.up - 15 - f)  # per unit of the dot
            offset = (np.ldexp(branch.offset.astype(np.float64), -f) + s * self.bits).astype(np.float32)
            threshold = real(branch.above.astype(np.int64) + 1, at.of(self.source))
            scale = (-2 * s).astype(np.float32)
            branches.append(Branch(threshold, branch.weight, scale, offset, branch.pad, branch.shift))
        return BinaryConv(self.source, self.reads, tuple(branches), self.window, self.groups, after)


def _no_tail(what: str, bits: Words, channels: int) -> None:
    if channels % 32 and np.any(bits[..., -1] >> np.uint32(channels % 32)):
        raise UserError(f"{what} has bits set past its {channels} channels")
