"""What a learned file remembers of its photos, so that a class can be added without them. No torch.

A few centres a class (k-means in the space of the decoder's features), 8 bits a feature: 12 KB a class with `imagenette`, base64 in the
provenance. Measured on waste, four classes learned and the fifth added from 20 photos, mean of all five choices, accuracy averaged
over classes: 1, 3 and 6 centres give 60.7, 67.3 and 68.0 %; 5, 10 and 20 photos as they are 56.0, 62.5 and 65.1 %; all photos of the four 65.5 %.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcnn.base.dataclass_io import build
from bcnn.base.errors import UserError
from bcnn.learning.fit import Decoder, Doubles, Floats, Labels, fit
from bcnn.program.program import Program

KEY = "memory"
CENTRES = 4  # a class
STEP = np.float32(1 / 16)  # of stored values: features have deviation 1, so +-8 deviations are kept
MAX_ROUNDS = 20  # of k-means at most
# Of the fit that adds a class. The decoder as it was pulls at the new one, so this is how much of it is kept: of 1, 0.3 and 0.1 the best.
PENALTY = 1.0


@dataclass(frozen=True, eq=False)
class Memory:
    """Centres of every class."""

    x: Floats  # [classes, CENTRES, D], multiples of STEP
    counts: Labels  # [classes, CENTRES]: photos that each stands for

    def plain(self) -> dict[str, Any]:
        values = np.rint(self.x / STEP).astype(np.int8)
        text = base64.b64encode(values.tobytes()).decode("ascii")
        return {"counts": self.counts.tolist(), "centres": text}


@dataclass(frozen=True)
class _Plain:
    counts: list[list[int]]
    centres: str


def of(program: Program, features: int) -> Memory | None:
    """The memory in a packed file, if there is a whole one for decoders of so many features."""
    try:
        plain = build(_Plain, program.provenance.get(KEY), KEY)
        raw = np.frombuffer(base64.b64decode(plain.centres, validate=True), np.int8)
    except (UserError, binascii.Error):
        return None
    counts = plain.counts
    if not counts or {len(row) for row in counts} != {CENTRES} or raw.size != len(counts) * CENTRES * features:
        return None
    if not all(0 <= count < 1 << 53 for row in counts for count in row) or not all(map(any, counts)):
        return None
    return Memory(raw.reshape(len(counts), CENTRES, features) * STEP, np.array(counts, np.int64))


def remember(x: Floats, y: Labels, classes: int) -> Memory:
    """The centres of each class. A class of fewer photos than centres has them as they are."""
    centres = np.zeros((classes, CENTRES, x.shape[1]), np.float32)
    counts = np.zeros((classes, CENTRES), np.int64)
    for label in range(classes):
        own = x[y == label]
        middle = own[np.arange(CENTRES) * len(own) // CENTRES]
        for _ in range(MAX_ROUNDS):
            # |a - b|^2 = |a|^2 - 2 a b + |b|^2, and |a|^2 is the same for all b
            nearest = ((middle * middle).sum(axis=1) - 2 * own @ middle.T).argmin(axis=1)
            moved = [own[nearest == i].mean(axis=0) if (nearest == i).any() else middle[i] for i in range(CENTRES)]
            if np.array_equal(middle, moved):
                break
            middle = np.stack(moved).astype(np.float32)
        centres[label] = (np.rint(middle / STEP).clip(-127, 127) * STEP).astype(np.float32)
        counts[label] = np.bincount(nearest, minlength=CENTRES)
    return Memory(centres, counts)


def joined(one: Memory, other: Memory) -> Memory:
    return Memory(np.concatenate([one.x, other.x]), np.concatenate([one.counts, other.counts]))


def add(memory: Memory, decoder: Decoder, photos: Floats) -> Decoder:
    """`decoder` with one more class behind the others, from its photos and the centres of the others; classes weigh the same."""
    d, c = decoder.weight.shape
    kept = Decoder(np.concatenate([decoder.weight, np.zeros((d, 1))], axis=1), np.append(decoder.bias, 0.0))
    x = np.concatenate([memory.x.reshape(-1, d), photos])
    y = np.concatenate([np.repeat(np.arange(c), CENTRES), np.full(len(photos), c)])
    shares: Doubles = memory.counts / memory.counts.sum(axis=1, keepdims=True)
    return fit(x, y, PENALTY, kept, kept, np.concatenate([shares.ravel(), np.full(len(photos), 1 / len(photos))]))
