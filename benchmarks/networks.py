"""Every network of the field at 224 x 224, one image, one thread: this engine in both kinds of numbers against ONNX Runtime in float, and
Larq where it has one.

    python -m benchmarks.networks --out benchmarks/results/networks-zen4-avx2.json                      all of them
    python -m benchmarks.networks --out ... --larq ENVIRONMENT/bin/python reactnet-a          these again; Larq in its own environment
    python -m benchmarks.networks --out ... --avx2                                            this engine and ONNX Runtime with AVX2 alone

Each network's contestants are checked, then take turns; networks follow one another, since together they would not fit into
memory. The paper's network in this engine takes part in every network's turns: its time says how busy the machine was. Larq runs in
`larq_server.py`, a process of its own, and times itself. A busy machine stretches wall times; processor times are compared.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.only_avx2 import hold

from bcnn.base.files import write_atomic
from bcnn.base.machine import facts
from bcnn.bench.rival import Job
from bcnn.bench.rivals import ENGINE, INTEGERS, MAKERS, job_of, make
from bcnn.bench.timing import Times
from bcnn.nets.network_spec import resolve
from bcnn.nets.registry import ARCHITECTURES

FLOAT, LARQ, YARDSTICK = "ONNX Runtime, float Conv", "Larq Compute Engine", "imagenet"
NETWORKS = tuple(
    name for name, each in ARCHITECTURES.items() if each.size == (224, 224) and name not in ("imagenet-p2", YARDSTICK)
)
ALL = (YARDSTICK, "imagenet-p2", *NETWORKS)
WITH_LARQ = ("reactnet-a", "birealnet-18")
MANY_MACS = (
    20e9  # of binary MACs: checked by logits alone, and in float left out, which would take minutes and gigabytes
)
Sample = Callable[[], tuple[float, float]]  # runs once, returns wall and processor seconds


class Larq:
    """The other process: a line asks, a line answers."""

    def __init__(self, python: Path) -> None:
        server = Path(__file__).with_name("larq_server.py")
        self.process = subprocess.Popen(
            [python, server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, **question: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("Larq's process has ended; run benchmarks/larq_server.py by hand to see why")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def sample(self, network: str) -> tuple[float, float]:
        answer = self.ask(run=network)
        return answer["wall"], answer["cpu"]

    def __enter__(self) -> Larq:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def timed(run: Callable[[], object]) -> tuple[float, float]:
    run()  # brings its data back into the caches
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def turns(samples: dict[str, Sample], rounds: int) -> dict[str, Times]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in samples}
    for _ in range(rounds):
        for name, sample in samples.items():
            taken[name].append(sample())
    return {name: Times.of([wall for wall, _ in some], [cpu for _, cpu in some]) for name, some in taken.items()}


def measure(name: str, yardstick: Callable[[], object], larq: Larq | None, rounds: int) -> dict[str, Any]:
    job = job_of(resolve(name))
    makers = {maker: MAKERS[maker] for maker in (ENGINE, INTEGERS, FLOAT)}
    skipped = {}
    if binary_macs(job) > MANY_MACS:
        del makers[FLOAT]
        skipped[FLOAT] = f"over {MANY_MACS / 1e9:.0f} G MACs in float"
    rivals, missing = make(job, makers, lambda maker: print(f"checking {name}: {maker}", file=sys.stderr, flush=True))
    checked = {rival.name: rival.checked for rival in rivals}
    samples: dict[str, Sample] = {rival.name: lambda run=rival.run: timed(run) for rival in rivals}
    if larq is not None and name in WITH_LARQ:
        checked[LARQ] = larq.ask(network=name)["checked"]
        samples[LARQ] = lambda: larq.sample(name)
    samples[YARDSTICK] = lambda: timed(yardstick)
    times = turns(samples, rounds)
    profile = classes(job)
    return {
        "times": {maker: asdict(some) for maker, some in times.items()},
        "checked": checked,
        "skipped": skipped | missing,
        "classes": profile,
        "facts": facts(threads=1),
    }


def binary_macs(job: Job) -> int:
    return sum(counts.binary_macs for counts in job.program.counts())


def classes(job: Job) -> dict[str, float]:
    """Milliseconds of each class of ops, from a profile of the engine."""
    from bcnn.bench.ops import op_classes
    from bcnn.engine import Engine

    costs = Engine(job.program, threads=1).profile(job.image, repeats=5)
    return {row.name: round(row.ms, 3) for row in op_classes(costs)}


def table(results: dict[str, dict[str, Any]]) -> str:
    lines = [
        f"{'network':18} {'engine ms':>10} {'ORT float':>10} {'x':>6} {'Larq':>8} {'x':>6} {'int16 ms':>9} {'x ORT':>6} {'x Larq':>6}"
        "   processor time, least"
    ]
    for name, result in results.items():
        cpu = {maker: times["cpu"] for maker, times in result["times"].items()}
        ours = cpu.get(ENGINE, float("nan"))
        cells = [f"{ours:10.2f}"]
        for other, wide in ((FLOAT, 10), (LARQ, 8)):
            known = other in cpu
            cells += [
                f"{cpu[other]:{wide}.1f}" if known else " " * wide,
                f"{cpu[other] / ours:6.1f}" if known else " " * 6,
            ]
        if (integers := cpu.get(INTEGERS)) is not None:
            cells.append(f"{integers:9.2f}")
            cells += [f"{cpu[other] / integers:6.1f}" if other in cpu else " " * 6 for other in (FLOAT, LARQ)]
        lines.append(f"{name:18} {' '.join(cells)}".rstrip())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all that have no result yet, if none is given")
    parser.add_argument("--out", type=Path, required=True, help="results; networks that are not named stay as they are")
    parser.add_argument("--larq", type=Path, help="the Python of an environment with larq-compute-engine")
    parser.add_argument("--rounds", type=int, default=10, help="turns: each contestant is timed once a turn")
    parser.add_argument("--avx2", action="store_true", help="hold this engine and ONNX Runtime to AVX2")
    arguments = parser.parse_args()
    held = {"isa": f"{hold()} but Larq Compute Engine"} if arguments.avx2 else {}
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is first imported
    stored = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}

    from bcnn.bench.rivals import engine

    yardstick = engine(job_of(resolve(YARDSTICK))).run
    larq = Larq(arguments.larq) if arguments.larq else None
    for name in arguments.names or [name for name in ALL if name not in stored]:
        stored[name] = measure(name, yardstick, larq, arguments.rounds)
        stored[name]["facts"] |= held
        ordered = {name: stored[name] for name in ALL if name in stored}
        write_atomic(arguments.out, (json.dumps(ordered, indent=1) + "\n").encode())
        print(table({name: stored[name]}), file=sys.stderr, flush=True)
        gc.collect()
    if larq is not None:
        with larq:
            pass
    print(table(stored))


if __name__ == "__main__":
    main()
