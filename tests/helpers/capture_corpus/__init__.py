"""Small networks with the tricks that people use, by kind: each is lowered right or refused by a sentence; none is lowered wrong.

`CORPUS[kind][name]` makes one. What they have in common is in `parts.py`; a kind is a file.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from capture_corpus import constants, counters, factors, moves, operators, products, signs, vectors, weights

Make = Callable[[], nn.Module]

CORPUS: dict[str, dict[str, Make]] = {
    "vectors": vectors.CASES,
    "constants": constants.CASES,
    "moves": moves.CASES,
    "signs": signs.CASES,
    "factors": factors.CASES,
    "weights": weights.CASES,
    "operators": operators.CASES,
    "products": products.CASES,
    "counters": counters.CASES,
}
