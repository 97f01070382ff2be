"""The arithmetic of integer programs: a few operations on 16-bit numbers that every processor has. No torch.

A value v of a map with f fractional bits stands for v / 2^f. Nothing wraps around: what could leave 16 bits saturates, and sums of
32 bits are bounded when an op is checked. Parameters are never -32768, so that a product of two numbers fits wherever it must.

    R(a, b) = (a * b + 2^14) >> 15     AVX2 vpmulhrsw, NEON sqrdmulh, WebAssembly q15mulr_sat_s
    a (+) b                            saturating: vpaddsw, sqadd, add_sat_s
    a >> n, rounded                    (a + 2^(n - 1)) >> n: halves up
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.program.ops.base import Floats, Shorts

LOW, HIGH = -32768, 32767
WIDEST = (1 << 31) - 1  # of sums
MAX_UP, MAX_DOWN = 15, 30  # bits of shifts

Wide = NDArray[np.int64]  # what a definition computes in; a kernel needs 32 bits


def saturated(v: Wide) -> Shorts:
    return np.clip(v, LOW, HIGH).astype(np.int16)


def product(a: Shorts, b: Shorts) -> Shorts:
    """R(a, b)."""
    return ((a.astype(np.int64) * b + (1 << 14)) >> 15).astype(np.int16)


def plus(a: Shorts, b: Shorts) -> Shorts:
    """a (+) b."""
    return saturated(a.astype(np.int64) + b)


def down_by(v: Wide, bits: int | Wide) -> Wide:
    """v >> bits, rounded; bits may be 0, and one for each channel."""
    half = np.left_shift(1, bits, dtype=np.int64) >> 1
    return (v + half) >> bits


def shifted(v: Shorts, up: int) -> Shorts:
    """v * 2^up, saturated or rounded."""
    wide = v.astype(np.int64)
    return saturated(wide << up if up >= 0 else down_by(wide, -up))


def mean(total: Wide, count: int | Wide) -> Wide:
    """total / count, the nearest whole number, halves up."""
    made: Wide = (2 * total + count) // (2 * np.asarray(count, np.int64))
    return made


def real(values: Any, bits: Any) -> Floats:
    """values / 2^bits."""
    made: Floats = np.ldexp(np.asarray(values, np.float64), -np.asarray(bits)).astype(np.float32)
    return made
