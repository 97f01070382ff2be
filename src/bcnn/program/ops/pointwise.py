"""A map with endings and nothing before them. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bcnn.base.errors import UserError
from bcnn.program.counts import Counts
from bcnn.program.ops.base import Floats, Map, Op, Shape, Values, replicated
from bcnn.program.ops.checks import reads_channels, source_shape
from bcnn.program.ops.conversion import ToIntegers, ToReals, shift, sums
from bcnn.program.ops.endings import Affine, Ending, absolute_endings, check_endings, count_endings, finish


@dataclass(frozen=True, eq=False)
class Pointwise(Op):
    """A map with endings and nothing before them: batch norm, PReLU, sums and products of maps that no other op can end with."""

    NUMBERS = "any"

    source: Map
    reads: int
    after: tuple[Ending, ...] = field()
    fraction: int | None = None  # of an integer program's map, if not that of the source

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        h, w, c = source_shape(self.source, shapes)
        if not self.after:
            raise UserError("does nothing: it has no endings")
        return check_endings(self.after, (h, w, reads_channels(self.reads, c)), shapes)

    def run(self, maps: Sequence[Values]) -> Values:
        return finish(replicated(maps[self.source], self.reads), self.after, maps)

    def counts(self, shapes: Sequence[Shape]) -> Counts:
        return count_endings(self.after, self.shape(shapes))

    def absolute(self, more: Floats) -> Op:
        return replace(
            self, after=(Affine(None, np.broadcast_to(more, self.reads).copy()), *absolute_endings(self.after))
        )

    # --- integers -------------------------------------------------------------------------------------------------

    def in_format(self) -> tuple[Map, ...]:
        return () if any(ending.SCALES for ending in self.after) else (self.source,)

    def sums_wide(self, shape: Shape) -> bool:
        """One number a channel, scaled and moved: there sums of 32 bits cost nothing, and products may be large before they are moved."""
        first = self.after[0]
        both = isinstance(first, Affine) and first.scale is not None and first.offset is not None
        return shape[:2] == (1, 1) and both

    def to_integers(self, at: ToIntegers) -> Op:
        read = at.of(self.source)
        if self.sums_wide(at.shape):
            from bcnn.program.ops.conv import FixedConv

            first = self.after[0]
            assert isinstance(first, Affine)
            assert first.scale is not None
            made = sums(first.scale[None, None, None], first.offset, read, at.f, at.bytes)
            rest = at.endings(self.after, done=1)
            return FixedConv(self.source, self.reads, *made, groups=self.reads, after=rest, fraction=at.made)
        after = at.endings(self.after)
        return Pointwise(self.source, self.reads, (shift(at.f - read), *after) if at.f != read else after, at.made)

    def to_reals(self, at: ToReals) -> Op:
        nothing = Affine(np.ones(self.reads, np.float32), None)  # of a shift alone, real numbers know nothing
        return Pointwise(self.source, self.reads, at.endings(self.after)[1] or (nothing,))
