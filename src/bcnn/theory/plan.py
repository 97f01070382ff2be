"""A function -> everything that decides its network: cells, sampled values, numbers of sub branches (sec. 3.1). No torch.

A `Plan` knows how large the network will be before a weight exists, so a request that is too large is refused with its number,
and budgets (sec. 3.2) are drawn without building anything.

Legend: K coordinates, M outputs (heads), C = N_1 * ... * N_K cells, S sub branches in all, T = N_1 + ... + N_K.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.theory import tiling as tile
from bcnn.theory.tiling import Floats64, Tiling

Function = Callable[..., Any]  # f(x), f(x, y) or f(x, y, z) of arrays -> array of points, or of M outputs x points
Interval = tuple[float, float]
MEMORY_LIMIT = 1 << 30  # bytes: a network that a laptop builds and runs without thinking
BYTES_A_WEIGHT = 8  # float32 latent weight, and its sign while the layer runs
# Points a coordinate, for 1, 2 and 3 of them: how finely f is looked at to place the cells of an adaptive tiling.
VARIATION_POINTS = {1: 4096, 2: 256, 3: 48}
# Coordinate, cell: what one channel of layer 1's replicated input looks at; (-1, 0) is an unused one.
Slot = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Plan:
    """Fig. 1 in numbers. Cells of K coordinates are numbered with the last coordinate fastest, as NumPy ravels them."""

    tilings: tuple[Tiling, ...]  # [K]
    values: Floats64  # [M, C]: f at the samples
    Q: float
    channels: int  # of the input map: channel c holds coordinate c mod K

    @property
    def f_min(self) -> Floats64:
        """[M]. Reading: the text adds f_min before and -f_min after; it is f - f_min that is >= 0, and + f_min that undoes it."""
        return np.asarray(self.values.min(axis=1))

    @property
    def levels(self) -> NDArray[np.int64]:
        """[M, C]: round(Q (f - f_min)), the height of each rectangle in steps of 1 / Q."""
        return np.rint(self.Q * (self.values - self.f_min[:, None])).astype(np.int64)

    @property
    def step(self) -> int:
        """By how much a head's sum over a cell's sub branches grows per level: 1, or 2 where heads share them (`construction`)."""
        return 1 if len(self.values) == 1 else 2

    @property
    def subs(self) -> NDArray[np.int64]:
        """[C]: sub branches of each cell: enough for the head that is highest there."""
        subs = self.step * self.levels.max(axis=0)
        if not subs.any():  # a constant: all heights are 0, and a layer needs a channel; this pair cancels
            subs[0] = 2
        return np.asarray(subs)

    @property
    def slots(self) -> list[Slot]:
        """What each channel k of layer 1's replicated input looks at. Replication gives it coordinate (k mod channels) mod K."""
        return slots([tiling.cells for tiling in self.tilings], self.channels)

    @property
    def sizes(self) -> tuple[tuple[int, int, int], ...]:
        """P, O, K of the three layers' binary weights."""
        t, s = sum(tiling.cells for tiling in self.tilings), int(self.subs.sum())
        return (2, t, len(self.slots)), (1, s, t), (1, len(self.values), s)

    @property
    def binary_weights(self) -> int:
        return sum(p * o * k for p, o, k in self.sizes)


def slots(sizes: Sequence[int], channels: int) -> list[Slot]:
    order: list[Slot] = []
    taken = [0] * len(sizes)
    while len(order) < channels or any(t < size for t, size in zip(taken, sizes, strict=True)):
        j = len(order) % channels % len(sizes)
        order.append((j, taken[j]) if taken[j] < sizes[j] else (-1, 0))
        taken[j] += 1
    return order


def make_plan(
    f: Function,
    domain: Interval | Sequence[Interval],
    d: float | Sequence[float],
    Q: float,  # noqa: N803  (the paper's letter)
    *,
    ends: bool = True,
    jumps: Sequence[float] | Sequence[Sequence[float]] = (),
    adaptive: bool = False,
    channels: int | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Plan:
    """Sample f and size its network; see `construction.approximate` for the arguments."""
    try:
        lows, highs = np.asarray(domain, np.float64).reshape(-1, 2).T.tolist()
        widths = np.atleast_1d(np.asarray(d, np.float64)).tolist()
        cuts = [np.atleast_1d(np.asarray(cut, np.float64)).tolist() for cut in jumps]
    except (TypeError, ValueError) as error:
        raise UserError(
            f"domain is (x_min, x_max) or one such pair a coordinate; d and jumps are numbers: {error}"
        ) from None
    k = len(lows)
    widths = widths * k if len(widths) == 1 else widths
    cuts = [[jump for cut in cuts for jump in cut]] if k == 1 else cuts or [[]] * k
    if len(widths) != k or len(cuts) != k:
        raise UserError(f"the domain has {k} coordinates, but d has {len(widths)} and jumps {len(cuts)}")
    if isinstance(Q, bool) or not isinstance(Q, (int, float)) or not math.isfinite(Q) or Q <= 0:
        raise UserError(f"Q is the number of sub branches for a height of 1 and must be a finite number > 0, got {Q!r}")
    channels = k if channels is None else channels
    if channels < k:
        raise UserError(f"the input map has {channels} channels, but the function {k} coordinates")

    # Layer 1 and the number of cells are known before any tiling exists: refuse what could not even be sampled.
    counts = [tile.intervals(*side) + 1 for side in zip(lows, highs, widths, strict=True)]
    _check_memory(2 * sum(counts) ** 2 * BYTES_A_WEIGHT, memory_limit, "layer 1 alone")
    _check_memory(math.prod(counts) * 8 * (k + 1), memory_limit, f"sampling f in {math.prod(counts):,} cells")
    if adaptive:
        variations = _variations(f, lows, highs)
        tilings = tuple(
            tile.adaptive(lows[j], highs[j], counts[j] if ends else max(1, counts[j] - 2), variations[j], cuts[j])
            for j in range(k)
        )
    else:
        tilings = tuple(tile.uniform(lows[j], highs[j], widths[j], ends, cuts[j]) for j in range(k))
    values = sample(f, grid([tiling.samples.astype(np.float64) for tiling in tilings]))
    peak = float(Q) * float(np.ptp(values, axis=1).max()) * values.shape[1] * sum(tiling.cells for tiling in tilings)
    if not peak < 2.0**62:  # before any integer can overflow
        raise UserError(f"Q = {Q:g} asks for about {peak:.3g} binary weights; choose a smaller Q or a larger d")
    made = Plan(tilings, values, float(Q), channels)
    _check_memory(made.binary_weights * BYTES_A_WEIGHT, memory_limit, f"{made.binary_weights:,} binary weights")
    return made


def grid(axes: Sequence[Floats64]) -> list[Floats64]:
    """K coordinate arrays of all combinations, the last coordinate fastest."""
    return [mesh.ravel() for mesh in np.meshgrid(*axes, indexing="ij")]


def sample(f: Function, coordinates: Sequence[Floats64]) -> Floats64:
    """f at points -> [M, points], checked: the right shape, and finite everywhere."""
    points = coordinates[0].size
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(f(*coordinates), dtype=np.float64)
    except TypeError as error:
        raise UserError(f"f must take {len(coordinates)} arrays and return one: {error}") from None
    if values.ndim == 0:
        values = np.full(points, float(values))
    values = np.atleast_2d(values)
    if values.ndim != 2 or values.shape[1] != points or not values.size:
        raise UserError(
            f"f returned an array of shape {values.shape} for {points} points; it must be [points] or [M, points]"
        )
    for m, index in _bad(values):
        where = ", ".join(f"{axis[index]:.6g}" for axis in coordinates)
        raise UserError(
            f"f is not finite at ({where}): output {m} is {values[m, index]}; choose a domain without that point"
        )
    return values


def _bad(values: Floats64) -> Iterator[tuple[int, int]]:
    for m, index in np.argwhere(~np.isfinite(values))[:1]:
        yield int(m), int(index)


def _variations(f: Function, lows: list[float], highs: list[float]) -> list[Floats64]:
    """For each coordinate [G]: how much f varies over each of G parts of it, at worst over the other coordinates and outputs."""
    k = len(lows)
    points = VARIATION_POINTS.get(k, 8) + 1
    axes = [np.linspace(low, high, points) for low, high in zip(lows, highs, strict=True)]
    values = sample(f, grid(axes)).reshape(-1, *[points] * k)
    changes = [np.abs(np.diff(values, axis=j + 1)) for j in range(k)]
    return [change.max(axis=tuple(a for a in range(k + 1) if a != j + 1)) for j, change in enumerate(changes)]


def _check_memory(need: int, limit: int, what: str) -> None:
    if need > limit:
        raise UserError(
            f"{what} would need {need / 2**20:,.0f} MiB, more than the limit of {limit / 2**20:,.0f} MiB; "
            "choose a larger d or a smaller Q (from Python, memory_limit= raises it)"
        )
