"""A rival's maps against the definition: each of its maps is compared with what the interpreter makes of the rival's own inputs.

A free-running comparison would mean nothing: two correct executors round a sum differently, that flips a sign where a value
lies on its threshold, and the next blocks amplify it. With the rival's own maps as input every op stands alone: all signs
are the same, and only the rounding of one op is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bcnn.images import Pixels
from bcnn.program import program as p
from bcnn.program.interpret import input_map, run_op

# Of the largest value of a map. Sums of up to 1024 float32 terms in another order, with or without fused multiply-add, differ by
# a few 1e-6; one wrong sign in a dot over 1024 channels moves a value by 2 scale = 4 / 32, over 1e-2 of the largest.
TOLERANCE = 1e-4


class WrongResultError(Exception):
    """A rival that does not compute the network: it must not be timed."""


def check_maps(program: p.Program, image: Pixels, maps: Sequence[p.Floats | None]) -> str:
    """`maps[i]` is the rival's H,W,C map i, or None where it does not show one: then the interpreter's takes its place.

    Returns the sentence for the table; raises `WrongResultError` naming the first op that differs.
    """
    known: list[p.Floats] = []
    compared, worst = 0, 0.0
    for index, (op, got) in enumerate(zip(program.ops, maps, strict=True)):
        want = input_map(op, image) if isinstance(op, p.Input) else run_op(op, known)
        known.append(want if got is None else np.ascontiguousarray(got, dtype=np.float32).reshape(want.shape))
        if got is not None:
            error = float(np.abs(known[-1] - want).max() / np.abs(want).max())
            if not error <= TOLERANCE:  # written so that NaN fails
                raise WrongResultError(
                    f"op {index} ({program.names[index]}) differs by {error:.1e} of its largest value"
                )
            compared, worst = compared + 1, max(worst, error)
    return f"interpreter, {compared} of {len(known)} maps within {worst:.0e} of their largest value"
