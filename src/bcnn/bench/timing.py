"""Interleaved timing, and the facts that belong beside a number: machine, instruction set, threads, versions, commit, date.

On a shared machine a single run measures the neighbours. So everything that is compared runs in turns, in one process, in
many short samples; the minimum says what the code can do, the median what it did. Processor time stands beside them: where it
is well below the minimum, the machine was never free for as long as one run takes, and long runs look worse than short ones.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


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


def cpu() -> str:
    """The processor's name, and the vector instructions that decide these comparisons."""
    name, flags = platform.processor() or platform.machine(), ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        fields = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        plain = {key.strip(): value.strip() for key, value in fields.items()}
        name = plain.get("model name", name)
        family, model = plain.get("cpu family"), plain.get("model")
        if family and model:
            name += f" (family {family} model {model})"
        flags = plain.get("flags", plain.get("Features", ""))
    known = (
        "avx2",
        "fma",
        "avx_vnni",
        "avx512f",
        "avx512_vpopcntdq",
        "avx512_vnni",
        "avx512_bf16",
        "amx_bf16",
        "asimd",
    )
    has = set(flags.split())
    return f"{name}; {' '.join(f for f in known if f in has) or 'no vector extensions known'}"


def supports(flag: str) -> bool:
    """Whether /proc/cpuinfo lists `flag`."""
    return flag in cpu().split("; ")[-1].split()


def commit() -> str:
    """The commit of the checkout this package runs from, "+" if files differ from it; "" for an installed package."""
    here = Path(__file__).resolve().parent
    try:

        def git(*args: str) -> str:
            done = subprocess.run(["git", *args], cwd=here, capture_output=True, text=True, check=True)
            return done.stdout.strip()

        git("ls-files", "--error-unmatch", Path(__file__).name)  # a checkout of something else holds us: not our commit
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _load() -> str:
    """Of the last minute, this benchmark included: above the number of cores, others were running too."""
    cores = os.cpu_count() or 1
    return f"{os.getloadavg()[0]:.1f} on {cores} cores" if hasattr(os, "getloadavg") else f"unknown on {cores} cores"


def facts(threads: int) -> dict[str, str]:
    """What stands above a table of times."""
    versions = []
    for package in ("bcnn", "numpy", "torch", "onnxruntime", "openvino"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cpu": cpu(),
        "threads": str(threads),
        "load": _load(),
        "versions": ", ".join(versions),
        "commit": commit() or "installed package",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
