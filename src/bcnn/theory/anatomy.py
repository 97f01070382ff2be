"""Fig. 1 taken apart: what each of the three layers makes of x, for a small network of one coordinate."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bcnn.theory.construction import Approximator
from bcnn.theory.convergence import Setting
from bcnn.theory.plan import sample
from bcnn.theory.plots import COLOURS, GREY, STYLE, save
from bcnn.theory.tiling import Floats32, Floats64


def draw_anatomy(setting: Setting, network: Approximator, title: str, path: Path) -> None:
    """Four panels in the order of the data. More than about 20 cells or 100 sub branches are hard to see."""
    (tiling,) = network.plan.tilings
    x = np.linspace(tiling.low, tiling.high, 1500).astype(np.float32)
    with torch.no_grad():
        row = torch.from_numpy(x)[None, None, None, :].expand(-1, network.plan.channels, -1, -1)
        layer1 = network.layer1
        sums = sum((branch(layer1.replicate(row)) for branch in layer1.branches), torch.zeros(1))
        rectangles = layer1(row)
        subs = network.layer2(rectangles)
        made = network.layer3(subs)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 6.6), layout="constrained")
        figure.suptitle(
            f"Fig. 1 taken apart:  {title}, {tiling.cells} cells, Q = {network.plan.Q:g}, {subs.shape[1]} sub branches"
        )
        axes = figure.subplot_mosaic([["sums", "rectangles"], ["subs", "sum"]])
        shown = sorted({round(share * (tiling.cells - 1)) for share in (0.2, 0.5, 0.8)})
        _lines(
            axes["sums"],
            x,
            sums[0, shown, 0].numpy(),
            shown,
            "layer 1, before PReLU: 1 - 2 |k - m|, signs of all cells added",
        )
        _lines(axes["rectangles"], x, rectangles[0, shown, 0].numpy(), shown, "layer 1: rectangles of height 1")
        axes["rectangles"].set_ylim(-0.1, 1.35)
        _map(axes["subs"], x, subs[0, :, 0].numpy())
        axes["sum"].plot(
            x, sample(setting.f, [x.astype(np.float64)])[0], color=GREY, linewidth=3, alpha=0.45, label="f"
        )
        axes["sum"].plot(x, made[0, 0, 0].numpy(), color=COLOURS[0], label="network")
        axes["sum"].set(title="layer 3: their sum / Q + f_min", xlabel="x")
        axes["sum"].legend()
        save(figure, path)


def _lines(axis: Axes, x: Floats32, lines: Floats32, cells: list[int], title: str) -> None:
    for index, (cell, line) in enumerate(zip(cells, lines, strict=True)):
        axis.plot(x, line, color=COLOURS[index], label=f"cell {cell}")
    axis.set(title=title, xlabel="x")
    axis.legend(loc="best", fontsize=8)


def _map(axis: Axes, x: Floats32, subs: Floats32) -> None:
    """One row of pixels a sub branch."""
    picture: Floats64 = np.asarray(subs, np.float64)
    axis.grid(False)
    axis.imshow(
        picture,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        cmap="Blues",
        extent=(float(x[0]), float(x[-1]), 0, len(subs)),
    )
    axis.set(title="layer 2: round(Q (f - f_min)) copies of each", xlabel="x", ylabel="sub branch")
