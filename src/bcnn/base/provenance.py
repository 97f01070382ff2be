"""Which build made a file or a number: its version, the versions beside it, and its commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from bcnn.base.version import __version__

PACKAGE = Path(__file__).resolve().parents[1]
FILE_IN_CHECKOUT = "src/bcnn/base/provenance.py"  # where this file lies in a checkout of this project


def versions(*packages: str) -> dict[str, str]:
    """Of this package, of those of `packages` that are installed, and of Python."""
    found = {"bcnn": __version__}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {**found, "python": platform.python_version()}


def commit(digits: int = 40, package: Path = PACKAGE) -> str:
    """The commit of the checkout that the package runs from, "+" if files of the package differ from it; "" for an installed package.

    An installed package may lie inside a checkout of something else, whose commit says nothing of it. So this file itself must be
    tracked there, at its place.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    }  # of another checkout

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", *words]
        return subprocess.run(
            command, cwd=package, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if git("ls-files", "--full-name", "--", "base/provenance.py") != FILE_IN_CHECKOUT:
            return ""
        return git("rev-parse", "HEAD")[:digits] + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
