"""The project's own comparison: the paper's network, one image, this engine and its rivals in turns, against our targets.

    python -m bench.rivals                            one thread
    python -m bench.rivals --threads 2 --out bench/results/zen3-2threads

`--out NAME` writes NAME.json and NAME.txt. What is measured, and how it is checked, is `bcnn.bench`; here are the targets.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path

if "OMP_NUM_THREADS" not in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # before any library starts threads beside ours

from bcnn.bench import ops
from bcnn.bench.rival import Job, Rival, SkippedError
from bcnn.bench.rivals import ENGINE, MAKERS, Contest, contest, engine, job_of
from bcnn.bench.timing import supports
from bcnn.config import preset

TWO_THREADS, TWO_BRANCHES, AVX2 = f"{ENGINE}, 2 threads", f"{ENGINE}, P=2", f"{ENGINE}, avx2"


def two_threads(job: Job) -> Rival:
    if job.threads != 1:
        raise SkippedError("this is the comparison with two threads")
    if (os.cpu_count() or 1) < 2:
        raise SkippedError("this machine has one core")
    return engine(dataclasses.replace(job, threads=2), name=TWO_THREADS)


def two_branches(job: Job) -> Rival:
    return engine(job_of(preset("imagenet-p2"), job.threads), name=TWO_BRANCHES)


def avx2(job: Job) -> Rival:
    if not supports("avx512_vpopcntdq"):
        raise SkippedError("AVX2 is the best that this CPU has: no AVX-512 VPOPCNTDQ")
    return engine(job, isa="avx2", name=AVX2)


OURS = {TWO_THREADS: two_threads, TWO_BRANCHES: two_branches, AVX2: avx2}


@dataclass(frozen=True)
class Verdict:
    target: str
    verdict: str  # reached, not reached, not measurable here
    measured: str


def ratio(result: Contest, slow: str, fast: str) -> float | None:
    """min time of one over min time of the other."""
    a, b = result.times(slow), result.times(fast)
    return None if a is None or b is None else a.min / b.min


def at_least(target: str, value: float | None, limit: float) -> Verdict:
    if value is None:
        return Verdict(target, "not measurable here", "a contestant is missing")
    return Verdict(target, "reached" if value >= limit else "not reached", f"{value:.2f}")


def at_most(target: str, value: float | None, limit: float) -> Verdict:
    if value is None:
        return Verdict(target, "not measurable here", "a contestant is missing")
    return Verdict(target, "reached" if value <= limit else "not reached", f"{value:.2f}")


def least(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known, default=None)


def verdicts(result: Contest, late_share: float | None) -> list[Verdict]:
    to = functools.partial(ratio, result, fast=ENGINE)
    onnx = least([to("ONNX Runtime, float Conv"), to("ONNX Runtime, MatMulInteger")])
    mobilenet = least([to("ONNX Runtime, MobileNetV1 int8"), to("OpenVINO, MobileNetV1 int8")])
    openvino = at_least(
        "3.5x faster than OpenVINO's BinaryConvolution with bf16", to("OpenVINO, BinaryConvolution"), 3.5
    )
    if not (supports("avx512_bf16") or supports("amx_bf16")) and openvino.verdict != "not measurable here":
        openvino = dataclasses.replace(
            openvino, verdict="not measurable here", measured=f"{openvino.measured} in float32: this CPU has no bf16"
        )
    return [
        at_least("35x faster than torch eager", to("PyTorch, eager"), 35),
        at_least("20x faster than torch.compile", to("PyTorch, torch.compile"), 20),
        at_least("20x faster than ONNX Runtime, the faster of two forms", onnx, 20),
        openvino,
        at_most("within 1.35x of the fastest int8 MobileNetV1", None if mobilenet is None else 1 / mobilenet, 1.35),
        at_least("two threads 1.6x one thread", ratio(result, ENGINE, TWO_THREADS), 1.6),
        at_most("AVX2 within 2x of AVX-512", ratio(result, AVX2, ENGINE), 2),
        at_least("levels of 256 channels and up above 75 % of the xor + popcount peak", late_share, 0.75),
        at_most("P=2 at most 1.7x P=1", ratio(result, TWO_BRANCHES, ENGINE), 1.7),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="This engine against its rivals on the paper's network.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.txt, for example bench/results/zen3")
    arguments = parser.parse_args()
    job = job_of(preset("imagenet"), arguments.threads)
    result = contest(
        job, arguments.rounds, {**MAKERS, **OURS}, on_made=lambda name: print(f"checking {name}", file=sys.stderr)
    )
    profile = None
    if result.times(ENGINE):
        from bcnn.engine import Engine

        profile = ops.profile(Engine(job.program, threads=1), job.image)
    found = verdicts(result, profile and profile.late_gmacs / profile.peak)
    text = result.text() + "\n" + (profile.text() + "\n" if profile else "")
    text += "targets (ratios of min times)\n"
    text += "".join(f"  {v.verdict:19}  {v.target}: {v.measured}\n" for v in found)
    print(text, end="")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        more = {"ops": profile and dataclasses.asdict(profile), "targets": [dataclasses.asdict(v) for v in found]}
        arguments.out.with_suffix(".json").write_text(result.json(**more), encoding="utf-8")
        arguments.out.with_suffix(".txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
