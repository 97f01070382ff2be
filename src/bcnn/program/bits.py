"""The bit order of programs: 1 stands for +1, 0 for -1. No torch.

Rows of words: channel k is bit k % 32 of word k // 32, tail bits are zero. A file has another order, see `packed.fields`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]


def pack_bits(bits: NDArray[np.bool_]) -> Words:
    """... x K -> ... x ceil(K / 32) words."""
    tail = -bits.shape[-1] % 32
    padded = np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, tail)]) if tail else bits
    octets = np.packbits(np.ascontiguousarray(padded), axis=-1, bitorder="little")
    return octets.view("<u4").astype(np.uint32, copy=False)


def unpack_bits(words: Words, channels: int) -> NDArray[np.bool_]:
    """... x ceil(K / 32) words -> ... x K."""
    octets = np.ascontiguousarray(words.astype("<u4", copy=False)).view(np.uint8)
    return np.unpackbits(octets, axis=-1, count=channels, bitorder="little").view(np.bool_)
