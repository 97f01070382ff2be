"""Records and scores -> pictures: the curves of a run, the activity of its layers, a confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

matplotlib.use("Agg")
INK, BLUE, RED, GREY = "#1f2937", "#2563eb", "#dc2626", "#9ca3af"
MetricsRecord = dict[str, Any]  # of metrics.jsonl


def curves(epochs: Sequence[MetricsRecord], updates: Sequence[MetricsRecord]) -> Figure:
    """Loss, accuracy, learning rate, and what the latent weights do, over epochs; the steps side by side."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    loss, accuracy, rate, latent = figure.subplots(2, 2).flat
    x = [r["epochs_done"] for r in epochs]
    loss.plot(x, [r["loss"] for r in epochs], color=BLUE, label="training")
    measured = [r for r in epochs if r["accuracy"] is not None]
    at_measured = [r["epochs_done"] for r in measured]
    loss.plot(at_measured, [r["val_loss"] for r in measured], ".-", color=RED, label="evaluation, against labels")
    accuracy.plot(x, [100 * r["train_accuracy"] for r in epochs], color=BLUE, label="training, augmented")
    accuracy.plot(at_measured, [100 * r["accuracy"] for r in measured], ".-", color=RED, label="evaluation")
    per_epoch = epochs[-1]["updates"] / epochs[-1]["epochs_done"] if epochs else 1
    at = [r["updates"] / per_epoch for r in updates]
    rate.plot(at, [r["lr"] for r in updates], color=INK)
    rate.set_yscale("log")
    latent.plot(at, [100 * r["flips"] for r in updates], color=GREY, linewidth=0.8, label="signs flipped per update")
    latent.plot(x, [100 * r["outside"] for r in epochs], color=RED, label="latents outside [-1, 1]")
    latent.set_yscale("symlog", linthresh=1e-3)  # clipped latents are at 0, which a logarithm does not show
    for axes, title in (
        (loss, "loss"),
        (accuracy, "accuracy, %"),
        (rate, "learning rate"),
        (latent, "latent weights, %"),
    ):
        axes.set_title(title, loc="left", fontsize=11, color=INK)
        axes.set_xlabel("epoch", color=INK)
        axes.grid(alpha=0.25)
        axes.margins(y=0.2)  # room for the names of the steps
        axes.spines[["top", "right"]].set_visible(False)
        _mark_steps(axes, epochs)
        if axes is not rate:
            axes.legend(frameon=False, fontsize=9)
    return figure


def _mark_steps(axes: Any, epochs: Sequence[MetricsRecord]) -> None:
    """A line where a step begins, with its name at the top; a name that would run into the one before it stands lower."""
    starts = {r["step"]: r["epochs_done"] - r["epoch"] for r in epochs}
    letter = 0.016 * (epochs[-1]["epochs_done"] if epochs else 1)  # its width, about
    ends: list[float] = []  # of the names in each line
    for step, start in starts.items():
        line = next((index for index, end in enumerate(ends) if end <= start), len(ends))
        ends[line : line + 1] = [start + letter * (len(step) + 1)]
        axes.axvline(start, color=GREY, linewidth=0.8, linestyle=":")
        axes.annotate(step, (start, 1), xycoords=("data", "axes fraction"), xytext=(3, -10 - 11 * line),
                      textcoords="offset points", fontsize=8, color=GREY,
                      bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1})  # fmt: skip


def activity(epochs: Sequence[MetricsRecord]) -> Figure:
    """Balance and surviving share of every branch (rows) in every epoch (columns)."""
    layers = list(epochs[-1]["balance"])
    figure = Figure(figsize=(11, max(2.6, 0.17 * len(layers) + 1.2)), layout="constrained")
    if not layers:
        figure.text(0.5, 0.5, "no layer of this network is binary", ha="center", color=GREY)
        return figure
    for axes, key, title, colours in zip(
        figure.subplots(1, 2, sharey=True),
        ("balance", "surviving"),
        ("share of +1 among binarized activations", "share through which gradient survives (Eq. 1)"),
        ("RdBu", "viridis"),
        strict=True,
    ):
        table = np.array([[record[key][layer] for record in epochs] for layer in layers])
        extent = (0.5, len(epochs) + 0.5, len(layers) - 0.5, -0.5)
        image = axes.imshow(table, aspect="auto", cmap=colours, vmin=0, vmax=1, extent=extent, interpolation="nearest")
        axes.set_title(title, loc="left", fontsize=11, color=INK)
        axes.set_xlabel("epoch", color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_yticks(range(len(layers)), [name.replace(".branches", "") for name in layers], fontsize=7)
        figure.colorbar(image, ax=axes, shrink=0.9)
    return figure


def confusion(counts: NDArray[np.int64], classes: Sequence[str]) -> Figure:
    """Rows are true classes, columns predictions, shares of the row; up to 30 classes with figures in the cells."""
    n = len(classes)
    side = min(14.0, max(4.0, 0.45 * n + 2))
    figure = Figure(figsize=(side, side * 0.92), layout="constrained")
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xlabel("predicted", color=INK)
    axes.set_ylabel("true", color=INK)
    if n <= 30:
        axes.set_xticks(range(n), classes, rotation=60, ha="right", fontsize=8)
        axes.set_yticks(range(n), classes, fontsize=8)
        for i, j in zip(*np.nonzero(counts), strict=True):
            colour = "white" if shares[i, j] > 0.5 else INK
            axes.text(j, i, f"{counts[i, j]}", ha="center", va="center", fontsize=7, color=colour)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
    return figure
