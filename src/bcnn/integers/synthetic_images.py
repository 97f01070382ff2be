"""Pictures of nothing, for calibration where no photos are at hand: noise whose detail falls with its size, as in photos. No torch.

A photo's edges, areas and light are what sets the range of a network's maps; white noise has none of them. Each picture is a sum of
random grids, enlarged: the coarser, the stronger, with a brightness, a contrast and a tint of its own. The first two are black and
white, which no photo exceeds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

COUNT = 24  # that calibration uses


def pictures(height: int, width: int, count: int = COUNT, seed: int = 0) -> list[NDArray[np.uint8]]:
    """uint8 H,W,3."""
    rng = np.random.default_rng(seed)
    made = [np.full((height, width, 3), value, np.uint8) for value in (0, 255)]
    for _ in range(count - len(made)):
        total = np.zeros((height, width, 3))
        cells = 2
        while cells <= 2 * max(height, width):
            grey, tint = rng.normal(size=(cells, cells, 1)), 0.4 * rng.normal(size=(cells, cells, 3))
            total += _enlarged(grey + tint, height, width, hard=rng.random() < 0.4) / np.sqrt(cells)
            cells *= 2
        total = (total - total.mean()) / total.std()
        made.append(np.clip(rng.uniform(60, 190) + rng.uniform(25, 85) * total, 0, 255).astype(np.uint8))
    return made[:count]


def _enlarged(grid: NDArray[np.float64], height: int, width: int, hard: bool) -> NDArray[np.float64]:
    """To H,W: straight between the grid's points, or with hard edges."""
    ys, xs = (np.linspace(0, len(grid) - 1, side) for side in (height, width))
    made: NDArray[np.float64]
    if hard:
        made = grid[np.rint(ys).astype(int)][:, np.rint(xs).astype(int)]
        return made
    y, x = (np.minimum(at.astype(int), len(grid) - 2) for at in (ys, xs))
    v, u = (ys - y)[:, None, None], (xs - x)[None, :, None]
    top = grid[y][:, x] * (1 - u) + grid[y][:, x + 1] * u
    bottom = grid[y + 1][:, x] * (1 - u) + grid[y + 1][:, x + 1] * u
    made = top * (1 - v) + bottom * v
    return made
