"""Section 3.2 as a picture: where branches are needed, what a larger range costs, what d, Q and K cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bcnn.theory.bound import errors
from bcnn.theory.budget import budget
from bcnn.theory.construction import Approximator, evaluate
from bcnn.theory.convergence import Setting
from bcnn.theory.plan import make_plan, sample
from bcnn.theory.plots import COLOURS, GREY, STYLE, save
from bcnn.theory.tiling import Floats64

T = TypeVar("T")
Track = Callable[[list[T]], Iterable[T]]  # a progress bar over a list
NO_LIMIT = 1 << 60  # budgets of networks that are counted, not built


def draw_implications(
    setting: Setting, d: float, q: float, title: str, path: Path, track: Track[int] = lambda items: items
) -> None:
    """Four panels for a function of one coordinate."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 6.6), layout="constrained")
        figure.suptitle(f"Implications (sec. 3.2):  {title}")
        axes = figure.subplot_mosaic([["tiling", "branches"], ["range", "cost"]])
        _tilings(axes["tiling"], setting, d, q)
        _branches(axes["branches"], setting, d, q, track)
        _range(axes["range"], setting, d, q)
        _cost(axes["cost"], q)
        save(figure, path)


def _tilings(axis: Axes, setting: Setting, d: float, q: float) -> None:
    """The same number of cells, placed evenly and placed where f varies."""
    ((low, high),) = setting.domain
    x = np.linspace(low, high, 3000).astype(np.float32).astype(np.float64)
    f = sample(setting.f, [x])[0]
    bottom, height = float(f.min()), float(np.ptp(f)) or 1.0
    axis.plot(x, f, color=GREY, linewidth=3, alpha=0.45, label="f")
    for index, adaptive in enumerate((False, True)):
        network = Approximator(replace(setting, adaptive=adaptive).plan(d, q))
        (tiling,) = network.plan.tilings
        name = "adaptive" if adaptive else "uniform"
        axis.plot(x, evaluate(network, x)[0], color=COLOURS[index], linewidth=1, label=f"{name}, {tiling.cells} cells")
        line = bottom - height * (0.08 + 0.07 * index)
        axis.plot(tiling.edges, np.full(tiling.edges.size, line), "|", color=COLOURS[index], markersize=6)
    axis.legend(loc="best", fontsize=8)
    axis.set(title="more branches where f varies more (ticks: cell edges)", xlabel="x")


def _branches(axis: Axes, setting: Setting, d: float, q: float, track: Track[int]) -> None:
    ((low, high),) = setting.domain
    n = round((high - low) / d)
    cells = sorted({max(4, round(n * factor)) for factor in (0.25, 0.5, 1, 2, 4)})
    lines: dict[str, list[float]] = {"uniform": [], "adaptive": []}
    for count in track(cells):
        for name, line in lines.items():
            plan = replace(setting, adaptive=name == "adaptive").plan((high - low) / count, q)
            line.append(errors(Approximator(plan), setting.f, 2000)[0])
    for index, (name, line) in enumerate(lines.items()):
        axis.plot(cells, line, "o-", color=COLOURS[index], markersize=3.5, label=name)
    axis.axhline(1 / (2 * q), color="black", linestyle=":", label=f"1 / (2 Q), Q = {q:g}")
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="1 / d: cells",
        ylabel="largest error",
        title="an adaptive tiling needs fewer",
    )
    axis.set_xticks(cells, [str(count) for count in cells])
    axis.xaxis.minorticks_off()
    axis.legend(fontsize=8)


def _range(axis: Axes, setting: Setting, d: float, q: float) -> None:
    """Steps of 1 / Q are kept while f is stretched; or they are stretched with it."""
    factors = [1, 2, 4, 8, 16]

    def subs(factor: int, quantum: float) -> int:
        def stretched(x: Floats64) -> Floats64:
            return np.asarray(setting.f(x)) * factor

        return budget(replace(setting, f=stretched).plan(d, quantum, memory_limit=NO_LIMIT)).sub_branches

    axis.plot(
        factors,
        [subs(a, q) for a in factors],
        "o-",
        color=COLOURS[0],
        markersize=3.5,
        label=f"the same steps 1 / Q, Q = {q:g}",
    )
    axis.plot(
        factors,
        [subs(a, q / a) for a in factors],
        "o-",
        color=COLOURS[1],
        markersize=3.5,
        label="steps stretched with f",
    )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="f stretched by",
        ylabel="sub branches",
        title="more sub branches for a larger range",
    )
    axis.set_xticks(factors, [str(a) for a in factors])
    axis.xaxis.minorticks_off()
    axis.legend(fontsize=8)


def _cost(axis: Axes, q: float) -> None:
    """A ramp in K dimensions: the growth is that of any function."""
    counts = {1: (4, 8, 16, 32, 64, 128, 256), 2: (4, 8, 16, 32, 64), 3: (4, 8, 16, 32)}

    def ramp(*coordinates: Floats64) -> Floats64:
        return np.asarray(sum(coordinates) / len(coordinates))

    for index, (k, line) in enumerate(counts.items()):
        for style, quantum in (("-", q), ("--", q / 4)):
            weights = [
                make_plan(ramp, [(0.0, 1.0)] * k, 1 / n, quantum, memory_limit=NO_LIMIT).binary_weights for n in line
            ]
            axis.plot(
                line,
                weights,
                "o" + style,
                color=COLOURS[index],
                markersize=3,
                linewidth=1.2,
                label=f"K = {k}, Q = {quantum:g}",
            )
    axis.set(
        xscale="log",
        yscale="log",
        xlabel="1 / d",
        ylabel="binary weights, MACs a point",
        title="the price: Q / d$^{K + 1}$",
    )
    axis.set_xticks(counts[1], [str(n) for n in counts[1]])
    axis.xaxis.minorticks_off()
    axis.legend(fontsize=8, ncols=2)
