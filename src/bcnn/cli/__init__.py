"""The command line, see `app`."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point: Ctrl-C is a word and no traceback, also while modules are still being imported."""
    try:
        from bcnn.cli import app

        app.main()
    except KeyboardInterrupt:
        print("bcnn: stopped", file=sys.stderr)
        sys.exit(130)


__all__ = ["main"]
