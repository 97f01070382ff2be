"""The command line, see `app`."""

from bcnn.cli.app import main

__all__ = ["main"]
