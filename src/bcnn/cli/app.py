"""The command `bcnn`: one verb a job. Each group of verbs is a module beside this one.

Nothing here or at the top of those modules imports torch or anything else that is slow; a verb imports what it needs when it
runs, so that `bcnn --help` answers at once.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from bcnn.base.console import Console, visible
from bcnn.base.errors import UserError
from bcnn.base.version import __version__

app = typer.Typer(
    help="Fully binary CNNs, from the paper to the device.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The modules that hold the verbs, in the order of the walk; `bcnn --help` lists them so.
VERBS = ("quickstart", "count", "learn", "train", "deploy", "convert", "predict", "export", "models", "bench", "theory")
out = Console()  # what was asked for
err = Console(stderr=True)  # progress and errors, so that output can be piped


def say(notes: Iterable[str]) -> None:
    """What was decided for the user, beside the output."""
    for note in notes:
        err.print(escape(note), style="yellow", highlight=False, soft_wrap=True)


def _version(show: bool) -> None:
    if show:
        print(f"bcnn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def check_output(path: Path) -> None:
    """Before minutes of work, not after."""
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} to write {path.name} in")


def check_picture(path: Path, suffixes: tuple[str, ...]) -> None:
    """Before minutes of work, not after."""
    if path.suffix not in suffixes:
        raise UserError(f"{path} is no picture that can be drawn; give a name that ends in {', '.join(suffixes)}")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} to draw {path.name} in")


def main() -> None:
    """Run the verb: a `UserError` becomes one sentence and exit code 2, never a traceback. So does what a system call refuses where
    nobody expected it: a name too long, a full disk under stdout."""
    for group in VERBS:
        importlib.import_module(f"bcnn.cli.{group}")  # importing a module adds its verbs

    try:
        try:
            app()
        finally:
            if sys.stdout:
                sys.stdout.flush()  # here and not at the end of the process, where a failure could only be ignored
    except UserError as error:
        _sentence(str(error))
        sys.exit(2)
    except MemoryError as error:  # it may say more, such as which thread could not be started
        _sentence(str(error) or "not enough memory for this")
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "sklearn", "matplotlib", "tensorboard"):
            raise
        _sentence(f"this needs {error.name}; install it with: pip install 'bcnn[train]'")
        sys.exit(2)
    except BrokenPipeError:  # `bcnn summary | head`
        _forget_output()
        sys.exit(1)
    except OSError as error:
        _forget_output()
        what = f"{error.filename}: " if error.filename else ""
        _sentence(f"{what}{error.strerror or error}")
        sys.exit(2)


def _sentence(text: str) -> None:
    """On one line, or a file's name could hold a line of its own."""
    line = visible(text).replace("\n", "\\n")
    print(f"bcnn: {line}", file=sys.stderr)


def _forget_output() -> None:
    """What is still to be written to stdout goes nowhere, or the end of the process would complain of it again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
