"""An op as a flat record, for what knows no op by name: the native core, and whoever walks over programs. No torch.

A record is kind, numbers (lists of whole numbers by field), arrays (by field) and parts (lists of records by field). Fields that
are none are absent; a nested window is a part like a branch or an ending.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bcnn.program.ops import Part


class Record(NamedTuple):
    kind: str
    numbers: dict[str, list[int]]
    arrays: dict[str, NDArray[np.generic]]
    parts: dict[str, list[Record]]


def record(part: Part) -> Record:
    """The record of an op, branch, ending or window."""
    made = Record(type(part).__name__, {}, {}, {})
    for name, kind, value in part.fields():
        if value is None:
            continue
        if isinstance(value, np.ndarray):
            made.arrays[name] = np.ascontiguousarray(value)
        elif isinstance(value, Part):
            made.parts[name] = [record(value)]
        elif isinstance(value, int):
            made.numbers[name] = [int(value)]
        elif all(isinstance(item, int) for item in value) and not _of_parts(kind):
            made.numbers[name] = [int(item) for item in value]
        else:
            made.parts[name] = [record(item) for item in value]
    return made


def _of_parts(kind: str) -> bool:
    return "Branch" in kind or "Ending" in kind
