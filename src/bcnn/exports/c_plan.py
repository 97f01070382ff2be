"""Which rows of which maps are in RAM at a time, for `--to c`, of programs in integers and in floats. No torch.

The last op pulls: what it lacks is made first, row by row, down to the image, so that a row is made as late as possible and lives as
short as possible. A map may be one that is made as a whole before anybody reads it, if that is less. Every row has its place in RAM,
which it shares with rows that live before and after it. The device follows the same rule with the same order of needs
(device/pull.c), so what is counted here is what happens there.

A step makes one row. Means over all pixels, and depth wise filters with strides, take one row of their source in a step instead and
add it to the rows that it is part of: fewer rows are kept that way.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import TypeGuard

from bcnn.program import ops
from bcnn.program.program import Program

CONSTANTS = (ops.Constant, ops.FixedConstant)  # are in flash
GLOBAL_MEANS = (ops.GlobalAvgPool,)


@dataclass(frozen=True)
class Read:
    """Step y reads rows y * mul // div + low to y * mul // div + high, the last one not among them, as far as they are on the map."""

    map: int
    low: int = 0
    high: int = 1
    mul: int = 1
    div: int = 1
    whole: bool = False  # waits for all rows that there will be

    def rows(self, y: int, height: int) -> tuple[int, int]:
        first = y * self.mul // self.div
        low, high = (min(max(first + end, 0), height) for end in (self.low, self.high))
        return low, high

    def awaited(self, y: int, height: int) -> int:
        return height if self.whole else self.rows(y, height)[1]


@dataclass(frozen=True)
class Plan:
    reads: tuple[tuple[Read, ...], ...]  # of every op, in the order in which it pulls them
    steps: tuple[int, ...]  # of every op that anybody needs; a constant has none
    slots: tuple[
        tuple[int, ...], ...
    ]  # of every map: where its rows begin, in numbers of the program: 16-bit ones or floats
    numbers: int  # of all rows
    order: tuple[int, ...]  # the op of every step
    rooms: dict[int, tuple[int, tuple[int, ...]]]  # of ops that want memory for a step: the first of their wishes that
    # is there in each, and where


def plan(program: Program, wishes: Mapping[int, Sequence[int]] | None = None) -> Plan:
    """The order of pulls that needs least memory, as far as the best of its single changes, four times, finds it."""
    reads = [list(dict.fromkeys(_reads(program, index))) for index in range(len(program.ops))]
    steps = _needed(program, reads)
    best = _Run(program, reads, steps)
    for change in (_cuts, _turns, _cuts, _turns):
        tried = (_Run(program, changed, steps) for changed in change(program, best))
        best = min([best, *tried], key=lambda run: run.peak)
    slots, numbers = placed(best.times, [row_size(program, i) for i in range(len(reads))])
    rooms = {}
    for index, sizes in (wishes or {}).items():
        found = ((n, _room(program, best, slots, numbers, index, size)) for n, size in enumerate(sizes))
        if room := next((one for one in found if one[1]), None):
            rooms[index] = room
    return Plan(tuple(map(tuple, best.reads)), steps, slots, numbers, tuple(best.order), rooms)


def _room(
    program: Program, run: _Run, slots: Sequence[Sequence[int]], numbers: int, index: int, size: int
) -> tuple[int, ...]:
    """Where no row lives in each step of an op, at even places; empty if a step has none."""
    found = []
    for now in (step for step, i in enumerate(run.order) if i == index):
        live = [
            (slots[i][y], slots[i][y] + row_size(program, i)) for (i, y), (a, b) in run.times.items() if a <= now <= b
        ]
        place = 0
        for begin, end in sorted(live):
            if begin - place >= size:
                break
            place = max(place, end + end % 2)
        if place + size > numbers:
            return ()
        found.append(place)
    return tuple(found)


def _cuts(program: Program, run: _Run) -> Iterator[list[list[Read]]]:
    """Every map in turn that is less than all there is now is made as a whole before anybody reads it."""
    for cut in range(1, len(run.reads)):
        if prod(program.shapes[cut]) < run.peak:
            yield [[replace(read, whole=read.whole or read.map == cut) for read in own] for own in run.reads]


def _turns(program: Program, run: _Run) -> Iterator[list[list[Read]]]:
    """Every op in turn pulls what it reads in the other order."""
    for turned, one in enumerate(run.reads):
        if len(one) > 1:
            yield [list(own[::-1]) if index == turned else list(own) for index, own in enumerate(run.reads)]


class _Run:
    """All steps for one image, and which rows live when."""

    def __init__(self, program: Program, reads: Sequence[Sequence[Read]], steps: Sequence[int]) -> None:
        self.program, self.reads, self.steps = program, reads, steps
        self.heights = [shape[0] for shape in program.shapes]
        self.made = [0] * len(reads)
        self.order: list[int] = []
        self.times: dict[
            tuple[int, int], tuple[int, int]
        ] = {}  # of map and row: the first and the last step that has it
        last = len(reads) - 1
        while self.made[last] < steps[last]:
            self._pull(last)
        for key in [key for key in self.times if key[0] == last]:  # outputs stay to the end
            self.times[key] = self.times[key][0], len(self.order)
        self.peak = self._peak()

    def _pull(self, last: int) -> None:
        waiting = [last]
        while waiting:
            missing = self._lacks(waiting[-1])
            if missing is None:
                self._step(waiting.pop())
            else:
                waiting.append(missing)

    def _lacks(self, i: int) -> int | None:
        for read in self.reads[i]:
            if not isinstance(self.program.ops[read.map], CONSTANTS):
                there = complete(self.program, read.map, self.made[read.map])
                if min(read.awaited(self.made[i], self.heights[read.map]), most(self, read.map)) > there:
                    return read.map
        return None

    def _step(self, i: int) -> None:
        now, step = len(self.order), self.made[i]
        keys = [(i, row) for row in range(*touched(self.program, i, step))]
        for read in self.reads[i]:
            if not isinstance(self.program.ops[read.map], CONSTANTS):
                keys += [(read.map, row) for row in range(*read.rows(step, self.heights[read.map]))]
        for key in keys:
            self.times[key] = self.times.get(key, (now, now))[0], now
        self.order.append(i)
        self.made[i] += 1

    def _peak(self) -> int:
        """Numbers that live at the same time, at most."""
        change = [0] * (len(self.order) + 2)
        for (i, _), (first, final) in self.times.items():
            size = row_size(self.program, i)
            change[first] += size
            change[final + 1] -= size
        return max(accumulate(change))


def row_size(program: Program, index: int) -> int:
    """In numbers of the program; a sum of 32 bits is two of 16."""
    _, width, channels = program.shapes[index]
    return width * channels * (2 if program.ops[index].MEANS and program.numbers == "int16" else 1)


def most(run: _Run, i: int) -> int:
    """Rows of map i that are ever complete: no more than those that somebody needs are made."""
    return complete(run.program, i, run.steps[i])


def placed(
    times: Mapping[tuple[int, int], tuple[int, int]], sizes: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Where each row begins, at the lowest place that nobody has who lives at the same time, and the end of all: the better of
    the largest first and the oldest first."""
    orders: list[Callable[[tuple[int, int]], tuple[int, ...]]] = [
        lambda key: (-sizes[key[0]], *times[key]),
        lambda key: (*times[key], -sizes[key[0]]),
        lambda key: (times[key][0] - times[key][1], -sizes[key[0]]),
    ]
    found = [_placed(sorted(times, key=order), times, sizes) for order in orders]
    at, end = min(found, key=lambda one: one[1])
    rows = [max((row + 1 for i, row in times if i == own), default=0) for own in range(len(sizes))]
    return tuple(tuple(at.get((i, row), 0) for row in range(count)) for i, count in enumerate(rows)), end


def _placed(
    keys: Sequence[tuple[int, int]], times: Mapping[tuple[int, int], tuple[int, int]], sizes: Sequence[int]
) -> tuple[dict[tuple[int, int], int], int]:
    done: list[tuple[int, int, int, int]] = []  # begin, end, first and last time; sorted
    at = {}
    for key in keys:
        (first, final), size, begin = times[key], sizes[key[0]], 0
        for other_begin, other_end, other_first, other_final in done:
            if begin + size <= other_begin:
                break
            if other_first <= final and first <= other_final and other_end > begin:
                begin = other_end
        insort(done, (begin, begin + size, first, final))
        at[key] = begin
    return at, max((end for _, end, _, _ in done), default=0)


# --- steps and rows ---------------------------------------------------------------------------------------------------


def depthwise(op: ops.Op) -> TypeGuard[ops.FixedDepthwise | ops.Conv]:
    return isinstance(op, ops.FixedDepthwise) or (isinstance(op, ops.Conv) and op.groups == op.reads == op.offset.size)


def by_source(program: Program, index: int) -> bool:
    """Whether an op takes a row of its source in a step."""
    op = program.ops[index]
    if isinstance(op, GLOBAL_MEANS):
        return True
    if not depthwise(op) or any(True for ending in op.after for _ in ending.maps_read()):
        return False
    height, rows = program.shapes[op.source][0], program.shapes[index][0]
    kernel, stride, top = op.window.kernel[0], op.window.stride[0], op.window.padding[0]
    touching = (
        top < kernel and (rows - 1) * stride - top < height
    )  # a row without any of the source would never be begun
    return kernel > 1 and stride > 1 and op.window.dilation[0] == 1 and touching


def complete(program: Program, index: int, steps: int) -> int:
    """Rows that are complete after so many steps."""
    op, rows = program.ops[index], program.shapes[index][0]
    if not by_source(program, index):
        return steps
    if steps >= program.shapes[op.source][0]:
        return rows
    if not depthwise(op):
        return 0
    return min(max((steps + op.window.padding[0] - op.window.kernel[0]) // op.window.stride[0] + 1, 0), rows)


def touched(program: Program, index: int, step: int) -> tuple[int, int]:
    """Rows that a step writes, from and up to."""
    op, rows = program.ops[index], program.shapes[index][0]
    if not by_source(program, index):
        return step, step + 1
    if not depthwise(op):
        return 0, 1
    at, stride = step + op.window.padding[0], op.window.stride[0]
    begin, end = -((op.window.kernel[0] - 1 - at) // stride), at // stride + 1
    return min(max(begin, 0), rows), min(max(end, 0), rows)


def _steps(program: Program, index: int, rows: int) -> int:
    """That make so many rows."""
    op = program.ops[index]
    if isinstance(op, CONSTANTS) or not rows:
        return 0
    if not by_source(program, index):
        return rows
    height = program.shapes[op.source][0]
    return next(steps for steps in range(1, height + 1) if complete(program, index, steps) >= rows)


def _needed(program: Program, reads: Sequence[Sequence[Read]]) -> tuple[int, ...]:
    """Steps of every op, up to the last one that somebody needs."""
    shapes = program.shapes
    rows, steps = [0] * len(shapes), [0] * len(shapes)
    rows[-1] = shapes[-1][0]
    for i in range(len(shapes) - 1, -1, -1):
        steps[i] = _steps(program, i, rows[i])
        for read in reads[i] if steps[i] else ():
            rows[read.map] = max(rows[read.map], read.rows(steps[i] - 1, shapes[read.map][0])[1])
    return tuple(steps)


def _reads(program: Program, index: int) -> Iterator[Read]:
    op, shapes = program.ops[index], program.shapes
    window = op.window
    if isinstance(op, ops.Upsample):
        yield Read(op.source, div=op.factor[0])
    elif isinstance(window, ops.Window) and not by_source(program, index):
        moves = (
            [branch.shift[0] for branch in op.branches]
            if isinstance(op, (ops.BinaryConv, ops.FixedBinaryConv))
            else [0]
        )
        top = window.padding[0]
        source: int = op.source
        yield Read(source, min(moves) - top, max(moves) - top + window.extent(0), window.stride[0])
    else:
        own = op.sources if isinstance(op, ops.Concat) else [op.source] if hasattr(op, "source") else []
        yield from (Read(source) for source in own)
    for ending in op.after:
        for source in ending.maps_read():
            spread = isinstance(ending, (ops.Gate, ops.FixedGate)) and shapes[source][0] == 1
            yield Read(source, mul=0 if spread else 1)
