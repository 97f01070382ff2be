"""Programs with random parameters, for tests and benchmarks: no torch, no training.

`of_config` has the ops and shapes that a network of that config lowers to; `random_program` draws any op after any other, with any
endings. Parameters are such that maps keep a spread around zero, so that signs stay undecided and both sides of a PReLU are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bcnn.base.errors import UserError
from bcnn.nets.config import NetworkConfig
from bcnn.program import ops as o
from bcnn.program.bits import pack_bits
from bcnn.program.program import Program

CORNERS = [1, 31, 32, 33, 63, 64, 65, 127, 128, 129]  # channel counts around words and registers


class Draw:
    """Random parameters. Now and then the corner cases: zero and negative scales and slopes, slopes above 1, -0.0, thresholds of 0."""

    def __init__(self, seed: int, corners: bool = True) -> None:
        self.rng = np.random.default_rng(seed)
        self.corners = corners

    def floats(self, *shape: int, low: float = -1.0, high: float = 1.0) -> o.Floats:
        values = self.rng.uniform(low, high, shape).astype(np.float32)
        if self.corners:
            values[self.rng.random(shape) < 0.05] = np.float32(0)
            values[self.rng.random(shape) < 0.02] = np.float32(-0.0)
        return values

    def words(self, *shape: int) -> o.Words:
        """Packed random bits; the last number is the channels."""
        return pack_bits(self.rng.integers(0, 2, shape).astype(bool))

    def branch(
        self, k: int, made: int, taps: int = 1, groups: int = 1, pad: bool = False, shift: tuple[int, int] = (0, 0)
    ) -> o.Branch:
        bits = taps * k // groups
        scale = self.floats(made) * np.float32(2 / np.sqrt(bits))
        return o.Branch(
            self.floats(k, low=-0.5, high=0.5),
            self.words(made, taps, k // groups),
            scale,
            -scale * np.float32(bits / 2),
            self.words(k) if pad else None,
            shift,
        )

    def slope(self, k: int) -> o.Floats:
        return self.floats(k, low=-0.5, high=1.5) if self.corners else self.floats(k, low=0.1, high=0.4)

    def depthwise(self, source: int, k: int, stride: int, slope: bool = True) -> o.Conv:
        window = o.Window((3, 3), (stride, stride), (1, 1, 1, 1))
        after = (o.PReLU(self.slope(k)),) if slope else ()
        return o.Conv(source, k, self.floats(3, 3, 1, k, low=-0.6, high=0.6), self.floats(k), window, k, after)

    def input(self, height: int, width: int, intensity: bool = True) -> o.Input:
        weights = np.array([0.299, 0.587, 0.114], np.float32) if intensity else None
        scale = np.array([1 / 58.4, 1 / 57.1, 1 / 57.4], np.float32)
        return o.Input(height, width, scale, np.array([-2.1, -2.0, -1.8], np.float32), weights)


def named(made: Sequence[o.Op]) -> Program:
    return Program(tuple(made), tuple(f"op{i}" for i in range(len(made))))


def of_config(config: NetworkConfig, seed: int = 0) -> Program:
    """What a network of this config lowers to, with random parameters (1x1 filters, whole R)."""
    draw = Draw(seed, corners=False)
    made: list[o.Op] = [draw.input(*config.image_size, config.intensity)]

    def module(source: int, k: int, branches: int, *after: o.Ending) -> o.BinaryConv:
        return o.BinaryConv(
            source, k, tuple(draw.branch(k, k) for _ in range(branches)), after=(o.Add(source, k), *after)
        )

    for block in config.plan():
        x, k, p = len(made) - 1, block.channels, block.branches
        made += [module(x, k, p, o.PReLU(draw.slope(k))), draw.depthwise(len(made), k, block.stride)]
        residual, identity = len(made) - 1, x
        if not block.normal:
            if block.stride > 1:
                made.append(o.AvgPool(x, o.Window((block.stride,) * 2, (block.stride,) * 2)))
            made.append(module(len(made) - 1 if block.stride > 1 else x, k, p))
            identity = len(made) - 1
        prelu, add = o.PReLU(draw.slope(k)), o.Add(identity, k)
        made.append(module(residual, k, p, *((add, prelu) if block.prelu == "block" else (prelu, add))))
    channels, classes = config.channels_out, config.classes
    made.append(o.GlobalAvgPool(len(made) - 1))
    weight = draw.floats(channels, classes, low=-0.05, high=0.05)
    made.append(o.Linear(len(made) - 1, weight, draw.floats(classes)))
    return named(made)


def stem(seed: int, channels: int, k: int, made: int, width: int, branches: int) -> Program:
    """A map of few channels that is read as k, as that of an image; its values meet thresholds, zeros of both signs, infinities, NaN."""
    draw = Draw(seed)
    most = np.finfo(np.float32).max
    steps = np.array([-most, -2, -1, -0.0, 0, 1e-41, 1, 2, most], np.float32)
    factors = np.array([1, -1, 2, -0.0, most], np.float32)

    def limits() -> o.Floats:
        return draw.rng.choice(steps if draw.rng.random() < 0.5 else steps[2:6], k).astype(np.float32)

    pick = draw.rng.integers(0, 3, channels).astype(np.int32)
    twice = tuple(o.Affine(draw.rng.choice(factors, channels).astype(np.float32), None) for _ in range(2))
    made_of = (replace(draw.branch(k, made), threshold=limits()) for _ in range(branches))
    return named(
        (
            o.Input(2, width, np.full(3, 1 / 64, np.float32), np.full(3, -2, np.float32)),  # -2, -1, 0, 1 among others
            o.Select(0, pick),
            # Past the largest float is infinity, and infinity times 0 is NaN.
            o.Pointwise(
                1, channels, (*twice, o.Clip(np.array([-1, 1], np.float32))) if draw.rng.random() < 0.3 else twice
            ),
            o.BinaryConv(2, k, tuple(made_of), after=(o.PReLU(draw.slope(made)),)),
        )
    )


def random_program(
    seed: int, height: int = 9, width: int = 7, ops: int = 8, most_channels: int = 130, only: Sequence[str] = ()
) -> Program:
    """Any op after any other: odd sizes, any channel count, windows, groups, replication, endings that read older maps."""
    drawn = RandomOps(Draw(seed), most_channels)
    return grown(drawn, drawn.draw.input(height, width, drawn.chance(0.5)), ops, only)


def grown(drawn: RandomOps, first: o.Op, ops: int, only: Sequence[str]) -> Program:
    """`first`, and so many random ops."""
    made = [first]
    drawn.shapes.append(first.shape([]))
    makers = {name: maker for name, maker in drawn.makers.items() if not only or name in only}
    while len(made) <= ops:
        source = len(made) - 1 if drawn.chance(0.7) else drawn.whole(0, len(made) - 1)
        maker = makers[str(drawn.draw.rng.choice(list(makers)))]
        try:
            op = maker(source)
            shape = op.shape(drawn.shapes)
            if shape[0] * shape[1] * shape[2] > 60_000:
                continue
        except UserError:  # a window or sums that do not fit, an empty map: drawn again
            continue
        made.append(op)
        drawn.shapes.append(shape)
    return named(made)


class RandomOps:
    """One method an op: a random one that reads `source`, most of the time one that fits."""

    def __init__(self, draw: Any, most_channels: int) -> None:
        self.draw = draw
        self.most = most_channels
        self.shapes: list[o.Shape] = []
        self.makers: dict[str, Callable[[int], o.Op]] = {
            "module": self.module,
            "binary_conv": self.binary_conv,
            "conv": self.conv,
            "depthwise": self.depthwise,
            "pool": self.pool,
            "abs_mean": lambda source: o.AbsMean(source),
            "channel_avg": lambda source: o.ChannelAvg(source, self.whole(1, self.shapes[source][2])),
            "global_avg_pool": self.global_avg_pool,
            "linear": self.linear,
            "pointwise": self.pointwise,
            "constant": self.constant,
            "concat": self.concat,
            "select": self.select,
            "upsample": lambda source: o.Upsample(source, (self.whole(1, 3), self.whole(1, 3))),
        }

    def chance(self, p: float) -> bool:
        return bool(self.draw.rng.random() < p)

    def whole(self, low: int, high: int) -> int:
        return int(self.draw.rng.integers(low, high + 1))

    def channels(self, low: int = 1) -> int:
        counts = [c for c in CORNERS if low <= c <= self.most]
        if counts and self.chance(0.5):
            return int(self.draw.rng.choice(counts))
        return self.whole(low, max(low, self.most))

    def reads(self, source: int) -> int:
        c = self.shapes[source][2]
        return c if self.chance(0.6) else self.channels(c)

    def window(self) -> o.Window:
        if self.chance(0.3):
            return o.Window((3, 3), (s := self.whole(1, 5), s), (1, 1, 1, 1))
        pad = (lambda: self.whole(-1, 3)) if self.chance(0.5) else (lambda: 0)
        two = self.whole
        return o.Window(
            (two(1, 4), two(1, 4)), (two(1, 4), two(1, 4)), (pad(), pad(), pad(), pad()), (two(1, 2), two(1, 3))
        )

    def groups(self, k: int, low: int = 1) -> tuple[int, int]:
        """Groups that divide k, and channels made that they divide."""
        groups = int(self.draw.rng.choice([g for g in range(1, k + 1) if k % g == 0])) if self.chance(0.4) else 1
        return groups, groups * self.whole(low, max(1, self.most // groups))

    def endings(self, shape: o.Shape, at_most: int = 4) -> tuple[o.Ending, ...]:
        draw, c = self.draw, shape[2]
        found: list[o.Ending] = []
        for _ in range(self.whole(0, at_most)):
            same = [i for i, (h, w, k) in enumerate(self.shapes) if (h, w) == shape[:2] and k <= c]
            spread = [i for i, s in enumerate(self.shapes) if all(a in (1, b) for a, b in zip(s, shape, strict=True))]
            kind = str(
                draw.rng.choice(
                    ["add", "add", "add", "gate", "affine", "prelu", "prelu", "relu", "clip", "sign", "sigmoid"]
                )
            )
            if kind == "add" and same:
                other = int(draw.rng.choice(same))
                low = self.shapes[other][2]
                reads = c if self.chance(0.6) else self.whole(low, c)
                found.append(o.Add(other, reads, self.whole(0, c - reads)))
            elif kind == "gate" and spread:
                found.append(o.Gate(int(draw.rng.choice(spread))))
            elif kind == "affine":
                scale, offset = draw.floats(c, low=-2, high=2), draw.floats(c)
                found.append(o.Affine(*((scale, None), (None, offset), (scale, offset))[self.whole(0, 2)]))
            elif kind == "prelu":
                found.append(o.PReLU(draw.slope(c)))
            elif kind == "relu":
                found.append(o.ReLU())
            elif kind == "clip":
                found.append(o.Clip(np.sort(draw.floats(2, low=-2, high=2))))
            elif kind == "sign" and self.chance(0.3):
                found.append(o.Sign(draw.floats(c, low=-0.5, high=0.5)))
            elif kind == "sigmoid" and self.chance(0.3):
                found.append(o.Sigmoid())
        return tuple(found)

    def module(self, source: int) -> o.Op:
        """A convolution module of the paper: 1x1, mostly with what follows there."""
        h, w, _ = self.shapes[source]
        k = self.reads(source)
        identity = self.chance(0.6)
        made = k if identity else self.channels()
        after = self.endings((h, w, made))
        branches = tuple(self.draw.branch(k, made) for _ in range(self.whole(1, 5)))
        return o.BinaryConv(source, k, branches, after=((o.Add(source, k),) if identity else ()) + after)

    def dots(self, source: int, branch: Callable[..., Any]) -> tuple[int, o.Window, int, int, tuple[Any, ...]]:
        """Channels read, window, groups, channels made and branches of a binary convolution."""
        h, w, _ = self.shapes[source]
        k, window = self.reads(source), self.window()
        groups, made = self.groups(k)
        shifted, pad = self.chance(0.3), self.chance(0.5)
        branches = tuple(
            branch(k, made, window.taps, groups, pad, (self.whole(-h, h), self.whole(-w, w)) if shifted else (0, 0))
            for _ in range(self.whole(1, 4))
        )
        return k, window, groups, made, branches

    def binary_conv(self, source: int) -> o.Op:
        k, window, groups, made, branches = self.dots(source, self.draw.branch)
        h, w, _ = self.shapes[source]
        if len(branches) > 1 and self.chance(0.5):  # the same bits for two
            same = o.Branch(
                branches[0].threshold, *[getattr(branches[1], f) for f in ("weight", "scale", "offset", "pad", "shift")]
            )
            branches = (branches[0], same, *branches[2:])
        return o.BinaryConv(source, k, branches, window, groups, self.endings((*window.size(h, w), made)))

    def conv(self, source: int) -> o.Op:
        h, w, _ = self.shapes[source]
        k, window = self.reads(source), self.window()
        groups, made = (k, k) if self.chance(0.3) else self.groups(k)
        limit = np.float32(1 / np.sqrt(window.taps * k / groups))
        weight = self.draw.floats(*window.kernel, k // groups, made) * limit
        return o.Conv(
            source, k, weight, self.draw.floats(made), window, groups, self.endings((*window.size(h, w), made))
        )

    def depthwise(self, source: int) -> o.Op:
        return self.draw.depthwise(source, self.reads(source), self.whole(1, 6), self.chance(0.5))

    def pool(self, source: int) -> o.Op:
        h, w, _ = self.shapes[source]
        if self.chance(0.4):
            side = self.whole(1, max(1, min(h, w)))
            return o.AvgPool(source, o.Window((side, side), (side, side)))
        if self.chance(0.5):
            return o.MaxPool(source, self.window())
        return o.AvgPool(source, self.window(), self.chance(0.5))

    def global_avg_pool(self, source: int) -> o.Op:
        return o.GlobalAvgPool(source)

    def linear(self, source: int) -> o.Op:
        ones = [i for i, s in enumerate(self.shapes) if s[:2] == (1, 1)]
        if not ones:
            return o.GlobalAvgPool(source)
        source = int(self.draw.rng.choice(ones))
        c, made = self.shapes[source][2], self.channels()
        return o.Linear(source, self.draw.floats(c, made), self.draw.floats(made), self.endings((1, 1, made), 2))

    def pointwise(self, source: int) -> o.Op:
        h, w, _ = self.shapes[source]
        k = self.reads(source)
        return o.Pointwise(source, k, (*self.endings((h, w, k)), o.PReLU(self.draw.slope(k))))

    def constant(self, source: int) -> o.Op:
        h, w, _ = self.shapes[source]
        return o.Constant(self.draw.floats(h, w, self.whole(1, 20)))

    def concat(self, source: int) -> o.Op:
        same = [i for i, s in enumerate(self.shapes) if s[:2] == self.shapes[source][:2]]
        return o.Concat(tuple(int(i) for i in self.draw.rng.choice(same, self.whole(1, 4))))

    def select(self, source: int) -> o.Op:
        c = self.shapes[source][2]
        return o.Select(source, self.draw.rng.integers(0, c, self.channels()).astype(np.int32))
