"""Checks of the fields of ops: each says what is wrong and what was expected. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.ops.arithmetic import LOW, MAX_DOWN, MAX_UP, WIDEST, Wide
from bcnn.program.ops.base import MAX_CHANNELS, Indices, Shape


def whole(what: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UserError(f"{what} is {value!r}, not a whole number from {low} to {high}")
    return value


def array(what: str, values: Any, dtype: type, shape: tuple[int, ...]) -> None:
    if not isinstance(values, np.ndarray) or values.dtype != dtype or values.shape != shape:
        got = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else repr(values)
        raise UserError(f"{what} is {got}, not {np.dtype(dtype)} {shape}")


def floats(what: str, values: Any, shape: tuple[int, ...]) -> None:
    array(what, values, np.float32, shape)
    if not np.isfinite(values).all():
        raise UserError(f"{what} has values that are not finite")


def vector(what: str, values: Any) -> int:
    """The channels of a vector of parameters."""
    if not isinstance(values, np.ndarray) or values.ndim != 1 or not 1 <= values.size <= MAX_CHANNELS:
        raise UserError(f"{what} must be a vector of 1 to {MAX_CHANNELS} channels")
    return values.size


def source_shape(source: Any, shapes: Sequence[Shape], what: str = "source") -> Shape:
    return shapes[whole(what, source, 0, len(shapes) - 1)]


def reads_channels(reads: Any, channels: int) -> int:
    """Replication is said: an op reads K >= C channels of a map that has C."""
    return whole("reads", reads, channels, MAX_CHANNELS)


def grouped(groups: Any, read: int, made: int) -> int:
    """Groups that divide the channels read and those made."""
    if read % whole("groups", groups, 1, MAX_CHANNELS) or made % groups:
        raise UserError(f"its {groups} groups divide neither or only one of {read} channels read and {made} made")
    made_groups: int = groups
    return made_groups


# --- of integer programs ----------------------------------------------------------------------------------------------


def shorts(what: str, values: Any, shape: tuple[int, ...]) -> None:
    array(what, values, np.int16, shape)
    if values.size and values.min() == LOW:
        raise UserError(f"{what} has a value of {LOW}; parameters are at least {LOW + 1}")


def indices(what: str, values: Any, shape: tuple[int, ...]) -> None:
    array(what, values, np.int32, shape)


def up(what: str, value: Any, low: int = 0) -> int:
    return whole(what, value, low, MAX_UP)


def down(what: str, value: Any) -> int:
    return whole(what, value, 0, MAX_DOWN)


def fits(what: str, magnitudes: Wide, offset: Indices | int, most: int = 1 << 15) -> None:
    """Whether offset plus values of up to `most` times numbers of these magnitudes stay below 2^31; by output channel."""
    bound = magnitudes.astype(np.int64) * most + np.abs(np.asarray(offset, np.int64))
    if bound.size and int(bound.max()) > WIDEST:
        raise UserError(f"{what} may reach {int(bound.max())}, more than a sum of 32 bits holds")
