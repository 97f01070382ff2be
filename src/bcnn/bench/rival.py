"""What a contestant is: a name, what it computes, a call that runs one image, and what it was checked against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bcnn.base.images import Pixels
from bcnn.program.program import Program


class SkippedError(Exception):
    """A rival that cannot run here: its message is the line that the table shows instead."""


@dataclass(frozen=True)
class Job:
    """One image through one network."""

    program: Program
    image: Pixels  # H,W,3
    threads: int = 1
    network: Any = None  # the torch network that the program was lowered from, if there is one


@dataclass(frozen=True)
class Rival:
    name: str
    computes: str
    run: Callable[[], object]
    checked: str
    threads: int | None = None  # if not the job's
