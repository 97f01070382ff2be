"""What a network lowers to: a list of ops over feature maps, as plain data. No torch.

Op i makes map i; it names the maps it reads by their index, always smaller than its own. Map 0 is the image, the last map the
logits. Ops are fused the way hardware wants them and named in the paper's words. `interpret` says what each one computes,
the engine computes the same bits.

Maps are float32, NHWC (one image: H,W,C). Bits: 1 stands for +1, 0 for -1; channel c is bit c % 32 of word c // 32,
tail bits are zero. Legend: H x W map size, C channels of the map read, K channels after replication (K = RC), O channels made.

Replication (sec. 4.2.2) is an index rule on the reader's side, never a copy: an op whose arrays have K > C channels reads
channel k of its input as channel k mod C. Numbers: every real operation is one float32 rounding, in the order written here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.errors import UserError

Floats = NDArray[np.float32]
Words = NDArray[np.uint32]
Shape = tuple[int, int, int]  # H, W, C of a map


@dataclass(frozen=True, eq=False)
class Input:
    """uint8 H,W,3 -> H,W,3 or 4: v = u * scale + offset per channel, then r*i0 + g*i1 + b*i2 as fourth channel (sec. 4.1)."""

    height: int
    width: int
    scale: Floats  # [3]
    offset: Floats  # [3]
    intensity: Floats | None  # [3]


@dataclass(frozen=True, eq=False)
class Branch:
    """One residual of a convolution module (Fig. 4), bias, sign, convolution and batch norm folded:

    1. sign(x + b) is +1 exactly where x >= -b: `threshold` = -b, and a bit is 1 where x >= threshold.
    2. dot = sum of sign * sign over K channels = K - 2 n, where n = popcount(input bits ^ weight bits).
    3. batch norm = s * dot + o with s = gamma / sqrt(var + eps), o = beta - s * mean.
    4. Inserting 2 in 3: `scale` * n + `offset` with scale = -2 s (exact) and offset = o + s K.

    Pixel (y + dy, x + dx) is read for `shift` = (dy, dx); outside the map the value read is 0, thresholded like any other.
    """

    threshold: Floats  # [K]
    weight: Words  # [O, ceil(K / 32)]
    scale: Floats  # [O]
    offset: Floats  # [O]
    shift: tuple[int, int] = (0, 0)


@dataclass(frozen=True, eq=False)
class BinaryConv:
    """Convolution module (Fig. 4). v = x + (n_0 * scale_0 + offset_0) + (n_1 * scale_1 + offset_1) + ..., left to right.

    `identity` False starts from 0 instead of x (then O may differ from K). `add` is another map of the output's shape: the
    other path of the building block. PReLU: v if v >= 0 else slope * v, before the addition or after it.
    """

    source: int
    branches: tuple[Branch, ...]
    identity: bool = True
    slope: Floats | None = None  # [O]
    add: int | None = None  # out = map[add] + v
    prelu_after_add: bool = False


@dataclass(frozen=True, eq=False)
class DepthwiseConv:
    """Real depth wise 3x3/S with zero padding 1, batch norm folded: v = offset, then v += w[ky,kx] * x in raster order; PReLU."""

    source: int
    weight: Floats  # [3, 3, K]
    offset: Floats  # [K]
    slope: Floats | None  # [K]
    stride: int = 1


@dataclass(frozen=True, eq=False)
class AvgPool:
    """SxS/S average: sum in raster order, times float32(1 / S^2). Before replication, which commutes with it."""

    source: int
    stride: int


@dataclass(frozen=True, eq=False)
class ChannelAvg:
    """R < 1: output channel j is the mean of the input channels c with c mod `channels` = j, summed in ascending c, divided."""

    source: int
    channels: int


@dataclass(frozen=True, eq=False)
class GlobalAvgPool:
    """H,W,C -> 1,1,C: sum over pixels in raster order, times float32(1 / (H W))."""

    source: int


@dataclass(frozen=True, eq=False)
class Linear:
    """1,1,C -> 1,1,O: v = bias, then v += x[c] * weight[c] for ascending c."""

    source: int
    weight: Floats  # [C, O]
    bias: Floats  # [O]


Op = Input | BinaryConv | DepthwiseConv | AvgPool | ChannelAvg | GlobalAvgPool | Linear


@dataclass(frozen=True, eq=False)
class Program:
    """Ops in order, and what a packed file says about them. Making one checks it: see `shapes`."""

    ops: tuple[Op, ...]
    names: tuple[str, ...]  # the torch module each op came from, for reports
    labels: tuple[str, ...] = ()  # class names, if known
    crop: float = (
        1.0  # of an image of another size: shorter side resized to input / crop, centre kept, see `images.fit`
    )
    provenance: dict[str, Any] = field(default_factory=dict)  # config, recipe, measured accuracy: plain JSON data
    shapes: tuple[Shape, ...] = field(init=False)  # of every map

    def __post_init__(self) -> None:
        object.__setattr__(self, "shapes", _shapes(self))


def words(channels: int) -> int:
    """32-bit words that hold a bit per channel."""
    return -(-channels // 32)


def binary_weights(program: Program) -> int:
    """How many binary weights the program holds."""
    return sum(
        branch.scale.size * branch.threshold.size
        for op in program.ops
        if isinstance(op, BinaryConv)
        for branch in op.branches
    )


# --- checks: a Program that exists is one that every executor may trust --------------------------------------------

MAX_SIDE, MAX_CHANNELS, MAX_MAP = 1 << 14, 1 << 20, 1 << 28  # far above any network, far below any overflow


def _shapes(program: Program) -> tuple[Shape, ...]:
    if not program.ops or not isinstance(program.ops[0], Input):
        raise UserError("a program must begin with an Input op")
    if len(program.names) != len(program.ops):
        raise UserError(f"program has {len(program.ops)} ops but {len(program.names)} names")
    shapes: list[Shape] = []
    for op, name in zip(program.ops, program.names, strict=True):
        shapes.append(map_shape(op, name, shapes))
    if not isinstance(program.crop, float) or not 0 < program.crop <= 1:
        raise UserError(f"crop is {program.crop!r}, not a number above 0 and up to 1")
    labels = len(program.labels)
    if labels and shapes[-1] != (1, 1, labels):
        raise UserError(f"program has {labels} labels but its last map is {shapes[-1]}")
    return tuple(shapes)


def map_shape(op: Op, name: str, shapes: list[Shape]) -> Shape:
    """The shape of the map that an op makes after maps of `shapes`; one that does not fit is a `UserError` that names it."""
    try:
        h, w, c = shape = _shape(op, len(shapes), shapes)
        if not (0 < h <= MAX_SIDE and 0 < w <= MAX_SIDE and 0 < c <= MAX_CHANNELS and h * w * c <= MAX_MAP):
            raise UserError(f"its map of {h} x {w} x {c} is empty or too large")
    except UserError as error:
        raise UserError(f"op {len(shapes)} ({type(op).__name__} {name!r}): {error}") from None
    return shape


def _shape(op: Op, index: int, shapes: list[Shape]) -> Shape:
    if isinstance(op, Input):
        if index:
            raise UserError("only the first op may be an Input")
        _whole("height", op.height, 1, MAX_SIDE)
        _whole("width", op.width, 1, MAX_SIDE)
        _floats("scale", op.scale, (3,))
        _floats("offset", op.offset, (3,))
        if op.intensity is not None:
            _floats("intensity", op.intensity, (3,))
        return op.height, op.width, 3 if op.intensity is None else 4
    _whole("source", op.source, 0, index - 1)
    h, w, c = shapes[op.source]
    if isinstance(op, BinaryConv):
        return _binary_conv_shape(op, index, shapes)
    if isinstance(op, DepthwiseConv):
        _whole("stride", op.stride, 1, MAX_SIDE)
        k = _channels("offset", op.offset, at_least=c)
        _floats("offset", op.offset, (k,))
        _floats("weight", op.weight, (3, 3, k))
        if op.slope is not None:
            _floats("slope", op.slope, (k,))
        return (h - 1) // op.stride + 1, (w - 1) // op.stride + 1, k
    if isinstance(op, AvgPool):
        _whole("stride", op.stride, 1, MAX_SIDE)
        if h % op.stride or w % op.stride:
            raise UserError(f"stride {op.stride} does not divide the {h} x {w} map it reads")
        return h // op.stride, w // op.stride, c
    if isinstance(op, ChannelAvg):
        _whole("channels", op.channels, 1, c)
        return h, w, op.channels
    if isinstance(op, GlobalAvgPool):
        return 1, 1, c
    o = _channels("bias", op.bias, at_least=1)
    if (h, w) != (1, 1):
        raise UserError(f"reads a {h} x {w} map; a Linear op needs 1 x 1")
    _floats("bias", op.bias, (o,))
    _floats("weight", op.weight, (c, o))
    return 1, 1, o


def _binary_conv_shape(op: BinaryConv, index: int, shapes: list[Shape]) -> Shape:
    h, w, c = shapes[op.source]
    if not 1 <= len(op.branches) <= 1024:
        raise UserError(f"has {len(op.branches)} branches; between 1 and 1024 are allowed")
    k = _channels("threshold", op.branches[0].threshold, at_least=c)
    o = _channels("scale", op.branches[0].scale, at_least=1)
    for p, branch in enumerate(op.branches):
        _floats(f"branch {p}: threshold", branch.threshold, (k,))
        _floats(f"branch {p}: scale", branch.scale, (o,))
        _floats(f"branch {p}: offset", branch.offset, (o,))
        _array(f"branch {p}: weight", branch.weight, np.uint32, (o, words(k)))
        if k % 32 and np.any(branch.weight[:, -1] >> np.uint32(k % 32)):
            raise UserError(f"branch {p}: weight has bits set past its {k} channels")
        for part, size in zip(branch.shift, (h, w), strict=True):
            _whole(f"branch {p}: shift", part, -size, size)
    if op.identity and o != k:
        raise UserError(f"has an identity path but makes {o} channels from {k}")
    if op.slope is not None:
        _floats("slope", op.slope, (o,))
    if op.add is not None:
        _whole("add", op.add, 0, index - 1)
        ah, aw, ac = shapes[op.add]
        # The added map may itself be replicated: its channel o is read as o mod ac.
        if (ah, aw) != (h, w) or ac > o:
            raise UserError(f"adds map {op.add} of {shapes[op.add]} to one of {(h, w, o)}")
    return h, w, o


def _whole(what: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UserError(f"{what} is {value!r}, not a whole number from {low} to {high}")


def _channels(what: str, array: Any, at_least: int) -> int:
    if not isinstance(array, np.ndarray) or array.ndim != 1 or not at_least <= array.size <= MAX_CHANNELS:
        raise UserError(f"{what} must be a vector of {at_least} to {MAX_CHANNELS} channels")
    return array.size


def _array(what: str, array: Any, dtype: type, shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else repr(array)
        raise UserError(f"{what} is {got}, not {np.dtype(dtype)} {shape}")


def _floats(what: str, array: Any, shape: tuple[int, ...]) -> None:
    _array(what, array, np.float32, shape)
    if not np.isfinite(array).all():
        raise UserError(f"{what} has values that are not finite")
