"""Small networks and programs that several test files use."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import nn

from bcnn.integers.dequantize import reals
from bcnn.nets.bcnn import Network
from bcnn.nets.config import Level, NetworkConfig
from bcnn.packed import packfile, shipped
from bcnn.program import ops
from bcnn.program.bits import pack_bits
from bcnn.program.program import Program

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TINY = NetworkConfig(
    name="tiny", image_size=(8, 8), classes=3, stem=Level(1, 1, 2), levels=(Level(2, 2, 2), Level(1, 2, 1.5))
)

TINY_FIXED = NetworkConfig(  # whole R, which integer programs of random parameters have
    name="tiny", image_size=(8, 8), classes=10, stem=Level(1, 1, 2), levels=(Level(1, 2, 2),)
)


def in_floats(name: str) -> Program:
    """A shipped model, which is one in integers, in float32."""
    return reals(packfile.read(shipped.find(name)))


def network(config: NetworkConfig = TINY, seed: int = 0) -> Network:
    """A network in eval mode whose batch norms and slopes are as unlike their initial values as training could make them."""
    torch.manual_seed(seed)
    made = Network(config)
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.normal_()  # negative scales, too
                module.weight[::5] = 0
                module.bias.normal_()
                module.running_mean.normal_(0, 3)
                module.running_var.uniform_(1, 40)
            elif isinstance(module, nn.PReLU):
                module.weight.normal_(0.25, 1)  # negative slopes and slopes above 1, too
    return made.eval()


def image(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small multiples of 1/8: sums and products of a few of them are exact in float32."""
    return rng.integers(-16, 17, shape).astype(np.float32) / np.float32(8)


def branch(
    rng: np.random.Generator, k: int, o: int, shift: tuple[int, int] = (0, 0), taps: int = 1, groups: int = 1
) -> ops.Branch:
    """Shifted ones read zeros outside the map, as the paper's do; others nothing at all."""
    weight = pack_bits(rng.integers(0, 2, (o, taps, k // groups)).astype(bool))
    threshold = floats(rng, k)
    pad = pack_bits(np.float32(0) >= threshold) if shift != (0, 0) else None
    return ops.Branch(threshold, weight, floats(rng, o), floats(rng, o), pad, shift)


def program(*made: ops.Op, height: int = 4, width: int = 4, intensity: bool = False) -> Program:
    """`made` after an Input that maps byte u to (u - 128) / 8, exactly."""
    third = np.full(3, 0.25, np.float32) if intensity else None
    first = ops.Input(height, width, np.full(3, 1 / 8, np.float32), np.full(3, -16, np.float32), third)
    return Program((first, *made), tuple(f"op{index}" for index in range(len(made) + 1)))


def kinds(of: type[ops.Op] | type[ops.Ending], numbers: str) -> set[str]:
    """The names of the classes that a program in these numbers may have."""
    return {kind.__name__ for kind in of.kinds(numbers).values()}


def every_op(labels: tuple[str, ...] = ("cat", "dög", "鳥"), provenance: dict[str, Any] | None = None) -> Program:
    """A small program with every kind of op and ending, every type of field, and channel counts that do not fill words."""
    rng = np.random.default_rng(0)
    made: list[ops.Op] = []
    names: list[str] = []

    def add(op: ops.Op) -> int:
        made.append(op)
        names.append(f"layer{len(made)}.{type(op).__name__.lower()}")
        return len(made) - 1

    third = np.full(3, 0.25, np.float32)
    x = add(ops.Input(8, 8, np.full(3, 1 / 8, np.float32), np.full(3, -16, np.float32), third))
    module = (ops.Add(x, 40), ops.PReLU(floats(rng, 40)))
    stem = add(ops.BinaryConv(x, 40, (branch(rng, 40, 40), branch(rng, 40, 40, (1, -1))), after=module))
    same = ops.Window((3, 3), (1, 1), (1, 1, 1, 1))
    depth = add(ops.Conv(stem, 40, floats(rng, 3, 3, 1, 40), floats(rng, 40), same, 40))
    wide = branch(rng, 40, 10, taps=9, groups=2)
    wide = dataclasses.replace(wide, offset=wide.scale * np.float32(-90))  # around zero: n is 90 of 180 on average
    pixels = (ops.Affine(np.full(10, 0.25, np.float32), None), ops.Affine(None, floats(rng, 10)), ops.ReLU())
    padded = ops.Window((3, 3), (1, 1), (2, 2, 2, 2), (2, 2))
    conv = add(ops.BinaryConv(depth, 40, (wide,), padded, 2, pixels))
    down = ops.Window((2, 2), (2, 2))
    pool = add(ops.MaxPool(conv, down))
    mean = add(ops.AvgPool(conv, ops.Window((3, 3), (2, 2), (1, 1, 1, 1)), True))
    signs = add(ops.Pointwise(pool, 10, (ops.Sign(floats(rng, 10)),)))
    joined = add(ops.Concat((signs, mean)))
    chosen = add(ops.Select(joined, np.array([3, 0, 19, 14], np.int32)))
    large = add(ops.Upsample(chosen, (2, 2)))
    fewer = add(ops.ChannelAvg(conv, 4))
    constant = add(ops.Constant(floats(rng, 8, 8, 4)))
    clip = ops.Clip(np.array([-8, 8], np.float32))
    squeezed = add(ops.GlobalAvgPool(large))
    gate = add(ops.Linear(squeezed, floats(rng, 4, 4), floats(rng, 4), (ops.Sigmoid(),)))
    size = add(ops.AbsMean(conv))
    endings = (ops.Add(fewer, 4), ops.Gate(gate), clip, ops.Add(constant, 4), ops.Gate(size))
    last = add(ops.Pointwise(large, 4, endings))
    last = add(ops.GlobalAvgPool(last))
    add(ops.Linear(last, floats(rng, 4, 3), floats(rng, 3)))
    used = {type(op).__name__ for op in made}
    assert used == kinds(ops.Op, "float32"), "a new kind of op belongs in here"
    assert {type(ending).__name__ for op in made for ending in getattr(op, "after", ())} == kinds(ops.Ending, "float32")
    return Program(tuple(made), tuple(names), labels, 0.875, dict(provenance or {}))


def shorts(rng: np.random.Generator, *shape: int, most: int = 4000) -> np.ndarray:
    return rng.integers(-most, most + 1, shape).astype(np.int16)


def fixed_branch(
    rng: np.random.Generator, k: int, o: int, taps: int = 1, groups: int = 1, **more: Any
) -> ops.FixedBranch:
    weight = pack_bits(rng.integers(0, 2, (o, taps, k // groups)).astype(bool))
    up = int(np.log2(32767 / (taps * k // groups)))
    return ops.FixedBranch(shorts(rng, k), weight, shorts(rng, o, most=32767), shorts(rng, o), min(up, 7), **more)


def every_fixed_op(labels: tuple[str, ...] = ("cat", "dog", "bird")) -> Program:
    """The same for integer programs."""
    rng = np.random.default_rng(1)
    made: list[ops.Op] = []

    def add(op: ops.Op) -> int:
        made.append(op)
        return len(made) - 1

    third = np.full(3, 1 << 12, np.int16)
    x = add(ops.FixedInput(8, 8, np.full(3, 1 << 16, np.int32), np.full(3, -128 << 16, np.int32), 11, third))
    after = (
        ops.FixedAdd(x, 40, up=-1),
        ops.FixedPReLU(shorts(rng, 40), 1),
        ops.Bound(np.abs(shorts(rng, 40))),
        ops.Shift(2),
    )
    pad = pack_bits(rng.integers(0, 2, 40).astype(bool))
    branches = (fixed_branch(rng, 40, 40), fixed_branch(rng, 40, 40, pad=pad, shift=(1, -1)))
    stem = add(ops.FixedBinaryConv(x, 40, branches, after=after, fraction=10))
    same = ops.Window((3, 3), (1, 1), (1, 1, 1, 1))
    depth = add(
        ops.FixedDepthwise(stem, 40, (shorts(rng, 3, 3, 40, most=100) * 9).astype(np.int16), shorts(rng, 40), same)
    )
    wide = fixed_branch(rng, 40, 10, 9, 2)
    pixels = (ops.FixedAffine(shorts(rng, 10), None, 12), ops.FixedAffine(None, shorts(rng, 10)), ops.ReLU())
    conv = add(ops.FixedBinaryConv(depth, 40, (wide,), ops.Window((3, 3), (1, 1), (2, 2, 2, 2), (2, 2)), 2, pixels))
    pool = add(ops.MaxPool(conv, ops.Window((2, 2), (2, 2))))
    mean = add(ops.AvgPool(conv, ops.Window((3, 3), (2, 2), (1, 1, 1, 1)), True))
    signs = add(ops.Pointwise(pool, 10, (ops.FixedSign(shorts(rng, 10), 256),)))
    joined = add(ops.Concat((signs, mean)))
    chosen = add(ops.Select(joined, np.array([3, 0, 19, 14], np.int32)))
    large = add(ops.Upsample(chosen, (2, 2)))
    fewer = add(ops.ChannelAvg(conv, 4))
    constant = add(ops.FixedConstant(shorts(rng, 8, 8, 4)))
    squeezed = add(ops.GlobalAvgPool(large, 2))
    table = ops.Table(np.sort(shorts(rng, 257, most=16384)), 6)
    down = np.array([12, 13, 12, 11], np.int16)
    gate = add(ops.FixedConv(squeezed, 4, shorts(rng, 1, 1, 4, 4), np.arange(4, dtype=np.int32), down, after=(table,)))
    size = add(ops.AbsMean(conv))
    endings = (ops.FixedAdd(fewer, 4), ops.FixedGate(gate, 14), ops.FixedClip(np.array([-8000, 8000], np.int16)))
    last = add(ops.Pointwise(large, 4, (*endings, ops.FixedAdd(constant, 4), ops.FixedGate(size, 9)), 8))
    last = add(ops.GlobalAvgPool(last))
    add(ops.FixedConv(last, 4, shorts(rng, 1, 1, 4, 3, most=127), np.zeros(3, np.int32), np.full(3, 7, np.int16)))
    assert {type(op).__name__ for op in made} == kinds(ops.Op, "int16"), "a new kind of op belongs in here"
    assert {type(ending).__name__ for op in made for ending in getattr(op, "after", ())} == kinds(ops.Ending, "int16")
    return Program(tuple(made), tuple(f"layer{index}" for index in range(len(made))), labels)
