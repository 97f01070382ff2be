"""What every op of a `Program` computes: the slow, obvious definition in NumPy that the engine must equal bit for bit. No torch.

uint8 image H,W,3 -> float32 logits. Every real operation is one float32 rounding, in the order that `program` states. So
sums are running sums (`cumsum`, or a loop that adds one vector at a time): `np.sum` and `@` choose their own order.

Legend: H x W map size, C channels of the map read, K after replication, O channels made, P branches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.errors import UserError
from bcnn.program import program as p
from bcnn.program.bits import pack_bits

# Values of the H,W,O popcounts made at once: bounds the memory of a large map and keeps the work in the cache.
CHUNK = 1 << 18


def interpret(program: p.Program, image: NDArray[np.uint8]) -> p.Floats:
    """The logits of one image that has exactly the program's input size."""
    return interpret_maps(program, image)[-1].reshape(-1)


def interpret_maps(program: p.Program, image: NDArray[np.uint8]) -> list[p.Floats]:
    """Map i of the result, float32 H,W,C, is what op i makes."""
    height, width, _ = program.shapes[0]
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.shape != (height, width, 3):
        got = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise UserError(f"image is {got}, not the uint8 {(height, width, 3)} that the program reads")
    maps = [input_map(program.ops[0], image)]
    for op in program.ops[1:]:
        maps.append(run_op(op, maps))
    return maps


def run_op(op: p.Op, maps: list[p.Floats]) -> p.Floats:
    """One op on maps that are given, whatever made them."""
    # Finite parameters can still overflow on hostile input: that is inf or NaN, as in the engine, and no warning.
    with np.errstate(all="ignore"):
        return OPS[type(op)](op, maps)


def input_map(op: p.Op, image: NDArray[np.uint8]) -> p.Floats:
    """Map 0."""
    assert isinstance(op, p.Input)  # a Program that exists begins with one
    x: p.Floats = image.astype(np.float32) * op.scale + op.offset
    if op.intensity is None:
        return x
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    i = op.intensity
    return np.concatenate([x, (r * i[0] + g * i[1] + b * i[2])[..., None]], axis=-1)


def _binary_conv(op: p.BinaryConv, maps: list[p.Floats]) -> p.Floats:
    x = replicated(maps[op.source], op.branches[0].threshold.size)
    v = x if op.identity else np.zeros(1, np.float32)
    for branch in op.branches:
        v = v + (mismatches(x, branch).astype(np.float32) * branch.scale + branch.offset)
    if not op.prelu_after_add:
        v = prelu(v, op.slope)
    if op.add is not None:
        v = replicated(maps[op.add], v.shape[-1]) + v
    if op.prelu_after_add:
        v = prelu(v, op.slope)
    return v


def _depthwise_conv(op: p.DepthwiseConv, maps: list[p.Floats]) -> p.Floats:
    x = replicated(maps[op.source], op.offset.size)
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    height, width, _ = x.shape
    v = op.offset
    for ky in range(3):
        for kx in range(3):
            v = v + op.weight[ky, kx] * padded[ky : ky + height : op.stride, kx : kx + width : op.stride]
    return prelu(v, op.slope)


def _avg_pool(op: p.AvgPool, maps: list[p.Floats]) -> p.Floats:
    x, s = maps[op.source], op.stride
    total = x[::s, ::s]
    for tap in range(1, s * s):
        total = total + x[tap // s :: s, tap % s :: s]
    return total * np.float32(1 / (s * s))


def _channel_avg(op: p.ChannelAvg, maps: list[p.Floats]) -> p.Floats:
    x = maps[op.source]
    means = []
    for j in range(op.channels):
        group = x[..., j :: op.channels]
        means.append(np.cumsum(group, axis=-1, dtype=np.float32)[..., -1] / np.float32(group.shape[-1]))
    return np.stack(means, axis=-1)


def _global_avg_pool(op: p.GlobalAvgPool, maps: list[p.Floats]) -> p.Floats:
    pixels = maps[op.source].reshape(-1, maps[op.source].shape[-1])
    total = np.cumsum(pixels, axis=0, dtype=np.float32)[-1]
    mean: p.Floats = total * np.float32(1 / len(pixels))
    return mean.reshape(1, 1, -1)


def _linear(op: p.Linear, maps: list[p.Floats]) -> p.Floats:
    v = op.bias
    for value, row in zip(maps[op.source].reshape(-1), op.weight, strict=True):
        v = v + value * row
    return v.reshape(1, 1, -1)


OPS: dict[type, Callable[[Any, list[p.Floats]], p.Floats]] = {
    p.BinaryConv: _binary_conv,
    p.DepthwiseConv: _depthwise_conv,
    p.AvgPool: _avg_pool,
    p.ChannelAvg: _channel_avg,
    p.GlobalAvgPool: _global_avg_pool,
    p.Linear: _linear,
}


# --- the steps that ops share -----------------------------------------------------------------------------------------


def replicated(x: p.Floats, channels: int) -> p.Floats:
    """Channel k of the result is channel k mod C: replication as an index rule (sec. 4.2.2)."""
    return x if x.shape[-1] == channels else x[..., np.arange(channels) % x.shape[-1]]


def shifted(x: p.Floats, dy: int, dx: int) -> p.Floats:
    """Pixel (y, x) of the result is pixel (y + dy, x + dx), and 0 outside the map."""
    height, width, _ = x.shape
    out = np.zeros_like(x)
    top, bottom = max(0, -dy), min(height, height - dy)
    left, right = max(0, -dx), min(width, width - dx)
    out[top:bottom, left:right] = x[top + dy : bottom + dy, left + dx : right + dx]
    return out


def mismatches(x: p.Floats, branch: p.Branch) -> NDArray[np.int32]:
    """n: in how many of the K channels sign(x + b) and the weight differ, for every pixel and output channel."""
    height, width, _ = x.shape
    if branch.shift != (0, 0):
        x = shifted(x, *branch.shift)
    bits = pack_bits(x >= branch.threshold).reshape(height * width, -1)
    n = np.zeros((height * width, len(branch.weight)), np.int32)
    step = max(1, CHUNK // n.shape[1])
    for start in range(0, len(n), step):
        pixels = bits[start : start + step]
        for word in range(pixels.shape[1]):
            n[start : start + step] += np.bitwise_count(pixels[:, None, word] ^ branch.weight[None, :, word])
    return n.reshape(height, width, -1)


def prelu(v: p.Floats, slope: p.Floats | None) -> p.Floats:
    return v if slope is None else np.where(v >= 0, v, slope * v)
