"""The paper's network in integers beside itself in float32 and the int8 MobileNetV1s: one image, in turns, against our targets.

    python -m benchmarks.int16_vs_mobilenet                                          one thread
    python -m benchmarks.int16_vs_mobilenet --out benchmarks/results/fixed-zen4           writes .json and .txt
    python -m benchmarks.int16_vs_mobilenet --avx2                                   everyone with AVX2, on a processor that has more

Parameters are random: times do not depend on them. The converter calibrates on a few pictures. OpenVINO's
line "computes" names the kernels it took.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path

from benchmarks.only_avx2 import hold

from bcnn.bench.rival import Job, Rival
from bcnn.bench.rivals import ENGINE, INTEGERS, MAKERS, Contest, contest, engine, in_integers, integers, job_of
from bcnn.nets.config import preset

BINARY = "OpenVINO, BinaryConvolution"
MOBILENETS = ("ONNX Runtime, MobileNetV1 int8", "OpenVINO, MobileNetV1 int8")
TWO_BRANCHES, TWO_THREADS = f"{INTEGERS}, P=2", f"{INTEGERS}, 2 threads"
TARGETS = ((INTEGERS, 0.75), (TWO_BRANCHES, 1.3))  # of the fastest int8 MobileNetV1's time


def two_branches(job: Job) -> Rival:
    return engine(in_integers(job_of(preset("imagenet-p2"), job.threads)), name=TWO_BRANCHES)


def two_threads(job: Job) -> Rival:
    return engine(dataclasses.replace(in_integers(job), threads=2), name=TWO_THREADS)


def verdicts(result: Contest) -> str:
    """By the least processor time: on a shared machine, the nearest to what the code takes."""
    cpu = {row.name: row.times.cpu for row in result.rows}
    fastest = min((cpu[name] for name in MOBILENETS if name in cpu), default=None)
    if fastest is None:
        return "no int8 MobileNetV1 here to compare with\n"
    text = ""
    for name, limit in TARGETS:
        share = cpu[name] / fastest
        text += f"  {'reached' if share <= limit else 'not reached':11}  {name}: {share:.2f} of the fastest int8 MobileNetV1, at most {limit}\n"
    for what, ratio, least in (
        (f"{TWO_THREADS}, as many times as fast as one", result.ratio(INTEGERS, TWO_THREADS), 1.75),
        (f"{BINARY}, as many times as slow", result.ratio(BINARY, INTEGERS), 4.5),
    ):
        if ratio is not None:
            text += f"  {'reached' if ratio >= least else 'not reached':11}  {what}: {ratio:.2f}, at least {least}\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's network in integers against int8 MobileNetV1.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.txt")
    parser.add_argument("--avx2", action="store_true", help="ask everyone for AVX2")
    arguments = parser.parse_args()
    held = {"isa": hold()} if arguments.avx2 else {}
    os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is first imported, below
    makers = {ENGINE: engine, INTEGERS: integers, TWO_BRANCHES: two_branches, TWO_THREADS: two_threads}
    makers |= {name: MAKERS[name] for name in (*MOBILENETS, BINARY)}
    job = job_of(preset("imagenet"), 1)
    result = contest(job, arguments.rounds, makers, on_made=lambda name: print(f"checking {name}", file=sys.stderr))
    result = dataclasses.replace(result, facts=result.facts | held)
    text = result.text() + verdicts(result)
    print(text, end="")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.with_suffix(".json").write_text(result.json(), encoding="utf-8")
        arguments.out.with_suffix(".txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
