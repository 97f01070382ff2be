"""Pictures of the theorem: a function, its network, the error, and how it falls as d -> 0 and Q -> infinity (sec. 3.1)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from bcnn.base.files import replacing
from bcnn.theory.bound import probes
from bcnn.theory.construction import Approximator, evaluate
from bcnn.theory.convergence import Point, Setting
from bcnn.theory.plan import grid, sample
from bcnn.theory.tiling import Floats64

# Distinct for colour-blind readers and in grey (Okabe and Ito's palette, dark enough for lines).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#666666"
IMAGE_SIDE = 192  # at most, of the 2-D pictures; fewer where the network is large
IMAGE_WORK = 16 << 30  # binary MACs to spend on a picture
STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.alpha": 0.25, "legend.frameon": False, "figure.dpi": 110,
}  # fmt: skip


def draw(setting: Setting, network: Approximator, points: Sequence[Point], title: str, path: Path) -> None:
    """The whole picture for one function, written to `path` (.png, .svg or .pdf)."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 6.6), layout="constrained")
        plan = network.plan
        shape = " x ".join(str(tiling.cells) for tiling in plan.tilings)
        figure.suptitle(
            f"{title}:  {shape} cells, Q = {plan.Q:g}, {int(plan.subs.sum()):,} sub branches, "
            f"{plan.binary_weights:,} binary weights"
        )
        halves: Any = figure.subfigures(2, 1)  # matplotlib types the array as a figure
        upper, lower = halves
        below = lower.subplot_mosaic([["d", "Q"]])
        if len(plan.tilings) == 1:
            above = upper.subplot_mosaic([["f", "error"]])
            _curves(setting, network, above["f"], above["error"])
        else:
            _images(setting, network, figure, upper.subplot_mosaic([["f", "net", "error"]]))
        _over(below["d"], points, "d", "Q")
        _over(below["Q"], points, "Q", "d")
        save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """A PNG of lines is reduced to 256 colours: a quarter of the bytes, and no visible difference."""
    if path.suffix != ".png" or any(axis.images for axis in figure.axes):
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix[1:])
        return
    buffer = io.BytesIO()
    figure.savefig(buffer)
    with Image.open(buffer) as image, replacing(path) as file:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)


def _curves(setting: Setting, network: Approximator, top: Axes, below: Axes) -> None:
    (tiling,) = network.plan.tilings
    everywhere = np.linspace(tiling.low, tiling.high, 2000)
    (covered,) = probes(network.plan, 4000)
    x = np.unique(np.concatenate([everywhere, covered]).astype(np.float32)).astype(np.float64)
    made, wanted = evaluate(network, x), sample(setting.f, [x])
    for m, (y, f) in enumerate(zip(made, wanted, strict=True)):
        name = f" (output {m})" if len(made) > 1 else ""
        colour = COLOURS[m % len(COLOURS)]
        top.plot(x, f, color=GREY, linewidth=3, alpha=0.45, label="f" if m == 0 else None)
        top.plot(x, y, color=colour, linewidth=1, label=f"network{name}")
        below.plot(x, y - f, color=colour, linewidth=0.7)
    top.legend(loc="best")
    top.set(title="f and its binary network", xlabel="x")
    bound = setting.bound(network.plan)
    below.axhline(bound, color="black", linestyle=":", linewidth=1)
    below.axhline(-bound, color="black", linestyle=":", linewidth=1, label=f"bound {bound:.3g}")
    below.legend(loc="upper right")
    inside = (x >= tiling.covered[0]) & (x <= tiling.covered[1])
    reach = max(1.5 * bound, 1.1 * float(np.abs(made - wanted)[:, inside].max()))
    below.set(title="error: network - f", xlabel="x", ylim=(-reach, reach))


def _images(setting: Setting, network: Approximator, figure: Figure, axes: dict[str, Axes]) -> None:
    plan = network.plan
    side = int(min(IMAGE_SIDE, max(24, (IMAGE_WORK / plan.binary_weights) ** 0.5)))
    spans = [tiling.covered for tiling in plan.tilings[:2]]
    lines = [low + (high - low) * (np.arange(side) + 0.5) / side for low, high in spans]
    rest = [np.full(side * side, (tiling.low + tiling.high) / 2) for tiling in plan.tilings[2:]]
    where = [*grid(lines), *rest]
    wanted = sample(setting.f, where)
    made: Floats64 = evaluate(network, *where).astype(np.float64)
    extent = (*spans[0], *spans[1])
    slice_of = f" (z = {rest[0][0]:g})" if rest else ""

    def show(axis: Axes, values: Floats64, title: str, **options: Any) -> Any:
        image = values.reshape(-1, side, side).transpose(2, 1, 0)  # outputs, x, y -> rows of y, columns of x
        axis.grid(False)
        axis.set_box_aspect(1)
        axis.set(title=title, xlabel="x", ylabel="y")
        picture = image.clip(0, 1) if image.shape[2] == 3 else image[:, :, 0]
        return axis.imshow(picture, origin="lower", extent=extent, aspect="auto", interpolation="nearest", **options)

    low, high = float(wanted[0].min()), float(wanted[0].max())
    show(axes["f"], wanted, "f" + slice_of, vmin=low, vmax=high)
    shown = show(axes["net"], made, "its binary network", vmin=low, vmax=high)
    if len(wanted) != 3:
        figure.colorbar(shown, ax=axes["net"], shrink=0.85)
    distance = np.abs(made - wanted).max(axis=0, keepdims=True)
    figure.colorbar(show(axes["error"], distance, "|network - f|", cmap="magma", vmin=0), ax=axes["error"], shrink=0.85)


def _over(axis: Axes, points: Sequence[Point], name: str, other: str) -> None:
    """Largest error against d (or Q), one line for each Q (or d); the finest also with its mean and its bound. Zero has no place on a log axis."""
    lines = sorted({getattr(point, other) for point in points}, reverse=other == "d")
    for index, value in enumerate(lines):
        line = sorted(
            (point for point in points if getattr(point, other) == value), key=lambda p: float(getattr(p, name))
        )
        x = [getattr(point, name) for point in line]
        axis.plot(
            x,
            [p.largest or np.nan for p in line],
            "o-",
            color=COLOURS[index % len(COLOURS)],
            markersize=3.5,
            label=f"{other} = {value:.3g}",
        )
        if value == lines[-1]:
            axis.plot(
                x,
                [p.mean or np.nan for p in line],
                "--",
                color=COLOURS[index % len(COLOURS)],
                linewidth=1,
                label="its mean error",
            )
            axis.plot(x, [p.bound for p in line], ":", color="black", label="its bound")
    axis.set(xscale="log", yscale="log", xlabel=name, ylabel="largest error", title=f"error over {name}")
    ticks = sorted({float(getattr(point, name)) for point in points})
    axis.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axis.xaxis.minorticks_off()
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
