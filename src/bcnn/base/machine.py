"""The facts that belong beside a number: processor, threads, load, versions, commit, date."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

from bcnn.base.provenance import commit, versions

# The vector instructions that decide our comparisons, as Linux calls them.
KNOWN_FLAGS = (
    *("avx2", "fma", "avx_vnni", "avx512f", "avx512_vpopcntdq", "avx512_vnni", "avx512_bf16", "amx_bf16"),
    "asimd",
)


def cpu_name() -> str:
    """The processor's name, with family and model where the system tells them."""
    fields = _cpu_fields()
    name = fields.get("model name") or platform.processor() or platform.machine()
    family, model = fields.get("cpu family"), fields.get("model")
    return f"{name} (family {family} model {model})" if family and model else name


def cpu_flags() -> tuple[str, ...]:
    """Those of `KNOWN_FLAGS` that the processor has."""
    fields = _cpu_fields()
    has = set(fields.get("flags", fields.get("Features", "")).split())
    return tuple(flag for flag in KNOWN_FLAGS if flag in has)


def cpu() -> str:
    """Name and flags of the processor."""
    return f"{cpu_name()}; {' '.join(cpu_flags()) or 'no vector extensions known'}"


def _cpu_fields() -> dict[str, str]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon}


def utc(form: str = "%Y-%m-%d") -> str:
    """The time now, as a date unless `form` asks for more."""
    return datetime.datetime.now(datetime.UTC).strftime(form)


def _load() -> str:
    """Of the last minute, this program included: above the number of cores, others were running too."""
    cores = os.cpu_count() or 1
    return f"{os.getloadavg()[0]:.1f} on {cores} cores" if hasattr(os, "getloadavg") else f"unknown on {cores} cores"


def facts(threads: int) -> dict[str, str]:
    """What stands above a table of times."""
    return {
        "cpu": cpu(),
        "threads": str(threads),
        "load": _load(),
        "versions": ", ".join(
            f"{name} {version}" for name, version in versions("numpy", "torch", "onnxruntime", "openvino").items()
        ),
        "commit": commit(digits=9) or "installed package",
        "date": utc("%Y-%m-%d %H:%M UTC"),
    }
