"""The project's own comparison: the paper's network, one image, this engine and its rivals in turns, against our targets.

    python -m benchmarks.rivals                            one thread
    python -m benchmarks.rivals --threads 2 --out benchmarks/results/zen3-2threads

`--out NAME` writes NAME.json and NAME.txt. How each is built, checked and timed is `bcnn.bench`; here are the targets.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bcnn.base.machine import cpu_flags
from bcnn.bench import ops
from bcnn.bench.rival import Job, Rival, SkippedError
from bcnn.bench.rivals import ENGINE, MAKERS, Contest, contest, engine, job_of
from bcnn.nets.config import preset
from bcnn.packed import packfile

TWO_THREADS, TWO_BRANCHES, AVX2 = f"{ENGINE}, 2 threads", f"{ENGINE}, P=2", f"{ENGINE}, avx2"


def two_threads(job: Job) -> Rival:
    if job.threads != 1:
        raise SkippedError("this is the comparison with more threads")
    if (os.cpu_count() or 1) < 2:
        raise SkippedError("this machine has one core")
    return engine(dataclasses.replace(job, threads=2), name=TWO_THREADS)


def two_branches(job: Job) -> Rival:
    rival = engine(job_of(preset("imagenet-p2"), job.threads), name=TWO_BRANCHES)
    return dataclasses.replace(rival, computes=rival.computes.replace("the same network", "the network with P=2"))


def avx2(job: Job) -> Rival:
    if "avx512_vpopcntdq" not in cpu_flags():
        raise SkippedError("AVX2 is the best that this CPU has: no AVX-512 VPOPCNTDQ")
    return engine(job, isa="avx2", name=AVX2)


OURS = {TWO_THREADS: two_threads, TWO_BRANCHES: two_branches, AVX2: avx2}


def start_up(job: Job, repeats: int = 5) -> tuple[float, float]:
    """Milliseconds from packed file to engine, and seconds from no process at all to the first logits."""
    from bcnn.engine import Engine

    first = "import sys, numpy as np; from bcnn.packed import packfile; from bcnn.engine import Engine; e = Engine(packfile.read(sys.argv[1]))"
    first += "; e.run(np.zeros((1, *e.program.shapes[0][:2], 3), np.uint8))"
    loads, starts = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bcnn"
        packfile.save(job.program, path)
        for _ in range(repeats):
            begin = time.perf_counter()
            Engine(packfile.read(path), threads=job.threads)
            loads.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", first, str(path)], check=True)
            starts.append(time.perf_counter() - begin)
    return min(loads) * 1e3, min(starts)


# --- targets --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    target: str
    verdict: str  # reached, not reached, not measurable here
    measured: str


def at_least(target: str, value: float | None, limit: float, sign: int = 1) -> Verdict:
    if value is None:
        return Verdict(target, "not measurable here", "something it needs was skipped")
    return Verdict(target, "reached" if sign * value >= sign * limit else "not reached", f"{value:.2f}")


def at_most(target: str, value: float | None, limit: float) -> Verdict:
    return at_least(target, value, limit, sign=-1)


def verdicts(
    result: Contest, profile: ops.Profile | None, load_ms: float | None, start_s: float | None
) -> list[Verdict]:
    def over_ours(*rivals: str) -> float | None:
        """Of the fastest of `rivals`."""
        known = [value for value in (result.ratio(rival, ENGINE) for rival in rivals) if value is not None]
        return min(known, default=None)

    mobilenet = over_ours("ONNX Runtime, MobileNetV1 int8", "OpenVINO, MobileNetV1 int8")
    binary = at_least(
        "3.5x faster than OpenVINO's BinaryConvolution, bf16", over_ours("OpenVINO, BinaryConvolution"), 3.5
    )
    if binary.verdict != "not measurable here" and not {"avx512_bf16", "amx_bf16"} & {*cpu_flags()}:
        in_float = f"{binary.measured} in float32, {binary.verdict}; this CPU has no bf16"
        binary = Verdict(binary.target, "not measurable here", in_float)
    return [
        at_least("35x faster than torch eager", over_ours("PyTorch, eager"), 35),
        at_least("20x faster than torch.compile", over_ours("PyTorch, torch.compile"), 20),
        at_least(
            "20x faster than ONNX Runtime, the faster of its two forms",
            over_ours("ONNX Runtime, float Conv", "ONNX Runtime, MatMulInteger"),
            20,
        ),
        binary,
        at_most("within 1.35x of the fastest int8 MobileNetV1", mobilenet and 1 / mobilenet, 1.35),
        at_least("two threads 1.6x one thread", result.ratio(ENGINE, TWO_THREADS), 1.6),
        at_most("AVX2 within 2x of AVX-512", result.ratio(AVX2, ENGINE), 2),
        at_least(
            "levels of 256 channels and up above 0.75 of the peak of xor and popcount",
            None if profile is None else profile.late_gmacs / profile.popcount_peak,
            0.75,
        ),
        at_most("P=2 at most 1.7x P=1", result.ratio(TWO_BRANCHES, ENGINE), 1.7),
        at_most("a packed file loads in 20 ms", load_ms, 20),
        at_most("0.5 s from a cold start to the first logits", start_s, 0.5),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="This engine against its rivals on the paper's network.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.txt, for example benchmarks/results/zen3")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # torch reads it when it is first imported, below
    job = job_of(preset("imagenet"), arguments.threads)
    result = contest(
        job, arguments.rounds, {**MAKERS, **OURS}, on_made=lambda name: print(f"checking {name}", file=sys.stderr)
    )
    profile = load_ms = start_s = None
    if result.row(ENGINE):
        from bcnn.engine import Engine

        profile = ops.profile(Engine(job.program, threads=1), job.image)
        load_ms, start_s = start_up(job)
    found = verdicts(result, profile, load_ms, start_s)
    text = result.text()
    text += f"\none thread, op by op\n{profile.text()}" if profile else ""
    text += "\ntargets, from the times of this run\n"
    text += "".join(f"  {v.verdict:19}  {v.target}: {v.measured}\n" for v in found)
    print(text, end="")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        more = {"ops": profile and dataclasses.asdict(profile), "targets": [dataclasses.asdict(v) for v in found]}
        arguments.out.with_suffix(".json").write_text(result.json(**more), encoding="utf-8")
        arguments.out.with_suffix(".txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
