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
SIGMOID_BITS = 14  # of a map whose op ends with a sigmoid: 1.0 is 2^14
SIGMOID_FROM = 12  # the most before it: a table of steps of 1/16 needs four bits less


@dataclass(frozen=True)
class Ranges:
    """What was seen of one op's values."""

    largest: float = 0.0  # of all values, also those between its endings
    made: float = 0.0  # of its map
    channels: Floats | None = None  # of its map, per channel

    def join(self, other: Ranges) -> Ranges:
        assert other.channels is not None
        channels = other.channels if self.channels is None else np.maximum(self.channels, other.channels)
        return Ranges(max(self.largest, other.largest), max(self.made, other.made), channels)


@dataclass(frozen=True)
class Formats:
    before: tuple[int, ...]  # fractional bits of an op's values before its sigmoid if it has one, else of all of them
    made: tuple[int, ...]  # of its map
    more: tuple[int, ...]  # of them, those that are shifted in last, for depth wise readers
    ranges: tuple[Ranges, ...]


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
            largest = 0.0
            after = getattr(op, "after", ())
            v = run_op(replace(op, after=()) if after else op, made or maps)  # type: ignore[type-var]
            for ending in after:
                largest = max(largest, float(np.abs(v).max()))
                v = ending.apply(v, made)
            channels = np.abs(v).max(axis=(0, 1))
            peak = float(channels.max())
            seen[index] = seen[index].join(Ranges(max(largest, peak), peak, channels))
            made.append(v)
        progress()
    return seen


def choose(program: Program, ranges: list[Ranges]) -> Formats:
    """The formats of all maps."""
    family = _families(program)
    bits = dict.fromkeys(family, SIGMOID_BITS)
    for index, op in enumerate(program.ops):
        if not _ends_in_sigmoid(op):
            bits[family[index]] = min(bits[family[index]], MOST, room(ranges[index].largest))
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
    made, before = [], []
    for index, op in enumerate(program.ops):
        own = bits[family[index]]
        if isinstance(op, ops.GlobalAvgPool):
            own = min(MOST, room(ranges[index].made))
        before.append(min(SIGMOID_FROM, room(ranges[index].largest)) if _ends_in_sigmoid(op) else own)
        made.append(own + more[index])
    return Formats(tuple(before), tuple(made), tuple(more), tuple(ranges))


def room(largest: float) -> int:
    """The most fractional bits with which ROOM times a value still is one of 16 bits; from -15 to 15."""
    if not largest > 0:
        return 15
    return int(np.clip(np.floor(np.log2(32767 / (ROOM * largest))), -15, 15))


def is_depthwise(op: ops.Op) -> TypeGuard[ops.Conv]:
    return isinstance(op, ops.Conv) and op.groups == op.reads == op.offset.size


def shrink(op: ops.Conv) -> int:
    """e: the fewest halvings that make every weight of a depth wise op less than 1."""
    largest = float(np.abs(op.weight).max())
    return max(0, min(MOST_MORE, int(np.floor(np.log2(largest))) + 1 if largest > 0 else 0))


def _ends_in_sigmoid(op: ops.Op) -> bool:
    return any(isinstance(ending, ops.Sigmoid) for ending in getattr(op, "after", ()))


MOVERS = (ops.Concat, ops.Select, ops.Upsample, ops.MaxPool, ops.AvgPool, ops.ChannelAvg, ops.AbsMean)


def _families(program: Program) -> list[int]:
    """Of every map, the smallest index of a map in its family."""
    parent = list(range(len(program.ops)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for index, op in enumerate(program.ops):
        joined = [ending.source for ending in getattr(op, "after", ()) if isinstance(ending, ops.Add)]
        if isinstance(op, MOVERS):
            joined += list(op.maps_read())
        elif isinstance(op, ops.Pointwise) and not any(isinstance(ending, ops.Affine) for ending in op.after):
            joined.append(op.source)
        for other in joined:
            low, high = sorted((root(index), root(other)))
            parent[high] = low
    return [root(index) for index in range(len(program.ops))]
