"""Integer programs with random parameters, for tests and benchmarks: no torch, no calibration.

`random_fixed_program` draws any op after any other, with any endings; parameters are of any size, so that maps saturate now and
then, and bounded now and then, so that kernels add without saturating. `fixed_of_config` has the ops and shapes of a network of
that config in integers, with the endings that a converter gives it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from programs import Draw, RandomOps, grown, named

from bcnn.nets.config import NetworkConfig
from bcnn.program import ops as o
from bcnn.program.program import Program


class FixedDraw(Draw):
    """Random parameters of 16 bits; now and then zero, and the largest and the smallest there are."""

    def shorts(self, *shape: int, most: int = 32767) -> o.Shorts:
        values = self.rng.integers(-most, most, shape, endpoint=True).astype(np.int16)
        if self.corners:
            for value in (0, most, -most):
                values[self.rng.random(shape) < 0.03] = value
        return values

    def above(self, k: int) -> o.Shorts:
        values = self.shorts(k, most=300)
        if self.corners:
            values[self.rng.random(k) < 0.02] = -32768
            values[self.rng.random(k) < 0.02] = 32767
        return values

    def fixed_branch(
        self, k: int, made: int, taps: int = 1, groups: int = 1, pad: bool = False, shift: tuple[int, int] = (0, 0)
    ) -> o.FixedBranch:
        bits = taps * k // groups
        most = (32767 // bits).bit_length() - 1
        up = min(most, 7) if not self.corners or self.rng.random() < 0.5 else int(self.rng.integers(0, most + 1))
        # values of some hundreds, or of anything, which may saturate
        small = not self.corners or self.rng.random() < 0.7
        scale = self.shorts(
            made, most=min(32767, max(1, (600 << 15) // (int(np.sqrt(bits)) << up))) if small else 32767
        )
        return o.FixedBranch(
            self.above(k),
            self.words(made, taps, k // groups),
            scale,
            self.shorts(made, most=200 if small else 32767),
            up,
            self.words(k) if pad else None,
            shift,
        )

    def bend(self, k: int) -> o.FixedPReLU:
        up = int(self.rng.integers(0, 9)) if self.corners and self.rng.random() < 0.5 else 0
        return o.FixedPReLU(self.shorts(k) if self.corners else -np.abs(self.shorts(k)), up)

    def bound(self, k: int, most: int = 32767) -> o.Bound:
        return o.Bound(np.abs(self.shorts(k, most=most)))

    def fixed_depthwise(self, source: int, k: int, stride: int, prelu: bool = True) -> o.FixedDepthwise:
        window = o.Window((3, 3), (stride, stride), (1, 1, 1, 1))
        after = (self.bend(k),) if prelu else ()
        most = 32767 if self.corners and self.rng.random() < 0.5 else 16000
        return o.FixedDepthwise(source, k, self.shorts(3, 3, k, most=most), self.shorts(k, most=300), window, after)

    def fixed_input(self, height: int, width: int, intensity: bool = True) -> o.FixedInput:
        weights = np.array([4899, 9617, 1868], np.int16) if intensity else None
        scale = np.array([1149, 1175, 1169], np.int32)
        return o.FixedInput(height, width, scale, np.array([-137625, -131072, -117965], np.int32), 8, weights)


def fixed_of_config(config: NetworkConfig, seed: int = 0) -> Program:
    """A network of this config (1x1 filters, whole R) with random parameters: maps that a depth wise op reads are bounded, so that
    its sums fit 16 bits."""
    draw = FixedDraw(seed, corners=False)
    made: list[o.Op] = [draw.fixed_input(*config.image_size, config.intensity)]

    def module(source: int, k: int, branches: int, *after: o.Ending) -> o.FixedBinaryConv:
        terms = tuple(draw.fixed_branch(k, k) for _ in range(branches))
        return o.FixedBinaryConv(source, k, terms, after=(o.FixedAdd(source, k), *after))

    for block in config.plan():
        x, k, p = len(made) - 1, block.channels, block.branches
        bounded = (o.Bound(np.full(k, 2040, np.int16)), o.Shift(1))
        made += [module(x, k, p, draw.bend(k), *bounded), draw.fixed_depthwise(len(made), k, block.stride)]
        residual, identity = len(made) - 1, x
        if not block.normal:
            if block.stride > 1:
                made.append(o.AvgPool(x, o.Window((block.stride,) * 2, (block.stride,) * 2)))
            made.append(module(len(made) - 1 if block.stride > 1 else x, k, p))
            identity = len(made) - 1
        prelu, add = draw.bend(k), o.FixedAdd(identity, k)
        made.append(module(residual, k, p, *((add, prelu) if block.prelu == "block" else (prelu, add))))
    channels, classes = config.channels_out, config.classes
    made.append(o.GlobalAvgPool(len(made) - 1, 3))
    weight, offset = draw.shorts(1, 1, channels, classes, most=60), np.zeros(classes, np.int32)
    made.append(o.FixedConv(len(made) - 1, channels, weight, offset, np.full(classes, 10, np.int16)))
    return named(made)


def random_fixed_program(
    seed: int, height: int = 9, width: int = 7, ops: int = 8, most_channels: int = 130, only: Sequence[str] = ()
) -> Program:
    """Any op after any other: odd sizes, any channel count, windows, groups, replication, endings that read older maps."""
    drawn = _RandomOps(FixedDraw(seed), most_channels)
    return grown(drawn, drawn.draw.fixed_input(height, width, drawn.chance(0.5)), ops, only)


class _RandomOps(RandomOps):
    """The same of integers."""

    def add(self, shape: o.Shape, whole: bool = False) -> o.FixedAdd | None:
        same = [i for i, (h, w, k) in enumerate(self.shapes) if (h, w) == shape[:2] and k <= shape[2]]
        if not same:
            return None
        other = int(self.draw.rng.choice(same))
        c = shape[2]
        reads = c if whole or self.chance(0.6) else self.whole(self.shapes[other][2], c)
        up = 0 if whole or self.chance(0.5) else self.whole(-15, 15)
        return o.FixedAdd(other, reads, self.whole(0, c - reads), up)

    def usual(self, shape: o.Shape) -> tuple[o.Ending, ...]:
        """What kernels do in registers, all or some of it."""
        c = shape[2]
        found: list[o.Ending | None] = [self.add(shape, True) for _ in range(self.whole(0, 2))]
        if self.chance(0.8):
            found.append(self.draw.bend(c))
            if self.chance(0.5):
                found.append(self.draw.bound(c, 1 << self.whole(1, 14)))
                found.append(o.Shift(self.whole(0, 6)) if self.chance(0.6) else None)
            elif self.chance(0.5):
                found.append(self.add(shape, True) if self.chance(0.5) else o.Shift(self.whole(1, 6)))
        return tuple(ending for ending in found if ending)

    def endings(self, shape: o.Shape, at_most: int = 4) -> tuple[o.Ending, ...]:
        if self.chance(0.5):
            return self.usual(shape)
        draw, c = self.draw, shape[2]
        found: list[o.Ending | None] = []
        for _ in range(self.whole(0, at_most)):
            spread = [i for i, s in enumerate(self.shapes) if all(a in (1, b) for a, b in zip(s, shape, strict=True))]
            kinds = [
                "add",
                "add",
                "gate",
                "affine",
                "prelu",
                "prelu",
                "relu",
                "clip",
                "bound",
                "shift",
                "sign",
                "table",
            ]
            kind = str(draw.rng.choice(kinds))
            if kind == "add":
                found.append(self.add(shape))
            elif kind == "gate" and spread:
                found.append(o.FixedGate(int(draw.rng.choice(spread)), self.whole(0, 30)))
            elif kind == "affine":
                scale, offset = draw.shorts(c), draw.shorts(c)
                down = self.whole(0, 30) if self.chance(0.3) else self.whole(12, 16)
                found.append(o.FixedAffine(*((scale, None), (None, offset), (scale, offset))[self.whole(0, 2)], down))
            elif kind == "prelu":
                found.append(draw.bend(c))
            elif kind == "relu":
                found.append(o.ReLU())
            elif kind == "clip":
                found.append(o.FixedClip(np.sort(draw.shorts(2))))
            elif kind == "bound":
                found.append(draw.bound(c))
            elif kind == "shift":
                found.append(o.Shift(self.whole(-15, 15) if self.chance(0.3) else self.whole(-3, 3)))
            elif kind == "sign":
                found.append(o.FixedSign(draw.shorts(c, most=300), self.whole(1, 32767)))
            elif kind == "table":
                found.append(o.Table(draw.shorts(257), self.whole(0, 8)))
        return tuple(ending for ending in found if ending)

    def module(self, source: int) -> o.Op:
        """A convolution module of the paper: 1x1, mostly with what follows there."""
        h, w, _ = self.shapes[source]
        k = self.reads(source)
        identity = self.chance(0.6)
        made = k if identity else self.channels()
        after = self.endings((h, w, made))
        branches = tuple(self.draw.fixed_branch(k, made) for _ in range(self.whole(1, 5)))
        first = (o.Shift(self.whole(1, 6)),) if self.chance(0.3) else ()
        added = (o.FixedAdd(source, k),) if identity else ()
        return o.FixedBinaryConv(source, k, branches, after=first + added + after)

    def binary_conv(self, source: int) -> o.Op:
        k, window, groups, made, branches = self.dots(source, self.draw.fixed_branch)
        h, w, _ = self.shapes[source]
        return o.FixedBinaryConv(source, k, branches, window, groups, self.endings((*window.size(h, w), made)))

    def conv(self, source: int) -> o.Op:
        h, w, _ = self.shapes[source]
        k, window = self.reads(source), self.window()
        groups, made = self.groups(k)
        most = max(1, 60_000 // (window.taps * (k // groups)))
        weight = self.draw.shorts(*window.kernel, k // groups, made, most=min(most, 32767))
        down = self.draw.rng.integers(0, 31 if self.chance(0.2) else 12, made).astype(np.int16)
        offset = self.draw.rng.integers(-1000, 1000, made).astype(np.int32)
        after = self.endings((*window.size(h, w), made))
        return o.FixedConv(source, k, weight, offset, down, window, groups, after)

    def depthwise(self, source: int) -> o.Op:
        k = self.reads(source)
        if self.chance(0.5):
            return self.draw.fixed_depthwise(source, k, self.whole(1, 6), self.chance(0.5))
        h, w, _ = self.shapes[source]
        window = self.window()
        weight, offset = self.draw.shorts(*window.kernel, k), self.draw.shorts(k)
        return o.FixedDepthwise(source, k, weight, offset, window, self.endings((*window.size(h, w), k)))

    def pool(self, source: int) -> o.Op:
        h, w, _ = self.shapes[source]
        if self.chance(0.4):
            side = self.whole(1, max(1, min(h, w, 3)))
            return o.AvgPool(source, o.Window((side, side), (side, side)))
        if self.chance(0.5):
            return o.MaxPool(source, self.window())
        return o.AvgPool(source, self.window(), self.chance(0.5))

    def global_avg_pool(self, source: int) -> o.Op:
        return o.GlobalAvgPool(source, self.whole(0, 5))

    def linear(self, source: int) -> o.Op:
        c, made = self.shapes[source][2], self.channels()
        h, w, _ = self.shapes[source]
        weight = self.draw.shorts(1, 1, c, made, most=max(1, 60_000 // c) if c > 1 else 32767)
        down = self.draw.rng.integers(0, 12, made).astype(np.int16)
        return o.FixedConv(source, c, weight, np.zeros(made, np.int32), down, after=self.endings((h, w, made), 2))

    def pointwise(self, source: int) -> o.Op:
        h, w, _ = self.shapes[source]
        k = self.reads(source)
        return o.Pointwise(source, k, (*self.endings((h, w, k)), self.draw.bend(k)))

    def constant(self, source: int) -> o.Op:
        h, w, _ = self.shapes[source]
        return o.FixedConstant(self.draw.shorts(h, w, self.whole(1, 20)))
