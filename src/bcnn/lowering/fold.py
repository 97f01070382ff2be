"""Convolutions and what follows them, in double precision, until they are rounded once and become ops. Torch's values, no torch.

An affine is v * scale + offset per channel: batch norm, a bias, a scale, or several of them. Those that follow a convolution fold
into its scale and offset; those further on stay endings.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bcnn.program import ops as o
from bcnn.program.bits import pack_bits

Doubles = NDArray[np.float64]


def single(values: Doubles) -> o.Floats:
    """The one rounding to float32; what overflows becomes inf, which `Program` refuses by name."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Folded:
    """v * scale + offset. `size` has the magnitudes of what the offset was added up from: it may be far smaller than its parts."""

    scale: Doubles | None = None
    offset: Doubles | None = None
    size: Doubles | None = None

    def then(self, other: Folded) -> Folded:
        """Both, this one first."""
        scale = other.scale if self.scale is None else self.scale if other.scale is None else self.scale * other.scale
        factor = np.ones(1) if other.scale is None else other.scale
        offset = _sum(None if self.offset is None else self.offset * factor, other.offset)
        size = _sum(None if self.size is None else self.size * np.abs(factor), other.size)
        return Folded(scale, offset, size)

    def ending(self, channels: int) -> o.Affine:
        return o.Affine(_spread(self.scale, channels), _spread(self.offset, channels))


@dataclass(frozen=True, eq=False)
class Term:
    """One binary convolution on the way to a `Branch`: scale * dot + offset, dot in whole numbers."""

    threshold: Doubles  # [K]
    bits: NDArray[np.bool_]  # [O, T, K / G]
    affine: Folded
    pad: NDArray[np.bool_] | None  # [K]
    shift: tuple[int, int]

    def branch(self, more: Folded) -> o.Branch:
        """dot = N - 2 n (`ops.Branch`). The offset is made with the s that scale holds after its rounding: so the error of that
        rounding grows with |dot| and not with N."""
        made = self.bits.shape[0]
        count = self.bits.shape[1] * self.bits.shape[2]
        affine = self.affine.then(more)
        s = single(np.broadcast_to(np.ones(1) if affine.scale is None else affine.scale, made)).astype(np.float64)
        # s * (dot - mean) + beta is what the scale before rounding meant: the offset follows the rounded one.
        offset = np.zeros(made) if affine.offset is None else np.broadcast_to(affine.offset, made)
        return o.Branch(
            threshold=single(self.threshold),
            weight=pack_bits(self.bits),
            scale=single(-2 * s),
            offset=single(offset + s * count),
            pad=None if self.pad is None else pack_bits(self.pad),
            shift=self.shift,
        )


@dataclass(eq=False)
class After:
    """Endings in order, folded where they can be: what stands in front of all of them goes into the op itself."""

    front: Folded = field(default_factory=Folded)
    endings: list[o.Ending | Folded] = field(default_factory=list)

    def append(self, ending: o.Ending | Folded) -> None:
        if not isinstance(ending, Folded):
            self.endings.append(ending)
        elif not self.endings:
            self.front = self.front.then(ending)
        elif isinstance(self.endings[-1], Folded):
            self.endings[-1] = self.endings[-1].then(ending)
        elif ending.scale is None and all(isinstance(e, o.Add) and e.first == 0 for e in self.endings):
            self.front = self.front.then(ending)  # an offset may as well be added before the other maps
        else:
            self.endings.append(ending)

    def tuple(self, channels: int) -> tuple[o.Ending, ...]:
        return tuple(e.ending(channels) if isinstance(e, Folded) else e for e in self.endings)


def _sum(a: Doubles | None, b: Doubles | None) -> Doubles | None:
    return b if a is None else a if b is None else a + b


def _spread(values: Doubles | None, channels: int) -> o.Floats | None:
    return None if values is None else single(np.broadcast_to(values, channels))
