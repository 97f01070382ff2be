"""A sign of life where there is no terminal to draw a bar on: one line every half a minute, so that a log tells what goes on. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from bcnn.base.console import Console

LINE_SECONDS = 30.0  # from one line to the next
T = TypeVar("T")


class ProgressLog:
    """`line` prints its line if the last one, or the start, was `LINE_SECONDS` seconds ago. On a terminal it prints nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, markup=False)
        self.silent = quiet or self.console.is_terminal
        self.last = time.monotonic()

    def line(self, text: Callable[[], str]) -> None:
        if self.silent or (now := time.monotonic()) - self.last < LINE_SECONDS:
            return
        self.last = now
        self.console.print(text(), soft_wrap=True)


def watched(items: Iterable[T], what: str, total: int = 0) -> Iterator[T]:
    """The items as they come, with a line every half a minute on how many there were."""
    log, began = ProgressLog(), time.monotonic()

    def text() -> str:
        of = f" of {total:,}" if total else ""
        left = (total - count) * (time.monotonic() - began) / max(1, count) if total else 0
        return f"{what}: {count:,}{of}" + (f", {left:.0f} s left" if total else "")

    count = 0
    for count, item in enumerate(items, start=1):  # noqa: B007 (text reads it)
        yield item
        log.line(text)
