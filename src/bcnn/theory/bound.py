"""How far the network can be from f, proved from d, Q and how fast f varies, and how far it is, measured (sec. 3.1).

Claim. Let f have the modulus of continuity w on every cell (|f(a) - f(b)| <= w(|a - b|) for a, b in one cell; w(h) = L h where f is
Lipschitz with constant L). Then for every x in a cell, and for each output,

    |f(x) - network(x)|  <=  w(r)  +  1 / (2 Q)  +  rounding        r = sup |x - sample of x's cell|; uniform: r = sqrt(K) d / 2

Proof.
 1. x lies in exactly one cell c, with the sample t. By steps 5 to 10 of `construction` the rectangles of c are 1, all others are
    exactly 0, so without rounding network(x) = f_min + round(Q (f(t) - f_min)) / Q.
 2. Rounding to whole steps moves f(t) by at most half a step: |f(t) - network(x)| <= 1 / (2 Q).
 3. x and t lie in the same cell, at most r apart: |f(x) - f(t)| <= w(r). Jumps lie between cells, so they do not enter.
 4. Layers 1 and 2 and the dot of layer 3 are whole numbers (and halves) below 2^24: exact in float32. Layer 3 ends with scale * dot + offset in
    float32. All that is rounded there (scale, offset, the product, the sum; in a lowered program also scale * n with n <= S mismatches, and
    the offset that makes up for it) is at most A = S / (step Q) + |f_min| + range of f, and there are at most six roundings
    of a relative 2^-24 each: less than 2^-21 A together.                                                              QED

d -> 0 sends w(r) to 0 for any continuous f on a compact set, Q -> infinity sends 1 / (2 Q) to 0: the theorem, up to the float32 of step 4.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from bcnn.base.errors import UserError
from bcnn.theory.construction import Approximator, evaluate
from bcnn.theory.plan import Function, Plan, grid, sample
from bcnn.theory.tiling import Floats64, Tiling

SLOPE_POINTS = {1: 17, 2: 5, 3: 3}  # looked at per cell and coordinate to estimate slopes
MAX_PROBES = {1: 8_000, 2: 256, 3: 40}  # per coordinate, at most, to measure an error ...
MAX_PROBE_MACS = 8 << 30  # ... and binary MACs to spend on it: seconds


def error_bound(
    plan: Plan, *, lipschitz: ArrayLike | None = None, modulus: Callable[[float], float] | None = None
) -> float:
    """The right side of the claim, for the largest error over all cells and outputs.

    `lipschitz` is one constant, or one per cell (then the bound follows f's local variation, as an adaptive tiling does);
    `modulus` is w itself. Distances between vectors are Euclidean.
    """
    if (lipschitz is None) == (modulus is None):
        raise UserError("error_bound needs either a Lipschitz constant or a modulus of continuity")
    reach = np.sqrt(sum(axis**2 for axis in grid([tiling.reach for tiling in plan.tilings])))
    if modulus is not None:
        variation = float(modulus(float(reach.max())))
    else:
        constants = np.asarray(lipschitz, np.float64)
        if not np.all((constants >= 0) & (constants < np.inf)):
            raise UserError(f"a Lipschitz constant must be a finite number >= 0, got {lipschitz!r}")
        if constants.ndim and constants.shape != reach.shape:
            raise UserError(
                f"lipschitz has the shape {constants.shape}; it must be one number or one per cell {reach.shape}"
            )
        variation = float((constants * reach).max())
    return variation + 1 / (2 * plan.Q) + rounding(plan)


def rounding(plan: Plan) -> float:
    """Step 4 of the proof: what float32 can add."""
    subs = float(plan.subs.sum()) / (plan.step * plan.Q)
    return 2.0**-21 * float(np.max(subs + np.abs(plan.f_min) + np.ptp(plan.values, axis=1)))


def estimate_lipschitz(f: Function, plan: Plan) -> Floats64:
    """[C]: the steepest slope seen inside each cell. An estimate from below, for functions of which nothing else is known."""
    k = len(plan.tilings)
    inner = SLOPE_POINTS.get(k, 2)
    axes = [_inside(tiling, inner) for tiling in plan.tilings]
    values = sample(f, grid([axis.ravel() for axis in axes])).reshape(-1, *(n for axis in axes for n in axis.shape))
    squares: Floats64 = np.zeros([tiling.cells for tiling in plan.tilings])
    for j, axis in enumerate(axes):
        within = 2 + 2 * j  # values has the axes M, cells of x, points of x, cells of y, points of y, ...
        gaps = np.diff(axis, axis=1)
        shape = [n if a in (within - 1, within) else 1 for a, n in enumerate(np.diff(values, axis=within).shape)]
        slopes = np.abs(np.diff(values, axis=within)) / np.where(gaps > 0, gaps, np.inf).reshape(shape)
        squares += slopes.max(axis=(0, *(2 + 2 * i for i in range(k)))) ** 2
    return np.sqrt(squares).ravel()


def _inside(tiling: Tiling, points: int) -> Floats64:
    """[N, points] from the first to the last number of each cell."""
    first = tiling.edges[:-1].astype(np.float64)
    last = np.nextafter(tiling.edges[1:], np.float32(-np.inf)).astype(np.float64)
    return first[:, None] + (last - first)[:, None] * np.linspace(0, 1, points)


def probes(plan: Plan, points: int | None = None) -> list[Floats64]:
    """Points to measure an error at: evenly spread, and of each coordinate's cells the first and the last number, where it is largest."""
    k = len(plan.tilings)
    if points is None:
        points = max(2, min(MAX_PROBES.get(k, 8), int((MAX_PROBE_MACS / plan.binary_weights) ** (1 / k) / 1.5)))
    axes = []
    for tiling in plan.tilings:
        edges = _inside(tiling, 2).ravel()
        keep = np.linspace(0, edges.size - 1, min(edges.size, max(2, points // 2))).round().astype(int)
        spread = np.linspace(*tiling.covered, points)
        axes.append(np.unique(np.concatenate([edges[keep], spread]).astype(np.float32)).astype(np.float64))
    return grid(axes)


def errors(network: Approximator, f: Function, points: int | None = None) -> tuple[float, float]:
    """The largest and the mean |f - network| at `probes`."""
    where = probes(network.plan, points)
    distance = np.abs(evaluate(network, *where) - sample(f, where))
    return float(distance.max()), float(distance.mean())


def sup_error(network: Approximator, f: Function, points: int | None = None) -> float:
    """The largest |f - network| found at `probes`."""
    return errors(network, f, points)[0]
