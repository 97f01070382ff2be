"""How many fractional bits each map of an integer program gets, from what calibration images make of the float one. No torch.

Maps that are added to each other, or that only move values, share a number of bits, so that adding needs no shift: those are one
family. A family has as many bits as leave room for twice the largest value seen, and at most `MOST`.

A map that a depth wise op reads has `more` bits on top, shifted in by the op that makes it: products R(x, w) need |w| < 1, so
weights are stored as w / 2^e, and x has e bits more than the map made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from bcnn.program import ops
from bcnn.program.interpret import check_image, run_op
from bcnn.program.ops import Floats, Values
from bcnn.program.program import Program

MOST = 12
ROOM = 2.0  # times the largest value seen
MOST_MORE = 5
NEARLY = 0.999  # of the values: a limit that cuts off the rest costs less than a bit of all of them would
SIGMOID_BITS = 14  # of a map whose op ends with a sigmoid: 1.0 is 2^14
SIGMOID_FROM = 12  # the most before it: a table of steps of 1/16 needs four bits less


@dataclass(frozen=True)
class Ranges:
    """What was seen of one op's values: the largest."""

    largest: float = 0.0  # of all values, also those between its endings, up to a sigmoid if it has one
    behind: float = 0.0  # of all values behind it, 0 if it comes last
    made: float = 0.0  # of its map
    common: tuple[float, ...] = ()  # of nearly all values of its map, image by image
    channels: Floats | None = None  # of its map, per channel
    bent: tuple[float, ...] = ()  # of nearly all negative values that its PReLUs read

    def join(self, other: Ranges) -> Ranges:
        assert other.channels is not None
        channels = other.channels if self.channels is None else np.maximum(self.channels, other.channels)
        largest, behind, made = (max(a, b) for a, b in zip(self._numbers(), other._numbers(), strict=True))
        bent = tuple(map(max, self.bent or other.bent, other.bent))
        return Ranges(largest, behind, made, self.common + other.common, channels, bent)

    def _numbers(self) -> tuple[float, float, float]:
        return self.largest, self.behind, self.made


@dataclass(frozen=True)
class Formats:
    before: tuple[int, ...]  # fractional bits of an op's values before its sigmoid if it has one, else of all of them
    made: tuple[int, ...]  # of its map
    more: tuple[int, ...]  # of them, those that are shifted in last, for depth wise readers
    ranges: tuple[Ranges, ...]


@np.errstate(all="ignore")  # what overflows is inf or NaN, as in `run_op`
def calibrate(
    program: Program, images: Iterable[NDArray[np.uint8]], progress: Callable[[], None] = lambda: None
) -> list[Ranges]:
    """The ranges of every op over the images."""
    seen = [Ranges() for _ in program.ops]
    for image in images:
        check_image(program, image)
        maps: list[Values] = [image]
        made: list[Values] = []
        for index, op in enumerate(program.ops):
            largest = [0.0]  # then, of what is behind each sigmoid
            bent: list[float] = []
            after = getattr(op, "after", ())
            v = run_op(replace(op, after=()) if after else op, made or maps)  # type: ignore[type-var]
            wide = scales_features(op, program.shapes[index])
            for place, ending in enumerate(after):
                if place or not wide:
                    largest[-1] = max(largest[-1], _largest_before(ending, v))
                if isinstance(ending, ops.PReLU):
                    bent.append(max(nearly_all(-v), 0.0))
                v = ending.apply(v, made)
                if isinstance(ending, ops.Sigmoid):
                    largest.append(0.0)
            channels = np.abs(v).max(axis=(0, 1))
            peak = float(channels.max())
            if not after or not isinstance(after[-1], ops.Sigmoid):
                largest[-1] = max(largest[-1], peak)
            seen[index] = seen[index].join(
                Ranges(largest[0], max(largest[1:], default=0.0), peak, (nearly_all(np.abs(v)),), channels, tuple(bent))
            )
            made.append(v)
        progress()
    return seen


def _largest_before(ending: ops.Ending, v: Floats) -> float:
    """Of v and of what the ending makes on the way."""
    largest = float(np.abs(v).max())
    if isinstance(ending, ops.Affine) and ending.scale is not None:  # before its offset, too
        largest = max(largest, float(np.abs(v * ending.scale).max()))
    return largest


def nearly_all(v: Floats) -> float:
    """The least number that is no smaller than NEARLY all values."""
    at = int(np.ceil(NEARLY * v.size)) - 1
    return float(np.partition(v, at, axis=None)[at])


def bend_up(slope: Floats) -> int:
    """`up` of a FixedPReLU: 2^up is at least |slope - 1|."""
    largest = float(np.abs(slope.astype(np.float64) - 1).max())
    return max(0, int(np.ceil(np.log2(largest)))) if largest > 0 else 0


def gentle(slope: Floats, up: int) -> list[Floats]:
    """Slopes of FixedPReLUs of at most `up` that do the same one after the other. What is negative stays so until the last."""
    least, most = 1 - 2**up, 1 + 2**up
    last = np.clip(slope, least, most)
    factor = slope / np.where(last == 0, 1, last).astype(np.float64)  # 1 where nothing was cut off, else more
    factor = np.maximum(factor, 1)
    before = int(np.ceil(np.log(factor.max()) / np.log(most)))
    return [(factor ** (1 / before)).astype(np.float32) for _ in range(before)] + [last.astype(np.float32)]


def choose(program: Program, ranges: list[Ranges]) -> Formats:
    """The formats of all maps."""
    family = _families(program)
    bits = dict.fromkeys(family, SIGMOID_BITS)
    for index, op in enumerate(program.ops):
        sigmoids = _sigmoids(op)
        seen, most = (ranges[index].behind, SIGMOID_BITS) if sigmoids else (ranges[index].largest, MOST)
        most = min(most, SIGMOID_FROM) if sigmoids > 1 else most
        if seen > 0 or not sigmoids:  # 1.0 itself fits
            most = min(most, room(seen))
        bits[family[index]] = min(bits[family[index]], most)
    more = [0] * len(program.ops)
    for op in program.ops:
        if is_depthwise(op):
            more[op.source] = max(more[op.source], shrink(op))
    for index, op in enumerate(program.ops):  # only an op with endings can shift, and moved values keep their format
        if not hasattr(op, "after"):
            more[index] = 0
        if isinstance(op, (*MOVERS, ops.Pointwise, ops.GlobalAvgPool)):
            for source in op.maps_read():
                more[source] = 0
        more[index] = 0 if _sigmoids(op) else max(0, min(more[index], _fits(ranges[index]) - bits[family[index]]))
    made: list[int] = []
    before, moved = [], _moved(program)
    for index, op in enumerate(program.ops):
        own = bits[family[index]]
        if isinstance(op, ops.GlobalAvgPool) and index not in moved:
            own = max(made[op.source], min(MOST, room(ranges[index].made)))  # a mean is no larger than what it is of
        # Values beyond 2^15 saturate before a sigmoid, which is 0 or 1 for them.
        before.append(int(np.clip(room(ranges[index].largest), 0, SIGMOID_FROM)) if _sigmoids(op) else own)
        made.append(own + more[index])
    return Formats(tuple(before), tuple(made), tuple(more), tuple(ranges))


def room(largest: float) -> int:
    """The most fractional bits with which ROOM times a value still is one of 16 bits; from -15 to 15."""
    if not np.isfinite(largest):
        return -15
    if not largest > 0:
        return 15
    return int(np.clip(np.floor(np.log2(32767 / (ROOM * largest))), -15, 15))


def _fits(seen: Ranges) -> int:
    """The most fractional bits with which nearly all of the map fits 16 bits, for most images."""
    return room(float(np.median(seen.common))) + int(np.log2(ROOM))


def is_depthwise(op: ops.Op) -> TypeGuard[ops.Conv]:
    return isinstance(op, ops.Conv) and op.groups == op.reads == op.offset.size


def scales_features(op: ops.Op, shape: ops.Shape) -> TypeGuard[ops.Pointwise]:
    """One number a channel, scaled and moved: there sums of 32 bits cost nothing, and products may be large before they are moved."""
    first = op.after[0] if isinstance(op, ops.Pointwise) else None
    return (
        shape[:2] == (1, 1) and isinstance(first, ops.Affine) and first.scale is not None and first.offset is not None
    )


def shrink(op: ops.Conv) -> int:
    """e: the fewest halvings that make every weight of a depth wise op less than 1."""
    largest = float(np.abs(op.weight).max())
    return max(0, min(MOST_MORE, int(np.floor(np.log2(largest))) + 1 if largest > 0 else 0))


def _sigmoids(op: ops.Op) -> int:
    return sum(isinstance(ending, ops.Sigmoid) for ending in getattr(op, "after", ()))


def _last(op: ops.Op) -> tuple[ops.Ending, ...]:
    """Its endings behind a sigmoid, whose values have bits of their own; else all."""
    after: tuple[ops.Ending, ...] = getattr(op, "after", ())
    places = [place for place, ending in enumerate(after) if isinstance(ending, ops.Sigmoid)]
    return after[places[-1] + 1 :] if places else after


MOVERS = (ops.Concat, ops.Select, ops.Upsample, ops.MaxPool, ops.AvgPool, ops.ChannelAvg, ops.AbsMean)


def _families(program: Program) -> list[int]:
    """Of every map, the smallest index of a map in its family."""
    parent = list(range(len(program.ops)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    moved = _moved(program)
    for index, op in enumerate(program.ops):
        joined = [ending.source for ending in _last(op) if isinstance(ending, ops.Add)]
        if isinstance(op, MOVERS) or (isinstance(op, ops.GlobalAvgPool) and index in moved):
            joined += list(op.maps_read())
        elif isinstance(op, ops.Pointwise) and not any(isinstance(e, (ops.Affine, ops.Sigmoid)) for e in op.after):
            joined.append(op.source)
        for other in joined:
            low, high = sorted((root(index), root(other)))
            parent[high] = low
    return [root(index) for index in range(len(program.ops))]


def _moved(program: Program) -> set[int]:
    """Maps that an op moves as they are: a mean over all pixels, which may have bits of its own, has none then."""
    found = {source for op in program.ops if isinstance(op, MOVERS) for source in op.maps_read()}
    for index, op in reversed(list(enumerate(program.ops))):
        if index in found and isinstance(op, ops.GlobalAvgPool):
            found.add(op.source)
    return found
