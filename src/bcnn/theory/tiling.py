"""An interval -> the cells that tile it: where the rectangles of layer 1 stand (sec. 3.1). No torch.

Cell k is edges[k] <= x < edges[k + 1]; inside it f is replaced by f(samples[k]). Edges and samples are float32 numbers, because
those are what the network compares x with: what is proved about these cells holds for the network to the last bit.

Legend: d width of a cell, n = (x_max - x_min) / d, N cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError

Floats32 = NDArray[np.float32]
Floats64 = NDArray[np.float64]

# An adaptive tiling gives this share of its cells to the length of the interval and the rest to the variation of f, so that no
# cell is wider than 1 / share = 10 cells of the uniform tiling, and d -> 0 still makes every cell narrow.
UNIFORM_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Tiling:
    """The cells of one coordinate, adjacent and in ascending order."""

    low: float  # x_min
    high: float  # x_max
    edges: Floats32  # [N + 1]
    samples: Floats32  # [N]

    @property
    def cells(self) -> int:
        return self.samples.size

    @property
    def reach(self) -> Floats64:
        """[N]: how far the farthest point of each cell is from its sample. The upper edge is excluded, which costs nothing here."""
        edges, samples = self.edges.astype(np.float64), self.samples.astype(np.float64)
        return np.maximum(samples - edges[:-1], edges[1:] - samples)

    @property
    def covered(self) -> tuple[float, float]:
        """The first and the last float32 number that lies in a cell."""
        return float(self.edges[0]), float(np.nextafter(self.edges[-1], np.float32(-np.inf)))


def intervals(low: float, high: float, d: float) -> int:
    """n = (high - low) / d, which must be a whole number (to a millionth: d is typed by people)."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UserError(f"the domain [{low:g}, {high:g}] must be two finite numbers, the smaller one first")
    if not math.isfinite(d) or d <= 0:
        raise UserError(f"d is the width of a rectangle and must be a finite number > 0, got {d!r}")
    ratio = (high - low) / d
    n = round(ratio)
    if n < 1 or abs(ratio - n) > 1e-6 * n:
        below = max(1, math.floor(ratio))
        raise UserError(
            f"d = {d:g} does not divide the interval [{low:g}, {high:g}]: {ratio:.6g} cells; "
            f"the nearest that do are {(high - low) / below:.9g} ({below}) and {(high - low) / (below + 1):.9g} ({below + 1})"
        )
    return n


def uniform(low: float, high: float, d: float, ends: bool = True, jumps: Sequence[float] = ()) -> Tiling:
    """Rectangles of width d centred at x_min + d, ..., x_max - d; `ends` adds the half-width ones at x_min and x_max.

    The paper omits the half-width rectangles "for convenience"; without them nothing is approximated next to the ends.
    """
    n = intervals(low, high, d)
    _check_jumps(low, high, jumps)
    if n == 1 and not ends:
        raise UserError(f"d = {d:g} is the whole interval [{low:g}, {high:g}]: without half-width ends no cell is left")
    inner = low + (high - low) * (np.arange(n) + 0.5) / n
    return _tiling(low, high, np.concatenate([[low], inner, [high]]) if ends else inner, ends, jumps)


def adaptive(low: float, high: float, cells: int, variation: Floats64, jumps: Sequence[float] = ()) -> Tiling:
    """As many cells as asked for over the whole interval, narrow where f varies much (sec. 3.2).

    `variation` [G] is how much f varies on each of G equal parts of the interval. Cells get equal shares of a density that is
    mostly variation and a little length.
    """
    _check_jumps(low, high, jumps)
    variation = _without(variation, [(jump - low) / (high - low) for jump in jumps])
    total = float(variation.sum())
    length = np.full(variation.size, 1 / variation.size)
    share = variation / total if total > 0 else length
    mass = np.concatenate([[0.0], np.cumsum((1 - UNIFORM_SHARE) * share + UNIFORM_SHARE * length)])
    parts = np.linspace(low, high, variation.size + 1)
    edges = np.interp(np.linspace(0, mass[-1], cells + 1), mass, parts)
    # Around a jump that nobody named, edges can come closer than float32 tells apart: those are one edge.
    return _tiling(low, high, np.unique(edges.astype(np.float32)).astype(np.float64), True, jumps)


def _check_jumps(low: float, high: float, jumps: Sequence[float]) -> None:
    for jump in jumps:
        if not low <= jump <= high:
            raise UserError(f"the jump at {jump:g} lies outside the domain [{low:g}, {high:g}]")


def _without(variation: Floats64, jumps: Sequence[float]) -> Floats64:
    """A jump has its own branch and needs no cells around it: the parts next to it (0 ... 1 of the interval) vary as their neighbours do."""
    smooth = variation.copy()
    last = variation.size - 1
    for jump in jumps:
        part = int(np.clip(jump * variation.size, 0, last))
        around = variation[[max(0, part - 2), min(last, part + 2)]]
        smooth[max(0, part - 1) : part + 2] = around.min()
    return smooth


def _tiling(low: float, high: float, edges64: Floats64, ends: bool, jumps: Sequence[float]) -> Tiling:
    edges = edges64.astype(np.float32)
    if ends:  # cells are open above, the interval is not
        edges[-1] = _next(edges[-1])
    if not np.isfinite(edges).all() or np.any(np.diff(edges) <= 0):
        raise UserError(
            f"the {edges.size - 1} cells of [{low:g}, {high:g}] are narrower than float32 can tell apart; "
            "choose a larger d, or move the domain nearer to 0"
        )
    # Reading: "center an additional branch at each discontinuity to handle the jump there exactly". The branch centred at jump c
    # is as narrow as numbers allow: it holds c alone and gives f(c). It cuts the cell it stands in into two that meet at c from
    # either side, each with a sample of its own side, so no cell has a jump inside.
    for point in np.asarray(jumps, np.float32):
        inside = [value for value in (point, _next(point)) if edges[0] < value < edges[-1]]
        edges = np.union1d(edges, np.asarray(inside, np.float32)).astype(np.float32)
    return Tiling(low, high, edges, _samples(edges))


def _samples(edges: Floats32) -> Floats32:
    """The centre of each cell, as a float32 number that lies in it: in a cell that holds one number, that number."""
    centres = (edges[:-1].astype(np.float64) + edges[1:].astype(np.float64)) / 2
    last = np.nextafter(edges[1:], np.float32(-np.inf))
    return np.clip(centres.astype(np.float32), edges[:-1], last)


def _next(value: np.float32) -> np.float32:
    return np.float32(np.nextafter(value, np.float32(np.inf)))
