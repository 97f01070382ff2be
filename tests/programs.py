"""Programs with random parameters, for tests and benchmarks: no torch, no training.

`of_config` has the ops and shapes that a network of that config lowers to; `random_program` draws any op after any other.
Parameters are such that maps keep a spread around zero, so that signs stay undecided and both sides of a PReLU are used.
"""

from __future__ import annotations

import numpy as np

from bcnn.nets.config import NetworkConfig
from bcnn.program import program as p


class Draw:
    """Random parameters. Now and then the corner cases: zero and negative scales and slopes, slopes above 1, thresholds of 0."""

    def __init__(self, seed: int, corners: bool = True) -> None:
        self.rng = np.random.default_rng(seed)
        self.corners = corners

    def floats(self, *shape: int, low: float = -1.0, high: float = 1.0) -> p.Floats:
        values = self.rng.uniform(low, high, shape).astype(np.float32)
        if self.corners:
            values[self.rng.random(shape) < 0.05] = np.float32(0)
        return values

    def branch(self, k: int, o: int, shift: tuple[int, int] = (0, 0)) -> p.Branch:
        weight = self.rng.integers(0, 1 << 32, (o, p.words(k)), dtype=np.uint32)
        if k % 32:
            weight[:, -1] &= np.uint32((1 << k % 32) - 1)
        scale = self.floats(o) * np.float32(2 / np.sqrt(k))
        return p.Branch(self.floats(k, low=-0.5, high=0.5), weight, scale, -scale * np.float32(k / 2), shift)

    def slope(self, k: int) -> p.Floats:
        return self.floats(k, low=-0.5, high=1.5) if self.corners else self.floats(k, low=0.1, high=0.4)

    def depthwise(self, source: int, k: int, stride: int, slope: bool = True) -> p.DepthwiseConv:
        return p.DepthwiseConv(
            source, self.floats(3, 3, k, low=-0.6, high=0.6), self.floats(k), self.slope(k) if slope else None, stride
        )

    def input(self, height: int, width: int, intensity: bool = True) -> p.Input:
        weights = np.array([0.299, 0.587, 0.114], np.float32) if intensity else None
        scale = np.array([1 / 58.4, 1 / 57.1, 1 / 57.4], np.float32)
        return p.Input(height, width, scale, np.array([-2.1, -2.0, -1.8], np.float32), weights)


def of_config(config: NetworkConfig, seed: int = 0) -> p.Program:
    """What a network of this config lowers to, with random parameters (1x1 filters, whole R)."""
    draw = Draw(seed, corners=False)
    ops: list[p.Op] = [draw.input(*config.image_size, config.intensity)]
    for block in config.plan():
        x, k = len(ops) - 1, block.channels
        after = block.prelu == "block"
        conv1 = p.BinaryConv(x, tuple(draw.branch(k, k) for _ in range(block.branches)), slope=draw.slope(k))
        ops += [conv1, draw.depthwise(len(ops), k, block.stride)]
        residual, identity = len(ops) - 1, x
        if not block.normal:
            ops.append(p.AvgPool(x, block.stride))
            ops.append(p.BinaryConv(len(ops) - 1, tuple(draw.branch(k, k) for _ in range(block.branches))))
            identity = len(ops) - 1
        branches = tuple(draw.branch(k, k) for _ in range(block.branches))
        ops.append(p.BinaryConv(residual, branches, slope=draw.slope(k), add=identity, prelu_after_add=after))
    channels = config.channels_out
    ops.append(p.GlobalAvgPool(len(ops) - 1))
    ops.append(
        p.Linear(len(ops) - 1, draw.floats(channels, config.classes, low=-0.05, high=0.05), draw.floats(config.classes))
    )
    return p.Program(tuple(ops), tuple(f"op{i}" for i in range(len(ops))))


def random_program(
    seed: int,
    height: int = 9,
    width: int = 7,
    ops: int = 8,
    most_channels: int = 130,
    classes: int = 5,
) -> p.Program:
    """Any op after any other: odd sizes, any channel count, branches, shifts, strides, replication, additions of older maps."""
    draw = Draw(seed)
    rng = draw.rng
    made: list[p.Op] = [draw.input(height, width, bool(rng.integers(2)))]
    shapes: list[p.Shape] = [(height, width, 4 if made[0].intensity is not None else 3)]  # type: ignore[union-attr]
    corner_counts = [1, 31, 32, 33, 63, 64, 65, 127, 128, 129]

    def channels(low: int) -> int:
        counts = [c for c in corner_counts if low <= c <= most_channels]
        if counts and rng.random() < 0.5:
            return int(rng.choice(counts))
        return int(rng.integers(low, max(low, most_channels) + 1))

    for _ in range(ops):
        source = len(made) - 1 if rng.random() < 0.7 else int(rng.integers(len(made)))
        h, w, c = shapes[source]
        kind = rng.choice(["conv", "conv", "conv", "depthwise", "pool", "average"])
        op: p.Op
        if kind == "conv":
            k = c if rng.random() < 0.5 else channels(c)
            identity = bool(rng.integers(2))
            o = k if identity else channels(1)
            shifted = rng.random() < 0.3
            branches = tuple(
                draw.branch(k, o, (int(rng.integers(-h, h + 1)), int(rng.integers(-w, w + 1))) if shifted else (0, 0))
                for _ in range(int(rng.integers(1, 7 if shifted else 4)))
            )
            others = [i for i, (ah, aw, ac) in enumerate(shapes) if (ah, aw) == (h, w) and ac <= o]
            add = int(rng.choice(others)) if others and rng.random() < 0.5 else None
            slope = draw.slope(o) if rng.random() < 0.7 else None
            op = p.BinaryConv(source, branches, identity, slope, add, bool(rng.integers(2)))
        elif kind == "depthwise":
            k = c if rng.random() < 0.5 else channels(c)
            op = draw.depthwise(source, k, int(rng.choice([1, 1, 2, 3])), bool(rng.integers(2)))
        elif kind == "pool":
            common = [s for s in range(1, min(h, w) + 1) if h % s == 0 and w % s == 0]
            op = p.AvgPool(source, int(rng.choice(common)))
        else:
            op = p.ChannelAvg(source, int(rng.integers(1, c + 1)))
        made.append(op)
        shapes.append(p.map_shape(op, "op", shapes))
    made.append(p.GlobalAvgPool(len(made) - 1))
    made.append(p.Linear(len(made) - 1, draw.floats(shapes[-1][2], classes), draw.floats(classes)))
    return p.Program(tuple(made), tuple(f"op{i}" for i in range(len(made))))
