"""The tables of `--to c`: numbers in flash, and rows for the structs of device/types.c that name them. `c_rules` fills them. No torch.

Parameters of an integer program that are multiples of a step, at most 127 of them, are bytes in flash; all others have 16 bits. Those
of a program in floats are floats. Bits are 32-bit words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.exports.c_endings import Form
from bcnn.exports.c_plan import Plan
from bcnn.program.program import Program

NONE = 0xFFFFFFFF
WIDE = 1 << 31  # of 16-bit numbers, not bytes
# Of every table: what a row is in C, and its bytes on every machine; device/types.c checks the structs when it is compiled.
ROWS = {
    "words": ("uint32_t", 4),
    "wide": ("int32_t", 4),
    "slots": ("uint32_t", 4),
    "numbers": ("number", 0),  # 2 or 4
    "bytes": ("int8_t", 1),
    "needs": ("need", 12),
    "branches": ("branch", 40),
    "endings": ("ending", 20),
    "ops": ("op", 84),
}

Vec = tuple[int, int]  # where it begins, its step
NOTHING: Vec = (NONE, 0)


@dataclass
class Tables:
    """Everything that ends up in flash, but for the code."""

    program: Program
    plan: Plan
    words: list[int] = field(default_factory=list)  # bits
    wide: list[int] = field(default_factory=list)  # 32-bit offsets, and indices of maps and channels
    numbers: list[Any] = field(default_factory=list)  # 16-bit parameters, or floats
    slots: list[int] = field(default_factory=list)  # where the rows of maps begin in the arena
    bytes: list[int] = field(default_factory=list)
    ops: list[list[Any]] = field(default_factory=list)
    branches: list[list[Any]] = field(default_factory=list)
    endings: list[list[Any]] = field(default_factory=list)
    needs: list[list[Any]] = field(default_factory=list)
    finishes: dict[tuple[Form, ...], int] = field(default_factory=dict)  # the endings of ops; 2 if all rows are even
    mixed: bool = False  # some parameters are bytes, others have 16 bits
    scratch: int = 0  # words of RAM: bits of the pixels that a filter reads

    @property
    def number_bytes(self) -> int:
        return 2 if self.program.numbers == "int16" else 4

    def named_in(self, code: str) -> dict[str, list[Any]]:
        """The tables that code speaks of: a compiler warns of others."""
        spoken = set(re.findall(r"\w+", re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL)))
        return {name: getattr(self, name) for name in ROWS if name in spoken}

    def flash(self, code: str) -> int:
        """Bytes of constants. A table has a row at least, since C knows no empty ones."""
        tables = self.named_in(code)
        return sum(max(len(rows), 1) * (ROWS[name][1] or self.number_bytes) for name, rows in tables.items())

    @property
    def arena(self) -> tuple[int, int, int]:
        """32-bit words, counters of rows, numbers; without gaps, and together a multiple of four bytes."""
        own, counters, numbers = max(self.scratch, 1), len(self.ops), max(self.plan.numbers, 1)
        return own, counters + counters % 2, numbers + (numbers % 2 if self.number_bytes == 2 else 0)

    @property
    def ram(self) -> int:
        own, counters, numbers = self.arena
        return 4 * own + 2 * counters + self.number_bytes * numbers

    # --- pools --------------------------------------------------------------------------------------------------------

    def vec(self, values: NDArray[Any], times: int = 1) -> Vec:
        """Where values are, and what is to be multiplied with them to get `times` them."""
        flat = values.reshape(-1)
        if flat.dtype == np.float32:
            return put(self.numbers, flat), 0
        flat = flat.astype(np.int64)
        step = int(np.gcd.reduce(flat)) or 1
        if np.abs(flat // step).max() <= 127:
            return put(self.bytes, flat // step), step * times
        self.mixed = True
        return put(self.numbers, flat) | WIDE, times

    def wide_vec(self, values: NDArray[Any]) -> Vec:
        """Of 16-bit numbers in any case."""
        return put(self.numbers, values.reshape(-1)), 0

    def stepped(self, values: NDArray[Any]) -> tuple[Vec, Vec]:
        """Rows of values, and the step of each row if that makes them bytes."""
        whole, wide = self.vec_size(values), values.astype(np.int64)
        steps = np.maximum(np.gcd.reduce(wide, axis=1, keepdims=True), 1)
        if whole == 1 or np.abs(wide // steps).max() > 127:
            return self.vec(values), NOTHING
        return (put(self.bytes, (wide // steps).reshape(-1)), 1), self.wide_vec(steps)

    @staticmethod
    def vec_size(values: NDArray[Any]) -> int:
        flat = values.astype(np.int64)
        return 1 if np.abs(flat // (int(np.gcd.reduce(flat, axis=None)) or 1)).max() <= 127 else 2


def put(pool: list[Any], values: NDArray[Any]) -> int:
    pool.extend(values.tolist())
    return len(pool) - values.size
