"""Ctrl-C, SIGTERM and `--stop-after` as questions the loop asks between two updates, so that what it saves is whole."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """The run was asked to stop, and has saved itself."""

    def __init__(self, signal_number: int = 0) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number  # 0: it was --stop-after


class Interrupt:
    """While the block lasts, the first SIGINT or SIGTERM only asks; a second one acts at once."""

    def __init__(self, stop_after: int = 0) -> None:
        self.stop_after = stop_after  # updates in this process; 0: all
        self.first: int | None = None
        self.received = 0
        self.previous: dict[int, Any] = {}

    def asked(self, updates: int) -> bool:
        """After update number `updates`: whether to save and stop."""
        self.first = updates - 1 if self.first is None else self.first
        return bool(self.received) or 0 < self.stop_after <= updates - self.first

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = number

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is not threading.main_thread():
            return self  # Python lets only the main thread handle signals
        for number in (signal.SIGINT, signal.SIGTERM):
            self.previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
