"""Which commit of this project's repository the package runs from. A repository of somebody else that holds us says nothing about us."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


@cache
def commit() -> str:
    """The full hash, with a + if files of the package were changed since; empty for an installed package."""
    ours = Path(__file__).resolve()
    try:
        # In our repository this file is tracked, at this place. Installed inside another one it is not.
        place = _git("ls-files", "--full-name", "--error-unmatch", "--", str(ours))
        if place != f"src/bcnn/base/{ours.name}":
            return ""
        changed = _git("--no-optional-locks", "status", "--porcelain", "--untracked-files=no", ".")
        return _git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=True)
    return done.stdout.strip()
