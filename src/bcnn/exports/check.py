"""Another executor's maps against the definition: each is compared with what the interpreter makes of that executor's own inputs.

A free-running comparison would mean nothing: two correct executors round a sum differently, that flips a sign where a value
lies on its threshold, and the next blocks amplify it. With the executor's own maps as input every op stands alone: all signs
are the same, and only the rounding of one op is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bcnn.base.images import Pixels
from bcnn.program.interpret import run_op
from bcnn.program.ops import Floats, Values
from bcnn.program.program import Program

# Of the largest value of a map. Sums of up to 1024 float32 terms in another order, with or without fused multiply-add, differ by
# a few 1e-6; one wrong sign in a dot over 1024 channels moves a value by 2 scale = 4 / 32, over 1e-2 of the largest.
TOLERANCE = 1e-4


class WrongResultError(Exception):
    """An executor that does not compute the network: it must not be timed, or shipped."""


def check_logits(timed: Floats, checked: Floats) -> None:
    """A model that shows its maps may be compiled otherwise than the one that is timed: the same up to the rounding of an op."""
    if not np.abs(timed - checked).max() <= TOLERANCE * np.abs(checked).max():  # written so that NaN fails
        raise WrongResultError("logits of the timed model are not those of the checked one")


def check_maps(program: Program, image: Pixels, maps: Sequence[Floats | None]) -> str:
    """The sentence for the table of rivals: see `errors`."""
    found = errors(program, image, maps)
    return f"interpreter, {len(found)} of {len(maps)} maps within {max(found):.0e} of their largest value"


def errors(program: Program, image: Pixels, maps: Sequence[Floats | None]) -> list[float]:
    """The largest difference in each map, as a share of its largest value; 0.0 is equality of all values.

    `maps[i]` is the H,W,C map i of the executor (of an integer program it must be equal), or None where it does not show one: then the interpreter's takes its place.
    Raises `WrongResultError` naming the first op that differs by more than rounding.
    """
    known: list[Values] = []
    found = []
    for index, (op, got) in enumerate(zip(program.ops, maps, strict=True)):
        want = run_op(op, known if index else [image])
        known.append(
            want if got is None else np.ascontiguousarray(got).astype(want.dtype, casting="unsafe").reshape(want.shape)
        )
        if got is None:
            continue
        error = 0.0
        if not np.array_equal(known[-1], want, equal_nan=True):
            error = float(np.abs(known[-1].astype(np.float64) - want).max() / (np.abs(want).max() or 1))
        if not error <= (TOLERANCE if program.numbers == "float32" else 0):  # written so that NaN fails
            raise WrongResultError(f"op {index} ({program.names[index]}) differs by {error:.1e} of its largest value")
        found.append(error)
    return found
