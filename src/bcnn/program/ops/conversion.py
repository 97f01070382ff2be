"""What an op may ask while it becomes one of an integer program, `ToIntegers`, or one of a float program again, `ToReals`. No torch.

A value v of a map with f fractional bits stands for v / 2^f; `Formats` has the f of every map, which `integers.calibration` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.program.ops.arithmetic import HIGH, MAX_DOWN, MAX_UP, WIDEST
from bcnn.program.ops.base import Floats, Indices, Shape, Shorts
from bcnn.program.ops.endings import Bound, Ending, Shift

if TYPE_CHECKING:
    from bcnn.program.program import Program

RARE = 0.01  # of a map's channels whose largest values a Bound may cut off
COARSE = 4  # steps of half of a tensor's values: one whose step is larger is not for bytes


@dataclass(frozen=True)
class Formats:
    before: tuple[int, ...]  # fractional bits of an op's values before its sigmoid if it has one, else of all of them
    made: tuple[int, ...]  # of its map
    more: tuple[int, ...]  # of them, those that are shifted in last, for depth wise readers
    channels: tuple[Floats, ...]  # the largest magnitudes seen in its map
    bent: tuple[tuple[float, ...], ...]  # by ending: of nearly all negative values that it bends, the largest magnitude


@dataclass(frozen=True)
class ToIntegers:
    """The op at work."""

    program: Program
    formats: Formats
    index: int
    parameters: str  # int16, or int8: multiples of a step

    @property
    def f(self) -> int:
        """Fractional bits of the op's values, but for what its last endings do."""
        return self.formats.before[self.index]

    @property
    def made(self) -> int:
        return self.formats.made[self.index]

    def of(self, source: int) -> int:
        return self.formats.made[source]

    @property
    def shape(self) -> Shape:
        return self.program.shapes[self.index]

    @property
    def bytes(self) -> bool:
        """Whether a weight is to fit one byte."""
        return self.parameters == "int8"

    @property
    def last(self) -> bool:
        return self.index == len(self.program.ops) - 1

    def shorts(self, what: str, values: Any, bits: int, per_channel: bool = False) -> Shorts:
        """values * 2^bits as 16-bit numbers; as int8, multiples of one step, or of one for each channel, the last axis."""
        exact = np.asarray(values, np.float64) * 2.0**bits
        if np.abs(exact).max(initial=0) > HIGH + 0.5:
            raise UserError(f"{what} of {np.abs(values).max():.4g} does not fit 16 bits with {bits} fractional ones")
        return self.stepped(np.clip(np.rint(exact), -HIGH, HIGH), per_channel)

    def stepped(self, values: NDArray[np.float64], per_channel: bool = False) -> Shorts:
        if self.bytes:
            axes = tuple(range(values.ndim - 1)) if per_channel else None
            size = np.abs(values)
            step = np.maximum(np.ceil(size.max(axis=axes, initial=0) / 127), 1)
            if step.ndim == 0 and step > 1 and np.median(size[size > 0]) < COARSE * step:
                return values.astype(np.int16)  # a few are much larger than most, which a byte would not tell apart
            values = np.clip(np.rint(values / step), -(HIGH // step), HIGH // step) * step
        return values.astype(np.int16)

    def above(self, threshold: Any, bits: int) -> Shorts:
        """x >= threshold is x > above."""
        exact = np.ceil(np.asarray(threshold, np.float64) * 2.0**bits) - 1
        return self.stepped(np.clip(exact, -HIGH, HIGH))

    def endings(self, after: Sequence[Ending], done: int = 0) -> tuple[Ending, ...]:
        """In the op's format, without the first `done` of them; then the bits that depth wise readers need."""
        made: list[Ending] = []
        f = self.f
        for ending, bent in list(zip(after, self.formats.bent[self.index], strict=True))[done:]:
            made += ending.to_integers(self, f, bent)
            f = self.made if ending.RESTARTS else f
        bound = self._bound()
        if bound is not None:
            made.append(Bound(bound))
        if self.made != f:
            made.append(shift(self.made - f))
        return tuple(made)

    def _bound(self) -> Shorts | None:
        """Limits within which no sum of a depth wise reader leaves 16 bits, if they cut off next to nothing."""
        readers = [(index, op) for index, op in enumerate(self.program.ops) if op.depthwise and op.source == self.index]
        channels = self.shape[2]
        if not readers or any(op.reads != channels for _, op in readers):  # type: ignore[attr-defined]
            return None
        limit = np.full(channels, HIGH, np.int64)
        for index, op in readers:
            limit = np.minimum(limit, op.limits(replace(self, index=index)))  # type: ignore[attr-defined]
        up = self.formats.more[self.index]
        step = max(1, 256 >> up)  # as bytes in a file
        limit = np.minimum(limit >> up, HIGH >> up) // step * step
        cut = np.mean(self.formats.channels[self.index] * 2.0 ** (self.made - up) > limit)
        return limit.astype(np.int16) if limit.min() > 0 and cut <= RARE else None


def shift(up: int) -> Shift:
    if abs(up) > MAX_UP:
        raise UserError(f"its values change their size by 2^{abs(up)}, more than 16 bits hold")
    return Shift(up)


def sums(weight: Any, offset: Any, read: int, made: int, bytes_: bool) -> tuple[Shorts, Indices, Shorts]:
    """Weights, offsets and downs of sums in 32 bits, from `read` fractional bits to `made`: per output channel, the most bits with
    which no sum can leave them, and no weight one byte if `bytes_`."""
    weight = np.asarray(weight, np.float64)
    o = weight.shape[-1]
    flat = np.abs(weight.reshape(-1, o))
    own, total, size = flat.max(axis=0), flat.sum(axis=0), np.abs(np.asarray(offset, np.float64))
    bits = np.full(o, MAX_DOWN + made - read, np.int64)
    most = WIDEST * 0.98 - 2.0**29  # less what rounding and half a step add
    with np.errstate(divide="ignore"):
        for room in ((127.4 if bytes_ else HIGH) / own, most / (total * 32768 + size * 2.0**read)):
            bits = np.minimum(bits, np.floor(np.log2(room)).clip(max=99).astype(np.int64))
    down = read + bits - made
    if down.min() < 0:
        raise UserError(f"its weights, of up to {own.max():.4g}, are too large for sums of 32 bits")
    scaled = np.rint(weight * 2.0**bits)
    offsets = np.rint(np.asarray(offset, np.float64) * 2.0 ** (read + bits))
    return scaled.astype(np.int16), offsets.astype(np.int32), down.astype(np.int16)


@dataclass(frozen=True)
class ToReals:
    """The op at work."""

    program: Program
    index: int

    @property
    def made(self) -> int:
        """Fractional bits of its map."""
        return self.of(self.index)

    def of(self, source: int) -> int:
        return self.program.fractions[source]

    def endings(self, after: Sequence[Ending]) -> tuple[int, tuple[Ending, ...]]:
        """The fractional bits of what the first of them reads, from the end, since the op says how many its map has; and the endings."""
        made: list[Ending] = []
        f = self.made
        for ending in reversed(after):
            f = ending.before(f)
            made[:0] = ending.to_reals(self, f)
        return f, tuple(made)
