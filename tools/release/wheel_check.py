"""Does a wheel work where there is nothing but Python? Installed in a clean place and run: `models`, `predict`, `verify`.

On a machine of its own kind a wheel is installed in a new virtual environment, and no folder with a compiler is on PATH. One for
ARM64 runs under qemu-user, on Debian's ARM64 Python, whose packages are unpacked below build/arm64 and not installed. Once, as root:

    dpkg --add-architecture arm64 && apt-get update && apt-get install qemu-user-static
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARM64 = ROOT / "build" / "arm64"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
# An interpreter, what it is linked with, and what the wheels of NumPy and Pillow expect of a system.
PACKAGES = (
    f"python{VERSION}-minimal",
    f"libpython{VERSION}-minimal",
    f"libpython{VERSION}-stdlib",
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libssl3", "libffi8", "liblzma5", "libbz2-1.0"),
)
# pip takes a wheel for a platform that it is told by name only: those of the dependencies, oldest glibc first.
PLATFORMS = [f"--platform=manylinux_2_{glibc}_aarch64" for glibc in (17, 24, 26, 27, 28)] + [
    "--platform=manylinux2014_aarch64"
]


def check(wheel: Path, machine: str, work: Path) -> str:
    """A sentence about what was run; `SystemExit` if it failed."""
    prepare = _native if machine == platform.machine() else _arm64
    found = prepare(wheel, work)
    if isinstance(found, str):
        return f"{wheel.name}: not run, {found}"
    command, environment = found
    photo = work / "photo.png"
    lines = []
    _run(
        [*command, "-c", f"from PIL import Image; Image.new('RGB', (40, 30), 'red').save({str(photo)!r})"], environment
    )
    for words in (["models"], ["predict", str(photo), "-m", "digits"], ["verify", "digits"], ["verify", "imagenette"]):
        lines.append(_run([*command, "-m", "bcnn", *words], environment))
    checks = [line for text in lines[2:] for line in text.splitlines()]
    failed = [line for line in checks if not line.startswith("pass")]
    if failed:
        raise SystemExit(f"wheels: {wheel.name} does not verify: {failed[0]}")
    isas = sorted({line.split()[2] for line in checks if line.startswith("pass  engine")})
    return f"{wheel.name}: models, predict and verify run; {len(checks)} checks pass, engines {', '.join(isas)}"


def _native(wheel: Path, work: Path) -> tuple[list[str], dict[str, str]]:
    venv = work / "venv"
    _run([sys.executable, "-m", "venv", str(venv)], dict(os.environ))
    _run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel)], dict(os.environ))
    return [str(venv / "bin" / "python")], _bare(venv / "bin")


def _arm64(wheel: Path, work: Path) -> tuple[list[str], dict[str, str]] | str:
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if qemu is None:
        return "qemu-user is missing: apt-get install qemu-user-static"
    root = ARM64 / "root"
    python = root / "usr" / "bin" / f"python{VERSION}"
    if not python.exists():
        packages = ARM64 / "packages"
        packages.mkdir(parents=True, exist_ok=True)
        names = [f"{name}:arm64" for name in PACKAGES]
        if subprocess.run(["apt-get", "download", *names], cwd=packages, capture_output=True, check=False).returncode:
            return (
                f"Debian's ARM64 packages of Python {VERSION} are not to be had here: see tools/release/wheel_check.py"
            )
        for package in packages.glob("*.deb"):
            _run(["dpkg-deb", "-x", str(package), str(root)], dict(os.environ))
    site = work / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), "--only-binary=:all:"]
    _run([*pip, f"--python-version={VERSION}", *PLATFORMS, str(wheel)], dict(os.environ))
    return [qemu, "-L", str(root), str(python)], {**_bare(site / "bin"), "PYTHONPATH": str(site)}


def _bare(path: Path) -> dict[str, str]:
    """No compiler, no package but the installed ones."""
    return {"PATH": str(path), "COLUMNS": "200", "PYTHONNOUSERSITE": "1", "LANG": "C.UTF-8"}


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, cwd=ROOT / "docs", capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise SystemExit(f"wheels: {' '.join(command[-3:])} failed, see above")
    return done.stdout
