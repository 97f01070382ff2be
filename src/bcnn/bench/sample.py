"""A config -> a Program of its shapes with random parameters, so that a preset can be timed without training it. No torch.

Time does not depend on the values as long as they stay ordinary numbers, so the scales keep every map near unit variance:
a dot over K channels has variance K, a depth wise sum of nine taps has nine times that of its weights.
"""

from __future__ import annotations

import numpy as np

from bcnn.images import Pixels
from bcnn.nets.config import Block, NetworkConfig
from bcnn.program import program as p

INTENSITY = np.array([0.299, 0.587, 0.114], np.float32)  # as in the network


def sample_image(height: int, width: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def sample_program(config: NetworkConfig, seed: int = 0) -> p.Program:
    """Every op of the network that `config` describes, filled at random. Filters of one pixel, R >= 1 as in the presets."""
    rng = np.random.default_rng(seed)
    height, width = config.image_size
    intensity = INTENSITY if config.intensity else None
    # u / 64 - 2 lies in [-2, 2): about the range of normalised photos.
    scale, offset = np.full(3, 1 / 64, np.float32), np.full(3, -2, np.float32)
    ops: list[p.Op] = [p.Input(height, width, scale, offset, intensity)]
    names = ["input"]

    def add(name: str, op: p.Op) -> int:
        ops.append(op)
        names.append(name)
        return len(ops) - 1

    x = 0
    for block in config.plan():
        k = block.channels
        conv1 = add(f"{block.name}.conv1", p.BinaryConv(x, _branches(rng, block), slope=_slope(rng, k)))
        depthwise = p.DepthwiseConv(
            conv1, _normal(rng, 3, 3, k) / np.float32(3), _normal(rng, k), _slope(rng, k), block.stride
        )
        residual = add(f"{block.name}.depthwise", depthwise)
        identity = x
        if not block.normal:
            pool = x if block.stride == 1 else add(f"{block.name}.pool", p.AvgPool(x, block.stride))
            identity = add(f"{block.name}.identity", p.BinaryConv(pool, _branches(rng, block)))
        conv3 = p.BinaryConv(
            residual, _branches(rng, block), slope=_slope(rng, k), add=identity, prelu_after_add=block.prelu == "block"
        )
        x = add(f"{block.name}.conv3", conv3)
    x = add("decoder.pool", p.GlobalAvgPool(x))
    c = config.channels_out
    add(
        "decoder.linear",
        p.Linear(x, _normal(rng, c, config.classes) / np.float32(c**0.5), _normal(rng, config.classes)),
    )
    return p.Program(tuple(ops), tuple(names))


def _branches(rng: np.random.Generator, block: Block) -> tuple[p.Branch, ...]:
    k = block.channels
    mask = np.full(p.words(k), 0xFFFFFFFF, np.uint32)
    if k % 32:
        mask[-1] = (1 << k % 32) - 1  # tail bits are zero
    return tuple(
        p.Branch(
            threshold=_normal(rng, k),
            weight=rng.integers(0, 1 << 32, (k, p.words(k)), dtype=np.uint32) & mask,
            # n = (K - dot) / 2 with dot of variance K: -2 / sqrt(K) * n + sqrt(K) is dot / sqrt(K).
            scale=np.full(k, -2 / k**0.5, np.float32) * rng.uniform(0.5, 1.5, k).astype(np.float32),
            offset=np.full(k, k**0.5, np.float32),
        )
        for _ in range(block.branches)
    )


def _normal(rng: np.random.Generator, *shape: int) -> p.Floats:
    return rng.standard_normal(shape, dtype=np.float32)


def _slope(rng: np.random.Generator, channels: int) -> p.Floats:
    return rng.uniform(0.1, 0.4, channels).astype(np.float32)
