"""The command line, see `app`."""

from __future__ import annotations

import sys

STOPPED = 130  # also what typer makes of Ctrl-C, without a word


def main() -> None:
    """The entry point: Ctrl-C is a word and no traceback, also while modules are still being imported."""
    try:
        from bcnn.cli import app

        app.main()
    except (KeyboardInterrupt, SystemExit) as ended:
        if isinstance(ended, SystemExit) and ended.code != STOPPED:
            raise
        print("bcnn: stopped", file=sys.stderr)
        sys.exit(STOPPED)


__all__ = ["main"]
