"""Which rows of which maps are in RAM at a time, for `--to c`. No torch.

A map is a ring of its last rows. The last op pulls: what it lacks is made first, row by row, down to the image, so that a row is made
as late as possible and nobody keeps more than his readers need. The device follows the same rule with the same order of needs
(device/pull.c), so what is counted here is what happens there.

A step makes one row. A mean over all pixels takes a row of its source in a step, and has its one row after the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    reads: tuple[tuple[Read, ...], ...]  # of every op
    steps: tuple[int, ...]  # of every op that anybody needs; a constant has none
    rings: tuple[int, ...]  # rows in RAM
    at: tuple[int, ...]  # where a ring begins, in 16-bit numbers
    numbers: int  # of 16 bits, of all rings: those that are never there at the same time share their place
    order: tuple[int, ...]  # the op of every step


def plan(program: Program) -> Plan:
    shapes, last = program.shapes, len(program.ops) - 1
    reads = tuple(tuple(dict.fromkeys(_reads(op, shapes))) for op in program.ops)
    steps = _needed(program, reads)
    made, rings, order = [0] * (last + 1), [0] * (last + 1), list[int]()
    first, final = (
        [0] * (last + 1),
        [-1] * (last + 1),
    )  # times of the first step that makes a map, and of the last that reads it
    readers: list[list[tuple[int, Read]]] = [[] for _ in shapes]
    for reader, own in enumerate(reads):
        for read in own:
            readers[read.map].append((reader, read))

    def lacks(i: int) -> int | None:
        for read in reads[i]:
            if isinstance(program.ops[read.map], ops.FixedConstant):
                continue
            there = made[read.map]
            if isinstance(program.ops[read.map], ops.FixedGlobalAvgPool):
                there = int(there == steps[read.map])
            if read.rows(made[i], shapes[read.map][0])[1] > there:
                return read.map
        return None

    def oldest(i: int) -> int:
        """The first row of map i that somebody has yet to read."""
        rows = [read.rows(made[r], shapes[i][0])[0] for r, read in readers[i] if made[r] < steps[r]]
        return min([*rows, made[i]]) if i < last else 0

    while made[last] < steps[last]:
        waiting = [last]
        while waiting:
            i = waiting[-1]
            missing = lacks(i)
            if missing is not None:
                waiting.append(missing)
                continue
            whole = isinstance(program.ops[i], ops.FixedGlobalAvgPool)
            rings[i] = 1 if whole else max(rings[i], made[i] + 1 - oldest(i))
            first[i] = len(order) if made[i] == 0 else first[i]
            final[i] = max(final[i], len(order))
            for read in reads[i]:
                if len(range(*read.rows(made[i], shapes[read.map][0]))):
                    final[read.map] = len(order)
            order.append(i)
            made[i] += 1
            waiting.pop()
    final[last] = len(order)
    sizes = [rings[i] * shape[1] * shape[2] for i, shape in enumerate(shapes)]
    at = placed(sizes, list(zip(first, final, strict=True)))
    numbers = max(begin + size for begin, size in zip(at, sizes, strict=True))
    return Plan(reads, steps, tuple(rings), tuple(at), numbers, tuple(order))


def placed(sizes: Sequence[int], lives: Sequence[tuple[int, int]]) -> list[int]:
    """Where each begins, the largest first, at the lowest place that nobody has who lives at the same time."""
    at = [0] * len(sizes)
    done: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if not sizes[i]:
            continue
        taken = sorted(
            (at[j], at[j] + sizes[j]) for j in done if lives[j][0] <= lives[i][1] and lives[i][0] <= lives[j][1]
        )
        for begin, end in taken:
            if at[i] + sizes[i] <= begin:
                break
            at[i] = max(at[i], end)
        done.append(i)
    return at


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
