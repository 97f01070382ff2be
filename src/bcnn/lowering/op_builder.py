"""An op to be, and what follows it, while a recorded pass is lowered: maps are named by values until they have numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from bcnn.capture.capture import Value
from bcnn.lowering.fold import Doubles, Folded
from bcnn.program import ops as o

Resolve = Callable[[Value], int]  # a value that is a map -> the index of its op
Late = Callable[[Resolve], o.Ending]  # an ending that names a map, once that has a number
Ending = o.Ending | Folded | Late
Found = tuple[
    Value, list[Ending], list[Value]
]  # the value before some endings, the endings in order, the maps they read


@dataclass(frozen=True, eq=False)
class Draft:
    """An op to be: the maps it reads, and how it is made once they have numbers."""

    reads: tuple[Value, ...]
    make: Callable[[Resolve], o.Op]
    module: str
    size: Doubles | None = None  # magnitudes of what its offsets were folded from, see `Folded`


def resolved(ending: Ending, map_of: Resolve) -> o.Ending | Folded:
    return ending if isinstance(ending, (o.Ending, Folded)) else ending(map_of)


def constant_draft(tensor: Tensor, module: str) -> Draft:
    op = o.Constant(as_map(tensor))
    return Draft((), lambda _: op, module)


def as_map(tensor: Tensor) -> o.Floats:
    """N,C,H,W or N,F of one image as H,W,C."""
    x = tensor.reshape(1, tensor.shape[1], *(tensor.shape[2:] or (1, 1)))
    made: o.Floats = np.ascontiguousarray(x[0].permute(1, 2, 0).numpy())
    return made
