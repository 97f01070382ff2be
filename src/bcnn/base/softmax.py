"""Logits -> probabilities, the same wherever they are shown."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """exp(x) / sum of exp(x) over the last axis, less the largest logit first: nothing overflows."""
    x = logits.astype(np.float64)
    exp = np.exp(x - x.max(axis=-1, keepdims=True))
    made: NDArray[np.float64] = exp / exp.sum(axis=-1, keepdims=True)
    return made
