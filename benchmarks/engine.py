"""Where this engine's time goes: threads, branches, instruction sets, batches, op classes and levels, loading. Checks, then times.

    python -m benchmarks.engine            the paper's network with random parameters
    python -m benchmarks.engine --rounds 300

Engines run in turns in one process. Op times are sums over an op's short steps of the fastest run of each: on a shared machine
that is what the code can do, where whole runs say what it got to do.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
from programs import of_config

from bcnn import _core
from bcnn.base.machine import facts
from bcnn.bench.timing import interleave
from bcnn.engine import Cost, Engine, isas
from bcnn.nets.config import preset
from bcnn.program.program import Program


def compare(programs: dict[str, Program], image: np.ndarray, rounds: int) -> None:
    names = [isa.name for isa in isas() if isa.supported]
    engines = {
        f"{network}, {isas_threads(names[0], t)}": Engine(p, names[0], t)
        for network, p in programs.items()
        for t in (1, 2)
    }
    engines |= {f"imagenet, {isas_threads(name, 1)}": Engine(programs["imagenet"], name, 1) for name in names[1:]}
    batch = np.repeat(image[None], 8, axis=0)
    runs = {
        name: lambda engine=engine: engine.run(image[None]) for name, engine in engines.items() if "scalar" not in name
    }
    two = engines[f"imagenet, {isas_threads(names[0], 2)}"]
    runs["imagenet, batch of 8, 2 threads"] = lambda: two.run(batch)
    expected = {network: Engine(p, names[-1], 1).run(image[None]) for network, p in programs.items()}
    for name, engine in engines.items():
        if not (engine.run(image[None]) == expected[name.split(",")[0]]).all():
            raise SystemExit(f"{name}: logits differ between instruction sets or threads")
    times = interleave(runs, rounds) | interleave(
        {name: lambda engine=engine: engine.run(image[None]) for name, engine in engines.items() if "scalar" in name},
        max(3, rounds // 20),
    )
    print(f"{'':34}{'min ms':>9}{'median':>9}{'cpu':>9}{'maps kB':>9}")
    for name, row in times.items():
        memory = f"{engines[name].peak_memory / 1e3:9.0f}" if name in engines else ""
        print(f"{name:34}{row.min:9.2f}{row.median:9.2f}{row.cpu:9.2f}{memory}")


def isas_threads(isa: str, threads: int) -> str:
    return f"{isa}, {threads} thread{'s' if threads > 1 else ''}"


def table(title: str, rows: dict[str, list[Cost]], peak: float) -> None:
    total = sum(cost.seconds for costs in rows.values() for cost in costs)
    print(f"\n{title:24}{'ms':>8}{'share':>8}{'binary GMAC/s':>15}{'of peak':>9}")
    for name, costs in rows.items():
        seconds, macs = sum(c.seconds for c in costs), sum(c.macs for c in costs)
        speed = f"{macs / seconds / 1e9:15.0f}{macs / seconds / 1e9 / peak:9.0%}" if macs else ""
        print(f"{name:24}{seconds * 1e3:8.3f}{seconds / total:8.1%}{speed}")
    print(f"{'sum':24}{total * 1e3:8.3f}")


def grouped(costs: Iterable[Cost], keys: Iterable[str]) -> dict[str, list[Cost]]:
    groups: dict[str, list[Cost]] = {}
    for cost, key in zip(costs, keys, strict=True):
        groups.setdefault(key, []).append(cost)
    return groups


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    for key, value in facts(threads=1).items():
        if key != "threads":
            print(f"{key:10}{value}")
    print()
    programs = {name: of_config(preset(name)) for name in ("imagenet", "imagenet-p2")}
    program = programs["imagenet"]
    image = np.random.default_rng(0).integers(0, 256, (*program.shapes[0][:2], 3), dtype=np.uint8)
    compare(programs, image, rounds)

    engine = Engine(program, threads=1)
    peak = max(_core.dot_peak(engine.isa) for _ in range(50 * rounds))
    costs = engine.profile(image, 2 * rounds)
    peak = max(peak, *(_core.dot_peak(engine.isa) for _ in range(50 * rounds)))
    table(f"op class, {engine.isa}", grouped(costs, (c.kind for c in costs)), peak)
    table(
        "level",
        grouped(costs, (f"{c.kind}, {shape[2]} at {shape[0]}" for c, shape in zip(costs, program.shapes, strict=True))),
        peak,
    )
    late = [c for c, shape in zip(costs, program.shapes, strict=True) if c.macs and shape[2] >= 256]
    speed = sum(c.macs for c in late) / sum(c.seconds for c in late) / 1e9
    popcount = max(_core.popcount_peak(engine.isa) for _ in range(50 * rounds))
    print(
        f"\nbinary convolutions of 256 channels and up: {speed:.0f} binary GMAC/s, {speed / peak:.0%} of the inner loop's peak,"
    )
    print(f"{speed / popcount:.0%} of the peak of xor, popcount and add in registers")
    for isa in (isa.name for isa in isas() if isa.supported):
        best = max(_core.dot_peak(isa) for _ in range(10 * rounds))
        popcount = max(_core.popcount_peak(isa) for _ in range(10 * rounds))
        print(f"{isa}: inner loop {best:.0f}, xor and popcount {popcount:.0f} binary GMAC/s")
    loads = []
    for _ in range(10):
        start = time.perf_counter()
        Engine(program, threads=1)
        loads.append(time.perf_counter() - start)
    print(f"program to engine: {min(loads) * 1e3:.1f} ms; weights as packed: {engine.weight_memory / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
