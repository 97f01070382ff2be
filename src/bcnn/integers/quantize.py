"""A float program -> the same program in integers. No torch.

    made = fixed(program, images)            # a Fixed: the program, and what saturates on the images
    made = fixed(program, images, "int8")    # every real parameter a multiple of a step, so that a file holds it in one byte

Formats are `formats`' choice. What an op becomes stands in `RULES`, one function a class; what cannot be said in 16 bits is refused
by name. The arithmetic is that of `ops.fixed_numbers`. An integer program is a network of its own: one sign that flips spreads,
so judge it by its accuracy on a data set, and executors of it by `==`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.integers.calibration import Formats, bend_up, calibrate, choose, gentle, is_depthwise, scales_features
from bcnn.program import ops
from bcnn.program.interpret import interpret_maps, run_op
from bcnn.program.ops import Indices, Shorts
from bcnn.program.ops.fixed_endings import BEND_UP
from bcnn.program.ops.fixed_numbers import HIGH, LOW, MOST_DOWN, MOST_UP, WIDEST
from bcnn.program.ops.fixed_real import INTENSITY_DOWN
from bcnn.program.program import Program

PARAMETERS = ("int16", "int8")
RARE = 0.01  # of a map's channels whose largest values a Bound may cut off
COARSE = 4  # steps of half of a tensor's values: one whose step is larger is not for bytes
SIGN_UP = 7  # of dots of up to 255 signs: what kernels do with one instruction


@dataclass(frozen=True)
class Saturation:
    """What an op did with the calibration images."""

    name: str
    share: float  # of its map's values that are at a limit, or were on the way


@dataclass(frozen=True)
class Fixed:
    program: Program
    saturated: tuple[Saturation, ...]  # ops with any, worst first


def fixed(
    program: Program,
    images: Sequence[NDArray[np.uint8]],
    parameters: str = "int16",
    progress: Callable[[], None] = lambda: None,
) -> Fixed:
    """`images` have exactly the program's input size; `progress` is called twice an image."""
    if parameters not in PARAMETERS:
        raise UserError(f"parameters is {parameters!r}, not {' or '.join(PARAMETERS)}")
    if program.numbers != "float32":
        raise UserError(
            "the program is one in integers already; convert the float32 one that it came from, or "
            "this one back first: bcnn convert MODEL -o float.bcnn --numbers float32"
        )
    if not len(images):
        raise UserError("calibration needs at least one image; twenty of those the network is for are plenty")
    formats = choose(program, calibrate(program, images, progress))
    made = []
    for index, (op, name) in enumerate(zip(program.ops, program.names, strict=True)):
        try:
            made.append(RULES[type(op)](_At(program, formats, index, parameters), op))
        except UserError as error:
            raise UserError(f"op {index} ({type(op).__name__} {name!r}): {error}") from None
    converted = replace(program, ops=tuple(made))
    return Fixed(converted, saturations(converted, images, progress))


def saturations(
    program: Program, images: Sequence[NDArray[np.uint8]], progress: Callable[[], None] = lambda: None
) -> tuple[Saturation, ...]:
    """What the ops of an integer program do with the images."""
    share = np.zeros(len(program.ops))
    limits = [_largest(op) for op in program.ops]
    for image in images:
        maps = interpret_maps(program, image)
        for index, (op, v, limit) in enumerate(zip(program.ops, maps, limits, strict=True)):
            cut = (v >= limit) | (v <= -limit)
            for place, ending in enumerate(getattr(op, "after", ())):
                if isinstance(ending, ops.FixedPReLU) and ending.up:  # values below its limit, which slopes may hide
                    read = run_op(replace(op, after=op.after[:place]), maps)  # type: ignore[attr-defined, type-var]
                    cut |= read < ending.least
            share[index] += np.mean(cut) / len(images)
        progress()
    rows = [Saturation(name, float(part)) for name, part in zip(program.names, share, strict=True) if part > 0]
    return tuple(sorted(rows, key=lambda row: -row.share))


def _largest(op: ops.Op) -> NDArray[np.int64]:
    """What an op's values can reach: the limits of its Bound, shifted, or those of 16 bits."""
    limit = np.asarray(HIGH, np.int64)
    for ending in getattr(op, "after", ()):
        if isinstance(ending, ops.Bound):
            limit = ending.limit.astype(np.int64)
        elif isinstance(ending, ops.Shift) and ending.up > 0:
            limit = np.minimum(limit << ending.up, HIGH)
    return limit


# --- numbers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _At:
    """The op at work, and what its rule may ask."""

    program: Program
    formats: Formats
    index: int
    parameters: str

    @property
    def f(self) -> int:
        """Fractional bits of the op's values, but for what its last endings do."""
        return self.formats.before[self.index]

    @property
    def made(self) -> int:
        return self.formats.made[self.index]

    def of(self, source: int) -> int:
        return self.formats.made[source]

    def shorts(self, what: str, values: Any, bits: int, per_channel: bool = False) -> Shorts:
        """values * 2^bits as 16-bit numbers; as int8, multiples of one step, or of one for each channel, the last axis."""
        exact = np.asarray(values, np.float64) * 2.0**bits
        if np.abs(exact).max(initial=0) > HIGH + 0.5:
            raise UserError(f"{what} of {np.abs(values).max():.4g} does not fit 16 bits with {bits} fractional ones")
        return self.stepped(np.clip(np.rint(exact), -HIGH, HIGH), per_channel)

    def stepped(self, values: NDArray[np.float64], per_channel: bool = False) -> Shorts:
        if self.parameters == "int8":
            axes = tuple(range(values.ndim - 1)) if per_channel else None
            size = np.abs(values)
            step = np.maximum(np.ceil(size.max(axis=axes, initial=0) / 127), 1)
            if step.ndim == 0 and step > 1 and np.median(size[size > 0]) < COARSE * step:
                return values.astype(np.int16)  # a few are much larger than most, which a byte would not tell apart
            values = np.clip(np.rint(values / step), -(HIGH // step), HIGH // step) * step
        return values.astype(np.int16)

    def above(self, threshold: Any, bits: int) -> Shorts:
        """x >= threshold is x > above."""
        exact = np.ceil(np.asarray(threshold, np.float64) * 2.0**bits) - 1
        return self.stepped(np.clip(exact, -HIGH, HIGH))


def _endings(at: _At, after: Sequence[ops.Ending]) -> tuple[ops.Ending, ...]:
    """In the op's format, then the bits that depth wise readers need."""
    made: list[ops.Ending] = []
    f, bent = at.f, iter(at.formats.ranges[at.index].bent)
    for ending in after:
        rule = ENDINGS.get(type(ending))
        if rule is None:
            raise UserError(f"{type(ending).__name__} has no integer form")
        same = _gentle(ending, next(bent) * 2.0**f) if isinstance(ending, ops.PReLU) else [ending]
        made += [rule(at, each, f) for each in same]
        f = at.made if isinstance(ending, ops.Sigmoid) else f
    bound = _bound(at)
    if bound is not None:
        made.append(ops.Bound(bound))
    if at.made != f:
        made.append(_shift(at.made - f))
    return tuple(made)


def _shift(up: int) -> ops.Shift:
    if abs(up) > MOST_UP:
        raise UserError(f"its values change their size by 2^{abs(up)}, more than 16 bits hold")
    return ops.Shift(up)


def _bound(at: _At) -> Shorts | None:
    """Limits within which no sum of a depth wise reader leaves 16 bits, if they cut off next to nothing."""
    readers = [op for op in at.program.ops if is_depthwise(op) and op.source == at.index]
    channels = at.program.shapes[at.index][2]
    if not readers or any(op.reads != channels for op in readers):
        return None
    limit = np.full(channels, HIGH, np.int64)
    for op in readers:
        reader = _depthwise(replace(at, index=at.program.ops.index(op)), op)
        magnitudes = np.abs(reader.weight.astype(np.int64)).reshape(-1, channels).sum(axis=0)
        room = HIGH - np.abs(reader.offset.astype(np.int64)) - reader.window.taps
        limit = np.minimum(limit, np.where(magnitudes > 0, (room << 15) // np.maximum(magnitudes, 1), HIGH))
    shift = at.formats.more[at.index]
    step = max(1, 256 >> shift)  # as bytes in a file
    limit = np.minimum(limit >> shift, HIGH >> shift) // step * step
    seen = at.formats.ranges[at.index].channels
    assert seen is not None
    cut = np.mean(seen * 2.0 ** (at.made - shift) > limit)
    return limit.astype(np.int16) if limit.min() > 0 and cut <= RARE else None


# --- rules ------------------------------------------------------------------------------------------------------------


def _input(at: _At, op: ops.Input) -> ops.Op:
    scale, offset = op.scale.astype(np.float64), op.offset.astype(np.float64)
    intensity = None
    if op.intensity is not None:
        weights = np.rint(op.intensity.astype(np.float64) * 2.0**INTENSITY_DOWN)
        if np.abs(weights).sum() > 1.9 * 2**15:  # in 32 bits with values of 16
            raise UserError(f"the weights of its intensity, of up to {np.abs(op.intensity).max():.4g}, are too large")
        intensity = weights.astype(np.int16)
    for down in range(16, -1, -1):
        numbers = [np.rint(values * 2.0 ** (at.f + down)) for values in (scale, offset)]
        if (255 * np.abs(numbers[0]) + np.abs(numbers[1]) + 2.0**down).max() < WIDEST:
            whole = [values.astype(np.int32) for values in numbers]
            return ops.FixedInput(op.height, op.width, whole[0], whole[1], down, intensity, at.made)
    raise UserError("the input's values do not fit 16 bits")


def _binary(at: _At, op: ops.BinaryConv) -> ops.Op:
    n = op.bits
    most = min(SIGN_UP, int(np.floor(np.log2(HIGH / n))))
    slopes = [branch.scale.astype(np.float64) / -2 for branch in op.branches]  # per unit of the dot
    offsets = [b.offset.astype(np.float64) + b.scale.astype(np.float64) * n / 2 for b in op.branches]
    largest = max(float(np.abs(values).max()) for values in slopes) * 2.0 ** (15 - most)
    largest = max(largest, max(float(np.abs(values).max()) for values in offsets))
    f = min(at.f, int(np.floor(np.log2(HIGH / largest))) if largest > 0 else at.f)
    branches = []
    for branch, slope, offset in zip(op.branches, slopes, offsets, strict=True):
        above = at.above(branch.threshold, at.of(op.source))
        scale = at.shorts("scale", slope, f + 15 - most)
        own = at.shorts("offset", offset, f)
        branches.append(ops.FixedBranch(above, branch.weight, scale, own, most, branch.pad, branch.shift))
    after = _endings(at, op.after)
    if f != at.f:
        after = (_shift(at.f - f), *after)
    return ops.FixedBinaryConv(op.source, op.reads, tuple(branches), op.window, op.groups, after, at.made)


def _depthwise(at: _At, op: ops.Conv) -> ops.FixedDepthwise:
    """The sum has as many bits as the largest weight allows; a shift makes up for the rest."""
    read = at.of(op.source)
    largest = float(np.abs(op.weight).max())
    e = read - at.f
    if largest > 0:
        e = max(e, int(np.floor(np.log2(largest * 32768 / (HIGH + 0.5)))) + 1)
    offset = float(np.abs(op.offset).max())
    if offset > 0:
        e = max(e, read - int(np.floor(np.log2((HIGH + 0.5) / offset))))
    weight = at.shorts("weight", op.weight[:, :, 0, :], 15 - e, per_channel=True)
    made = ops.FixedDepthwise(
        op.source, op.reads, weight, at.shorts("offset", op.offset, read - e), op.window, (), at.made
    )
    return made if e == read - at.f else replace(made, after=(_shift(at.f - read + e),))


def _conv(at: _At, op: ops.Conv) -> ops.Op:
    if is_depthwise(op):
        made = _depthwise(at, op)
        return replace(made, after=(*made.after, *_endings(at, op.after)))
    weight, offset, down = sums(op.weight, op.offset, at.of(op.source), at.f, at.parameters == "int8")
    after = _endings(at, op.after)
    return ops.FixedConv(op.source, op.reads, weight, offset, down, op.window, op.groups, after, at.made)


def _linear(at: _At, op: ops.Linear) -> ops.Op:
    bytes_ = at.parameters == "int8" or at.index == len(at.program.ops) - 1  # a decoder is large, and needs no more
    weight, offset, down = sums(op.weight[None, None], op.bias, at.of(op.source), at.f, bytes_)
    return ops.FixedConv(
        op.source, op.weight.shape[0], weight, offset, down, after=_endings(at, op.after), fraction=at.made
    )


def sums(weight: Any, offset: Any, read: int, made: int, bytes_: bool) -> tuple[Shorts, Indices, Shorts]:
    """Weights, offsets and downs of sums in 32 bits, from `read` fractional bits to `made`: per output channel, the most bits with
    which no sum can leave them, and no weight one byte if `bytes_`."""
    weight = np.asarray(weight, np.float64)
    o = weight.shape[-1]
    flat = np.abs(weight.reshape(-1, o))
    own, total, size = flat.max(axis=0), flat.sum(axis=0), np.abs(np.asarray(offset, np.float64))
    bits = np.full(o, MOST_DOWN + made - read, np.int64)
    with np.errstate(divide="ignore"):
        bits = np.minimum(bits, np.floor(np.log2((127.4 if bytes_ else HIGH) / own)).clip(max=99).astype(np.int64))
        most = WIDEST * 0.98 - 2.0**29  # less what rounding and half a step add
        bits = np.minimum(
            bits, np.floor(np.log2(most / (total * 32768 + size * 2.0**read))).clip(max=99).astype(np.int64)
        )
    down = read + bits - made
    if down.min() < 0:
        raise UserError(f"its weights, of up to {own.max():.4g}, are too large for sums of 32 bits")
    scaled = np.rint(weight * 2.0**bits)
    offsets = np.rint(np.asarray(offset, np.float64) * 2.0 ** (read + bits))
    return scaled.astype(np.int16), offsets.astype(np.int32), down.astype(np.int16)


def _pointwise(at: _At, op: ops.Pointwise) -> ops.Op:
    if scales_features(op, at.program.shapes[at.index]):
        first, read = op.after[0], at.of(op.source)
        assert isinstance(first, ops.Affine)
        assert first.scale is not None
        weight, offset, down = sums(first.scale[None, None, None], first.offset, read, at.f, at.parameters == "int8")
        rest = _endings(at, op.after[1:])
        return ops.FixedConv(op.source, op.reads, weight, offset, down, groups=op.reads, after=rest, fraction=at.made)
    after = _endings(at, op.after)
    change = at.f - at.of(op.source)
    return ops.Pointwise(op.source, op.reads, (_shift(change), *after) if change else after, at.made)


def _global(at: _At, op: ops.GlobalAvgPool) -> ops.Op:
    change = at.made - at.of(op.source)
    if change < 0:
        raise UserError("its mean has fewer fractional bits than what it is a mean of")
    return ops.FixedGlobalAvgPool(op.source, min(change, 15))


def _same_format(at: _At, op: ops.Op) -> ops.Op:
    assert all(at.of(source) == at.made for source in op.maps_read())
    return op


RULES: dict[type[ops.Op], Callable[[_At, Any], ops.Op]] = {
    ops.Input: _input,
    ops.BinaryConv: _binary,
    ops.Conv: _conv,
    ops.Linear: _linear,
    ops.Pointwise: _pointwise,
    ops.Constant: lambda at, op: ops.FixedConstant(at.shorts("value", op.value, at.made), at.made),
    ops.AvgPool: lambda at, op: ops.FixedAvgPool(op.source, op.window, op.inside),
    ops.ChannelAvg: lambda at, op: ops.FixedChannelAvg(op.source, op.channels),
    ops.AbsMean: lambda at, op: ops.FixedAbsMean(op.source),
    ops.GlobalAvgPool: _global,
    ops.MaxPool: _same_format,
    ops.Concat: _same_format,
    ops.Select: _same_format,
    ops.Upsample: _same_format,
}


def _gentle(ending: ops.PReLU, bent: float) -> list[ops.PReLU]:
    """The same as PReLUs that limit nearly no value seen: one steep channel would have all of them limited to 2^15 >> up."""
    if bend_up(ending.slope) > BEND_UP:
        raise UserError(f"a slope of {ending.slope[np.abs(ending.slope - 1).argmax()]:.4g} is too steep")
    room = int(np.log2(-LOW / max(bent, 1))) if np.isfinite(bent) else 0
    room = min(max(room, 1), BEND_UP)  # ROOM leaves 1 at least
    return [ops.PReLU(slope) for slope in gentle(ending.slope, room)]


def _prelu(at: _At, ending: ops.PReLU, f: int) -> ops.Ending:
    bend, up = ending.slope.astype(np.float64) - 1, bend_up(ending.slope)
    return ops.FixedPReLU(at.stepped(np.clip(np.rint(bend * 2.0 ** (15 - up)), -HIGH, HIGH)), up)


def _affine(at: _At, ending: ops.Affine, f: int) -> ops.Ending:
    offset = None if ending.offset is None else at.shorts("offset", ending.offset, f)
    if ending.scale is None:
        return ops.FixedAffine(None, offset)
    largest = float(np.abs(ending.scale).max())
    down = int(np.clip(np.floor(np.log2(HIGH / largest)), -1, MOST_DOWN)) if largest > 0 else 0
    return ops.FixedAffine(at.shorts("scale", ending.scale, max(down, 0)), offset, max(down, 0))


def sigmoid_table(f: int, made: int) -> ops.Table:
    """From f fractional bits to `made`."""
    down = max(0, f - 4)  # -8 to 8 in steps of 1/16
    x = np.clip((np.arange(257) - 128) * 2.0 ** (down - f), -100, 100)  # e^100 is finite, and the rest of it 0 or 1
    return ops.Table(np.clip(np.rint(2.0**made / (1 + np.exp(-x))), -HIGH, HIGH).astype(np.int16), down)


def _clip(at: _At, ending: ops.Clip, f: int) -> ops.Ending:
    limits = np.clip(np.rint(ending.limits.astype(np.float64) * 2.0**f), LOW + 1, HIGH)
    return ops.FixedClip(limits.astype(np.int16))


def _add(at: _At, ending: ops.Add, f: int) -> ops.Ending:
    up = f - at.of(ending.source)
    if abs(up) > MOST_UP:
        raise UserError(
            f"it adds map {ending.source}, whose values are 2^{abs(up)} times {'smaller' if up > 0 else 'larger'}"
        )
    return ops.FixedAdd(ending.source, ending.reads, ending.first, up)


def _gate(at: _At, ending: ops.Gate, f: int) -> ops.Ending:
    if at.of(ending.source) < 0:
        raise UserError(f"it multiplies by map {ending.source}, whose values are too large for a gate")
    return ops.FixedGate(ending.source, at.of(ending.source))


def _sign(at: _At, ending: ops.Sign, f: int) -> ops.Ending:
    if f < 0:
        raise UserError("it makes signs of values too large to hold 1 beside them")
    return ops.FixedSign(at.above(ending.threshold, f), min(1 << f, HIGH))


ENDINGS: dict[type[ops.Ending], Callable[[_At, Any, int], ops.Ending]] = {
    ops.Add: _add,
    ops.Gate: _gate,
    ops.Affine: _affine,
    ops.PReLU: _prelu,
    ops.ReLU: lambda at, e, f: e,
    ops.Clip: _clip,
    ops.Sign: _sign,
    ops.Sigmoid: lambda at, e, f: sigmoid_table(f, at.made),
}
