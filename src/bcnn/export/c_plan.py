"""Which rows of which maps are in RAM at a time, for `--to c`. No torch.

A map is a ring of its last rows. The last op pulls: what it lacks is made first, row by row, down to the image, so that a row is made
as late as possible and nobody keeps more than his readers need. The device follows the same rule with the same order of needs
(device/pull.c), so what is counted here is what happens there.

A step makes one row. A mean over all pixels takes a row of its source in a step, and has its one row after the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bcnn.program import ops
from bcnn.program.ops import Op, Shape
from bcnn.program.program import Program


@dataclass(frozen=True)
class Read:
    """Step y reads rows y * mul // div + low to y * mul // div + high, the last one not among them, as far as they are on the map."""

    map: int
    low: int = 0
    high: int = 1
    mul: int = 1
    div: int = 1

    def rows(self, y: int, height: int) -> tuple[int, int]:
        first = y * self.mul // self.div
        low, high = (min(max(first + end, 0), height) for end in (self.low, self.high))
        return low, high


@dataclass(frozen=True)
class Plan:
    reads: tuple[tuple[Read, ...], ...]  # of every op, in the order in which it pulls them
    steps: tuple[int, ...]  # of every op that anybody needs; a constant has none
    slots: tuple[tuple[int, ...], ...]  # of every map: where the rows of its ring begin, in 16-bit numbers
    numbers: int  # of 16 bits, of all rings: rows that are never there at the same time share their place
    order: tuple[int, ...]  # the op of every step


def plan(program: Program) -> Plan:
    """The order of pulls that needs least memory, as far as changing it op by op finds it."""
    reads = [list(dict.fromkeys(_reads(op, program.shapes))) for op in program.ops]
    steps = _needed(program, reads)
    best = _Run(program, reads, steps)
    for own in reads:
        if len(own) < 2:
            continue
        own.reverse()
        other = _Run(program, reads, steps)
        if other.peak < best.peak:
            best = other
        else:
            own.reverse()
    slots, numbers = placed(best.lives, [shape[1] * shape[2] for shape in program.shapes])
    return Plan(tuple(map(tuple, reads)), steps, slots, numbers, tuple(best.order))


class _Run:
    """All steps for one image, and which rows live when: a bit for each step, in a whole number."""

    def __init__(self, program: Program, reads: Sequence[Sequence[Read]], steps: Sequence[int]) -> None:
        self.program, self.reads, self.steps = program, reads, steps
        self.heights = [shape[0] for shape in program.shapes]
        self.made = [0] * len(reads)
        self.order: list[int] = []
        self.rings = [0] * len(reads)
        self.readers: list[list[tuple[int, Read]]] = [[] for _ in reads]
        for reader, own in enumerate(reads):
            for read in own:
                self.readers[read.map].append((reader, read))
        self.times: dict[tuple[int, int], tuple[int, int]] = {}  # of map and row: the first and the last step that touches it
        last = len(reads) - 1
        while self.made[last] < steps[last]:
            self._pull(last)
        for y in range(self.heights[last]):
            if (last, y) in self.times:  # outputs stay to the end
                self.times[last, y] = self.times[last, y][0], len(self.order)
        self.peak = self._peak()

    def _pull(self, last: int) -> None:
        waiting = [last]
        while waiting:
            i = waiting[-1]
            missing = self._lacks(i)
            if missing is None:
                self._step(waiting.pop())
            else:
                waiting.append(missing)

    def _lacks(self, i: int) -> int | None:
        for read in self.reads[i]:
            op = self.program.ops[read.map]
            if not isinstance(op, ops.FixedConstant):
                there = complete(op, self.made[read.map], self.heights, read.map)
                if read.rows(self.made[i], self.heights[read.map])[1] > there:
                    return read.map
        return None

    def _step(self, i: int) -> None:
        now, y, op = len(self.order), self.made[i], self.program.ops[i]
        begin, end = touched(op, y, self.heights, i)
        self.rings[i] = max(self.rings[i], end - self._oldest(i))
        keys = [(i, row) for row in range(begin, end)]
        for read in self.reads[i]:
            if not isinstance(self.program.ops[read.map], ops.FixedConstant):
                keys += [(read.map, row) for row in range(*read.rows(y, self.heights[read.map]))]
        for key in keys:
            self.times[key] = self.times.get(key, (now, now))[0], now
        self.order.append(i)
        self.made[i] += 1

    def _oldest(self, i: int) -> int:
        """The first row of map i that somebody has yet to read, or that is not complete."""
        if i == len(self.made) - 1:
            return 0
        rows = [
            read.rows(self.made[r], self.heights[i])[0] for r, read in self.readers[i] if self.made[r] < self.steps[r]
        ]
        return min([*rows, complete(self.program.ops[i], self.made[i], self.heights, i)])

    def _peak(self) -> int:
        """16-bit numbers that live at the same time, at most."""
        change = [0] * (len(self.order) + 2)
        for (i, _), (first, final) in self.times.items():
            size = self.program.shapes[i][1] * self.program.shapes[i][2]
            change[first] += size
            change[final + 1] -= size
        return max(accumulate(change))

    @property
    def lives(self) -> list[list[int]]:
        """Of every row of every ring."""
        made = [[0] * ring for ring in self.rings]
        for (i, y), (first, final) in self.times.items():
            made[i][y % self.rings[i]] |= (1 << (final + 1)) - (1 << first)
        return made


def placed(lives: Sequence[Sequence[int]], sizes: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Where each row begins, the largest first, at the lowest place that nobody has who lives at the same time; and the end of all."""
    done: list[tuple[int, int, int]] = []  # begin, end, life
    at: list[list[int]] = [[] for _ in sizes]
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        for life in lives[i]:
            begin = 0
            for other_begin, other_end, other in sorted(done):
                if begin + sizes[i] <= other_begin:
                    break
                if other & life:
                    begin = max(begin, other_end)
            done.append((begin, begin + sizes[i], life))
            at[i].append(begin)
    return tuple(map(tuple, at)), max((end for _, end, _ in done), default=0)


def complete(op: Op, steps: int, heights: Sequence[int], index: int) -> int:
    """Rows that are complete after so many steps."""
    if isinstance(op, ops.FixedGlobalAvgPool):
        return int(steps == heights[op.source])
    return steps


def touched(op: Op, step: int, heights: Sequence[int], index: int) -> tuple[int, int]:
    """Rows that a step writes."""
    return (0, 1) if isinstance(op, ops.FixedGlobalAvgPool) else (step, step + 1)


def _needed(program: Program, reads: Sequence[Sequence[Read]]) -> tuple[int, ...]:
    """Steps of every op up to the last one that somebody needs."""
    shapes = program.shapes
    steps = [0] * len(shapes)
    steps[-1] = _all_steps(program.ops[-1], len(shapes) - 1, shapes)
    for i in range(len(shapes) - 1, 0, -1):
        if isinstance(program.ops[i], ops.FixedConstant):
            steps[i] = 0
        if not steps[i]:
            continue
        for read in reads[i]:
            rows = read.rows(steps[i] - 1, shapes[read.map][0])[1]
            if isinstance(program.ops[read.map], ops.FixedGlobalAvgPool):
                rows = _all_steps(program.ops[read.map], read.map, shapes) if rows else 0
            steps[read.map] = max(steps[read.map], rows)
    return tuple(steps)


def _all_steps(op: Op, index: int, shapes: Sequence[Shape]) -> int:
    if isinstance(op, ops.FixedConstant):
        return 0
    return shapes[op.source if isinstance(op, ops.FixedGlobalAvgPool) else index][0]


def _reads(op: Op, shapes: Sequence[Shape]) -> Iterator[Read]:
    """In the order in which they are pulled."""
    window = getattr(op, "window", None)
    if isinstance(op, ops.Upsample):
        yield Read(op.source, div=op.factor[0])
    elif isinstance(window, ops.Window):
        moves = [branch.shift[0] for branch in op.branches] if isinstance(op, ops.FixedBinaryConv) else [0]
        top = window.padding[0]
        source: int = op.source  # type: ignore[attr-defined]
        yield Read(source, min(moves) - top, max(moves) - top + window.extent(0), window.stride[0])
    else:
        own = op.sources if isinstance(op, ops.Concat) else [op.source] if hasattr(op, "source") else []
        yield from (Read(source) for source in own)
    for ending in getattr(op, "after", ()):
        for source in ending.maps_read():
            spread = isinstance(ending, ops.FixedGate) and shapes[source][0] == 1
            yield Read(source, mul=0 if spread else 1)
