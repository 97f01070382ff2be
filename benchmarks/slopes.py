"""What bounded slopes (`steps.NAME.slopes=bounded`) save in integers: the paper's network with slopes in [0, 2], just outside, and far outside.

    python -m benchmarks.slopes [--rounds 60]

Random parameters, one thread, AVX2 where it is there; the programs, which differ in nothing else, take turns in one process. "just outside" has the
same maps as "bounded", but every PReLU a clamp and a shift: what those two cost. "free" has larger maps, too, so other limits and formats.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from bcnn.base.machine import facts
from bcnn.bench.rivals import in_integers, job_of
from bcnn.bench.timing import interleave
from bcnn.engine import Engine, isas
from bcnn.nets.config import preset
from bcnn.program import ops
from bcnn.program.program import Program

RANGES = {"bounded": (0.0, 2.0), "just outside": (-0.01, 2.01), "free": (-1.96, 2.68)}  # the last: of trained networks


def with_slopes(program: Program, low: float, high: float) -> Program:
    """Every PReLU with random slopes, both ends among them."""
    rng = np.random.default_rng(0)

    def drawn(ending: ops.Ending) -> ops.Ending:
        if not isinstance(ending, ops.PReLU):
            return ending
        slope = rng.uniform(low, high, ending.slope.size).astype(np.float32)
        slope[:2] = low, high
        return ops.PReLU(slope)

    made = []
    for op in program.ops:
        after = getattr(op, "after", None)
        made.append(replace(op, after=tuple(map(drawn, after))) if after else op)
    return replace(program, ops=tuple(made))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    isa = "avx2" if any(one.name == "avx2" and one.supported for one in isas()) else None
    job = job_of(preset("imagenet"), 1)
    engines = {}
    for name, (low, high) in RANGES.items():
        integers = in_integers(replace(job, program=with_slopes(job.program, low, high))).program
        engines[name] = Engine(integers, isa, 1)
    for key, value in facts(threads=1).items():
        print(f"{key:9} {value}")
    images = job.image[None]
    least: dict[str, list[float]] = {}  # of every op, the fastest run

    def profiled(_: int) -> None:
        for name, engine in engines.items():
            costs = [cost.seconds * 1e3 for cost in engine.profile(job.image, repeats=5)]
            least[name] = [min(pair) for pair in zip(least.get(name, costs), costs, strict=True)]

    runs = {name: lambda engine=engine: engine.run(images) for name, engine in engines.items()}
    times = interleave(runs, given.rounds, profiled)
    for name, time in times.items():
        print(
            f"slopes {name:12} {engines[name].isa}: sum of the least of every op {sum(least[name]):.3f} ms, least processor time "
            f"{time.cpu:.3f} ms; bounded / this {sum(least['bounded']) / sum(least[name]):.3f}, {times['bounded'].cpu / time.cpu:.3f}"
        )


if __name__ == "__main__":
    main()
