"""The bit order of programs and packed files: 1 stands for +1, 0 for -1. No torch.

In a program, rows of words: channel k is bit k % 32 of word k // 32, tail bits are zero.
In a file, a stream without gaps: bit i = o * K + k is bit i % 8 of byte i // 8. Where 32 divides K the two are the same bytes.
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


def to_stream(words: Words, channels: int) -> NDArray[np.uint8]:
    """O x ceil(K / 32) words -> ceil(O K / 8) bytes."""
    if channels % 32 == 0:
        return np.ascontiguousarray(words.astype("<u4", copy=False)).view(np.uint8).reshape(-1)
    return np.packbits(unpack_bits(words, channels).reshape(-1), bitorder="little")


def from_stream(stream: NDArray[np.uint8], rows: int, channels: int) -> Words:
    """The inverse of `to_stream`; the stream must have exactly its size."""
    if channels % 32 == 0:
        words = stream.view("<u4").reshape(rows, channels // 32)
        return np.require(words, np.uint32, ["C", "ALIGNED"])  # a stream may begin at any byte
    bits = np.unpackbits(stream, count=rows * channels, bitorder="little").reshape(rows, channels)
    return pack_bits(bits.view(np.bool_))
