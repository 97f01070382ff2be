"""How many fractional bits each map of an integer program gets, from what calibration images make of the float one. No torch.

Maps that are added to each other, or that only move values, share a number of bits, so that adding needs no shift: those are one
family. A family has as many bits as leave room for twice the largest value seen, and at most `MAX_FRACTION_BITS`.

A map that a depth wise op reads has `more` bits on top, shifted in by the op that makes it: products R(x, w) need |w| < 1, so
weights are stored as w / 2^e, and x has e bits more than the map made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bcnn.program import ops
from bcnn.program.interpret import check_image, run_op
from bcnn.program.ops import Floats, Values
from bcnn.program.ops.conversion import Formats
from bcnn.program.program import Program

MAX_FRACTION_BITS = 12
RANGE_HEADROOM = 2.0  # times the largest value seen
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
    bent: tuple[float, ...] = ()  # by ending: of nearly all negative values that it bends

    def join(self, other: Ranges) -> Ranges:
        assert other.channels is not None
        channels = other.channels if self.channels is None else np.maximum(self.channels, other.channels)
        largest, behind, made = (max(a, b) for a, b in zip(self._numbers(), other._numbers(), strict=True))
        bent = tuple(map(max, self.bent or other.bent, other.bent))
        return Ranges(largest, behind, made, self.common + other.common, channels, bent)

    def _numbers(self) -> tuple[float, float, float]:
        return self.largest, self.behind, self.made


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
            v = run_op(replace(op, after=()) if op.after else op, made or maps)  # type: ignore[type-var]
            for place, ending in enumerate(op.after):
                if place or not op.sums_wide(program.shapes[index]):
                    largest[-1] = max(largest[-1], ending.largest(v))
                bent.append(max(nearly_all(-v), 0.0) if ending.BENDS else 0.0)
                v = ending.apply(v, made)
                if ending.RESTARTS:
                    largest.append(0.0)
            channels = np.abs(v).max(axis=(0, 1))
            peak = float(channels.max())
            if not op.after or not op.after[-1].RESTARTS:
                largest[-1] = max(largest[-1], peak)
            seen[index] = seen[index].join(
                Ranges(largest[0], max(largest[1:], default=0.0), peak, (nearly_all(np.abs(v)),), channels, tuple(bent))
            )
            made.append(v)
        progress()
    return seen


def nearly_all(v: Floats) -> float:
    """The least number that is no smaller than NEARLY all values."""
    at = int(np.ceil(NEARLY * v.size)) - 1
    return float(np.partition(v, at, axis=None)[at])


def choose(program: Program, ranges: list[Ranges]) -> Formats:
    """The formats of all maps."""
    family = _families(program)
    bits = dict.fromkeys(family, SIGMOID_BITS)
    for index, op in enumerate(program.ops):
        sigmoids = _sigmoids(op)
        seen, most = (ranges[index].behind, SIGMOID_BITS) if sigmoids else (ranges[index].largest, MAX_FRACTION_BITS)
        most = min(most, SIGMOID_FROM) if sigmoids > 1 else most
        if seen > 0 or not sigmoids:  # 1.0 itself fits
            most = min(most, room(seen))
        bits[family[index]] = min(bits[family[index]], most)
    more = [0] * len(program.ops)
    for op in program.ops:
        if op.depthwise:
            more[op.source] = max(more[op.source], op.shrink())  # type: ignore[attr-defined]
    for index, op in enumerate(program.ops):  # only an op with endings can shift, and moved values keep their format
        if not any(name == "after" for name, _, _ in op.fields()):
            more[index] = 0
        for source in () if op.WEIGHS else op.maps_read():
            more[source] = 0
        more[index] = 0 if _sigmoids(op) else max(0, min(more[index], _fits(ranges[index]) - bits[family[index]]))
    made: list[int] = []
    before, moved = [], _moved(program)
    for index, op in enumerate(program.ops):
        own = bits[family[index]]
        if op.MEANS and index not in moved:
            own = max(
                made[op.source], min(MAX_FRACTION_BITS, room(ranges[index].made))
            )  # a mean is no larger than what it is of
        # Values beyond 2^15 saturate before a sigmoid, which is 0 or 1 for them.
        before.append(int(np.clip(room(ranges[index].largest), 0, SIGMOID_FROM)) if _sigmoids(op) else own)
        made.append(own + more[index])
    channels, bent = zip(*((seen.channels, seen.bent) for seen in ranges), strict=True)
    return Formats(tuple(before), tuple(made), tuple(more), channels, bent)


def room(largest: float) -> int:
    """The most fractional bits with which RANGE_HEADROOM times a value still is one of 16 bits; from -15 to 15."""
    if not np.isfinite(largest):
        return -15
    if not largest > 0:
        return 15
    return int(np.clip(np.floor(np.log2(32767 / (RANGE_HEADROOM * largest))), -15, 15))


def _fits(seen: Ranges) -> int:
    """The most fractional bits with which nearly all of the map fits 16 bits, for most images."""
    return room(float(np.median(seen.common))) + int(np.log2(RANGE_HEADROOM))


def _sigmoids(op: ops.Op) -> int:
    return sum(ending.RESTARTS for ending in op.after)


def _last(op: ops.Op) -> tuple[ops.Ending, ...]:
    """Its endings behind a sigmoid, whose values have bits of their own; else all."""
    places = [place for place, ending in enumerate(op.after) if ending.RESTARTS]
    return op.after[places[-1] + 1 :] if places else op.after


def _families(program: Program) -> list[int]:
    """Of every map, the smallest index of a map in its family."""
    parent = list(range(len(program.ops)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    moved = _moved(program)
    for index, op in enumerate(program.ops):
        joined = [source for ending in _last(op) if ending.ADDS for source in ending.maps_read()]
        for other in (*joined, *(op.maps_read() if op.MEANS and index in moved else op.in_format())):
            low, high = sorted((root(index), root(other)))
            parent[high] = low
    return [root(index) for index in range(len(program.ops))]


def _moved(program: Program) -> set[int]:
    """Maps that an op moves as they are: a mean over all pixels, which may have bits of its own, has none then."""
    found = {source for op in program.ops if op.MOVES for source in op.maps_read()}
    for index, op in reversed(list(enumerate(program.ops))):
        if index in found and op.MEANS:
            found.add(op.source)
    return found
