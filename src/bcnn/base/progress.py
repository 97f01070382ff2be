"""How a long job says how far it is: it calls a `Progress`, and whoever started the job decides what a person sees of it. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress
from rich.markup import escape

from bcnn.base.console import Console

# What is being done, how many more of it are done now, and of how many in all (0: not known).
Progress = Callable[[str, int, int], object]


def silent(what: str, count: int, total: int) -> None:
    """Show nothing."""


def sentences(say: Callable[[str], object]) -> Progress:
    """Say `reading: 40 of 100 images` for every call."""
    done: Counter[str] = Counter()

    def show(what: str, count: int, total: int) -> None:
        done[what] += count
        say(f"{what}: {done[what]:,} of {total:,} images" if total else what)

    return show


@contextmanager
def bars(console: Console) -> Iterator[Progress]:
    """Draw a bar for everything that is done, while the block lasts; nothing where there is no terminal."""
    with progress.Progress(console=console, transient=True, disable=not console.is_terminal) as drawn:
        tasks: dict[str, progress.TaskID] = {}

        def show(what: str, count: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = drawn.add_task(escape(what), total=None)
            drawn.update(tasks[what], advance=count, total=total or None)

        yield show
