"""Interleaved timing. `base.machine.facts` has what belongs beside the numbers.

On a shared machine a single run measures the neighbours. So everything that is compared runs in turns, in one process, in
many short samples; the minimum says what the code can do, the median what it did. Processor time stands beside them: where it
is well below the minimum, the machine was never free for as long as one run takes, and long runs look worse than short ones.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """What the samples of one contestant come to, in milliseconds."""

    min: float
    median: float
    cpu: float  # least processor time, of all threads together
    samples: int

    @staticmethod
    def of(wall: list[float], cpu: list[float]) -> Times:
        return Times(min(wall) * 1e3, statistics.median(wall) * 1e3, min(cpu) * 1e3, len(wall))


def interleave(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    on_round: Callable[[int], None] = lambda done: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Times]:
    """Round robin, one call a turn. The call before the timed one brings that contestant's data back into the caches."""
    wall: dict[str, list[float]] = {name: [] for name in runs}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    for done in range(rounds):
        for name, run in runs.items():
            run()
            start_cpu, start = time.process_time(), clock()
            run()
            wall[name].append(clock() - start)
            cpu[name].append(time.process_time() - start_cpu)
        on_round(done + 1)
    return {name: Times.of(wall[name], cpu[name]) for name in runs}
