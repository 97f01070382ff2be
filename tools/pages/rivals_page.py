"""Counts, audits, times and equal-budget results -> docs/rivals.md, docs/which_network.md and their picture. For maintainers.

    python -m tools.pages.rivals_page

Nothing on the pages is written by hand but the sentences in this file. Sources: src/bcnn/counting/rivals.json (`tools.pages.count_rivals`),
benchmarks/results/networks-zen4-avx2.json (`bench.networks`), every-network.json (`tools.release.every_network`) and equal-budget.json
(`bench.equal_budget`) beside it, and the published accuracies below. What was not measured is an empty cell. A test compares the pages with their sources.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.pages import read, table
from tools.pages.equal_budget_table import answer, budget_schedule, equal_budget

from bcnn.counting.counts import count
from bcnn.counting.rivals import Rival, rivals
from bcnn.nets.config import preset
from bcnn.program.counts import Counts

ROOT = Path(__file__).resolve().parents[2]
PAGE, WHICH = ROOT / "docs" / "rivals.md", ROOT / "docs" / "which_network.md"
PICTURE = ROOT / "docs" / "images" / "rivals.png"
TIMES = ROOT / "benchmarks" / "results" / "networks-zen4-avx2.json"
WIDE = ROOT / "benchmarks" / "results" / "networks-zen4.json"  # some of them, with AVX-512 for everyone
WHOLE_WAY = ROOT / "benchmarks" / "results" / "every-network.json"
ENGINE, INTEGERS, FLOAT, LARQ = "this engine", "this engine, int16", "ONNX Runtime, float Conv", "Larq Compute Engine"

PAPER, CODE, OTHER = "the BCNN paper", "its official code", "a secondary source"
# Top-1 on ImageNet as published, %, and where it was read. None was measured by this project.
PUBLISHED: dict[str, tuple[float, str]] = {
    "imagenet": (68.96, PAPER),
    "imagenet-p2": (71.24, PAPER),
    "bnn-r18": (42.2, f"{PAPER}, of an unnamed BNN"),
    "xnornet-alexnet": (44.2, OTHER),
    "xnornet-r18": (51.2, CODE),
    "xnornetpp-r18": (57.1, OTHER),
    "abcnet-r18": (65.0, OTHER),
    "birealnet-18": (56.4, CODE),
    "birealnet-34": (62.2, CODE),
    "birealnet-50": (62.6, CODE),
    "birealnet-152": (64.5, PAPER),
    "groupnet-r18": (64.8, OTHER),
    "groupnet-r34": (68.5, OTHER),
    "meliusnet-22": (63.6, CODE),
    "meliusnet-29": (65.8, CODE),
    "meliusnet-42": (69.2, CODE),
    "meliusnet-59": (70.7, CODE),
    "meliusnet-a": (63.4, CODE),
    "meliusnet-b": (65.7, CODE),
    "meliusnet-c": (64.1, CODE),
    "reactnet-a": (69.4, PAPER),
    "reactnet-b": (70.1, OTHER),
    "reactnet-c": (71.4, PAPER),
    "reactnet-r18": (65.9, CODE),
    "real2bin-r18": (65.4, PAPER),
    "mobilenet-v1": (70.6, PAPER),
    "resnet-34": (73.31, CODE),
    "regnetx-400mf": (72.83, CODE),
}
OURS = ("imagenet", "imagenet-p2")
TITLES = {"imagenet": "**BCNN P=1**", "imagenet-p2": "**BCNN P=2**"}


@dataclass(frozen=True)
class Row:
    """One network with all that is known of it."""

    name: str
    counts: Counts  # the scale of a filter as part of the batch norm behind it
    rival: Rival | None  # None: the paper's own
    times: dict[str, float]  # contestant -> least processor time, ms

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)

    @property
    def binary(self) -> bool:
        return self.counts.binary_macs > 0

    @property
    def megabytes(self) -> float:
        return self.counts.paper_param_bytes / 1e6

    @property
    def operations(self) -> float:
        """Normalised MOPs/2 of Table 5."""
        return (self.counts.binary_macs / 64 + self.counts.real_ops) / 1e6

    @property
    def top1(self) -> float | None:
        return PUBLISHED[self.name][0] if self.name in PUBLISHED else None

    @property
    def ms(self) -> float | None:
        return self.times.get(ENGINE)


def rows() -> list[Row]:
    measured = read(TIMES)

    def times(name: str) -> dict[str, float]:
        return {maker: some["cpu"] for maker, some in measured.get(name, {"times": {}})["times"].items()}

    own = [Row(name, count(preset(name)).counts, None, times(name)) for name in OURS]
    return own + [Row(name, rival.folded, rival, times(name)) for name, rival in rivals().items()]


# --- docs/rivals.md -------------------------------------------------------------------------------------------------


def not_one_bit(found: list[Row]) -> str:
    lines = []
    for row in found:
        if row.rival is None:
            lines.append((row.title, "nothing: every matrix product is 1 x 1 bit", "", "", "0%"))
            continue
        real = [p for p in row.rival.products if max(p.bits) > 2]
        padded = sum(p.macs for p in row.rival.products if p.bits == (2, 1))
        all_macs = sum(p.macs for p in row.rival.products)
        macs = sum(p.macs for p in real)
        where = ", ".join(places([module for p in real for module in p.modules])) if row.binary else "everything"
        widths = " and ".join(f"{p.bits[0]} x {p.bits[1]}" for p in real)
        zeros = f"{padded / all_macs:.0%}" if padded else ""
        lines.append((row.title, where, widths, f"{macs / 1e6:,.0f} M", f"{macs / all_macs:.1%}", zeros))
    lines = [cells if len(cells) == 6 else (*cells, "") for cells in lines]
    header = (
        "network | real matrix products | bits | their MACs | share of all MACs | MACs on +-1 maps with zeros around"
    )
    return table(header, lines, words=3)


def places(modules: list[str]) -> list[str]:
    """Names that differ in numbers only are one place: `blocks.*.shortcut.1` (3)."""
    found = Counter(re.sub(r"(?<=\.)\d+(?=\.)|(?<=\.)\d+$", "*", module) for module in modules)
    single = {re.sub(r"(?<=\.)\d+(?=\.)|(?<=\.)\d+$", "*", module): module for module in modules}
    return [f"`{single[place]}`" if many == 1 else f"`{place}` ({many})" for place, many in found.items()]


def counted(found: list[Row]) -> str:
    lines = []
    for row in found:
        c = row.counts
        top1, source = (f"{row.top1:g}", PUBLISHED[row.name][1]) if row.top1 is not None else ("", "")
        lines.append(
            (row.title, top1, source, f"{c.binary_params / 1e6:.2f}", f"{c.binary_macs / 1e9:.2f}", f"{c.real_params / 1e6:.2f}",
             f"{c.real_macs / 1e6:.1f}", f"{c.elementwise / 1e6:.1f}", f"{row.megabytes:.2f}", f"{row.operations:.1f}")
        )  # fmt: skip
    header = "network | top-1 | read in | binary parameters, M | binary MACs, G | real parameters, M | real MACs, M | element-wise, M"
    header += " | parameters, MB | normalised MOPs/2"
    return table(header, lines)


def timed(found: list[Row]) -> str:
    """Ratios are to this engine in float32, and behind them to int16 where that was measured."""
    lines = []
    both = any(INTEGERS in row.times for row in found)
    for row in found:
        if row.ms is None:
            continue
        cells, integers = [row.title, f"**{row.ms:.1f}**"], row.times.get(INTEGERS)
        if both:
            cells.append(f"**{integers:.1f}**" if integers else "")
        for other in (FLOAT, LARQ):
            known = row.times.get(other)
            ratios = [f"{known / ours:.1f}x" for ours in (row.ms, integers) if ours] if known else []
            cells += [f"{known:.1f}" if known else "", ", ".join(ratios)]
        lines.append((*cells, slowest(row.name)))
    ratio = "ratio, to int16" if both else "ratio"
    header = f"network | this engine, ms |{' int16, ms |' if both else ''} ONNX Runtime float, ms | {ratio} | Larq Compute Engine, ms | {ratio}"
    return table(f"{header} | where this engine's time goes", lines)


def slowest(name: str) -> str:
    """The two classes of ops that take longest."""
    classes = read(TIMES)[name]["classes"]
    total = sum(classes.values())
    first = sorted(classes, key=lambda kind: -classes[kind])[:2]
    return ", ".join(f"{kind} {classes[kind] / total:.0%}" for kind in first)


def conditions() -> str:
    measured = read(TIMES)
    if not measured:
        return "Nothing was measured yet: `python -m benchmarks.networks`."
    facts = next(iter(measured.values()))["facts"]
    loads = [float(one["facts"]["load"].split()[0]) for one in measured.values()]
    yardstick = [one["times"]["imagenet"]["cpu"] for one in measured.values() if "imagenet" in one["times"]]
    return (
        f"One image of 224 x 224, one thread, random weights, the least processor time of interleaved runs: {facts['cpu']}; {facts['versions']}{'; ' + facts['isa'] if 'isa' in facts else ''}. "
        f"The machine was busy (load {min(loads):.0f} to {max(loads):.0f} on two cores), so wall times would say little; the paper's network took part in "
        f"each network's turns, and its processor time was {min(yardstick):.1f} to {max(yardstick):.1f} ms. Every contestant was checked before it was timed."
    )


def wide() -> str:
    """What Larq's networks take where nobody is held to AVX2."""
    said = []
    for name, one in read(WIDE).items():
        cpu = {maker: times["cpu"] for maker, times in one["times"].items()}
        ratios = (
            f"{cpu[LARQ] / cpu[ours]:.1f} times as fast {how}"
            for ours, how in ((ENGINE, "in float32"), (INTEGERS, "in int16"))
        )
        said.append(
            f"{name} {cpu[ENGINE]:.1f} and {cpu[INTEGERS]:.1f} ms, Larq {cpu[LARQ]:.1f}: {' and '.join(ratios)}"
        )
    return f"With AVX-512 for everyone, in float32 and int16: {'; '.join(said)}.\n" if said else ""


def missing(found: list[Row]) -> str:
    left = [row.name for row in found if row.ms is None]
    return f"Not measured yet: {', '.join(left)}.\n" if left else ""


def whole_way() -> str:
    """Networks of natural size, random weights, from torch to the engine (`tools.release.every_network`)."""
    from bcnn.nets.registry import ARCHITECTURES

    results = read(WHOLE_WAY)
    lines = []
    for name in (name for name in ARCHITECTURES if name in results):
        one = results[name]
        wrong = "; ".join(f"{check}: {said}" for check, said in one.get("checks", {}).items() if said != "ok")
        said = one.get("error") or wrong or "all equal"
        height, width = ARCHITECTURES[name].size
        lines.append(
            (TITLES.get(name, name), f"{height} x {width}", str(one.get("ops", "")), f"{one['bytes']:,}" if "bytes" in one else "",
             said, f"{one['peak_mb']:,}" if "peak_mb" in one else "")
        )  # fmt: skip
    left = [name for name in ARCHITECTURES if name not in results]
    made = table("network | image | ops | file, bytes | engine and interpreter | peak memory of it all, MB", lines)
    return made + (f"\nStill to be run: {', '.join(left)}.\n" if left else "")


def page() -> str:
    found = rows()
    return f"""# The rivals

Every network that the paper compares itself with, built from this package's own layers, and counted, audited, packed and run by the same code.
`bcnn networks` lists them; `bcnn summary NAME`, `bcnn audit NAME`, `bcnn train --network NAME`, `bcnn pack NAME`, `bcnn bench NAME` take any. This page is made by
`python -m tools.pages.rivals_page`. [Which one should I use?](which_network.md)

![Published accuracy against parameters, operations and time](images/rivals.png)

Accuracies are the published ones, read where the second table says; this project has trained none of these networks on ImageNet.

## What is not 1 bit

The paper's thesis is that every operation which lowers to a matrix-matrix product can be 1 bit x 1 bit. `bcnn audit NAME` looks at the values that reach each product. Fully
connected layers and gates on one image, and depth wise convolutions, are products with a vector and are not listed. A map of +-1 with zeros around it has a third value and is 2 bits wide;
the engine skips such taps and stays exact, so these convolutions run as bits, but they are not 1 x 1 bit as the paper means it.

{not_one_bit(found)}
## Counts

By the rules of the paper's Tables 4 and 5, for one image: parameters in MB are int8 real and 1-bit binary ones, normalised operations are binary MACs / 64 + real MACs + element-wise / 2.
The scale of a filter counts as part of the batch norm behind it where there is one. `bcnn tables` shows which rules the printed rows of MeliusNet and ReActNet follow. Binary
parameters are bits that are stored: all bases of ABC-Net. The first layer of BNN has weights of one bit, but reads a real image: they are counted as real.

{counted(found)}
## Times

{conditions()}

{timed(found)}
{missing(found)}
ONNX Runtime runs the same network with float convolutions of +-1 weights. Larq Compute Engine (`use_indirect_bgemm=True`) runs a Keras model of the same shapes, in a process of its own, on an
instruction set that it is not mainly made for: its fast kernels are for ARM, and here it counts bits word by word. Its real layers stay in float32, so its ratio to float32 is the plain comparison; int16 is a converted network of this
package, whose accuracy with trained weights [engine.md](engine.md#in-integers) tells. ABC-Net, 42 and 88 G binary MACs, was not run in float. The aim, 5 times Larq's speed, is reached for reactnet-a, and for birealnet-18 only in int16 with AVX-512: more than a third of its time are the real stem and shortcuts.
{wide()}
## The whole way, with ==

Each registered network at its own size, with random weights: lowered, packed, read again, and run on one image by the engine in every instruction set of the machine. Every map of it
equals that of the NumPy interpreter, with `==`; torch's is equal op by op, up to rounding. `python -m tools.release.every_network`; the memory is mostly that of recording torch.

{whole_way()}
## Trained at equal budget

{budget_schedule()}

{equal_budget()}"""


# --- docs/which_network.md ------------------------------------------------------------------------------------------


def which() -> str:
    found = [row for row in rows() if row.top1 is not None]
    binary = [row for row in found if row.binary]
    known = [row for row in binary if row.ms is not None]
    lines = []
    for least in (40, 55, 60, 65, 68, 70):
        good = [row for row in binary if (row.top1 or 0) >= least]
        fast = [row for row in known if (row.top1 or 0) >= least]
        if not good or not fast:
            continue
        small, few, quick = (
            min(good, key=lambda row: row.megabytes),
            min(good, key=lambda row: row.operations),
            min(fast, key=lambda row: row.ms or 0),
        )
        lines.append(
            (f"{least} %", f"{small.title}, {small.megabytes:.2f} MB", f"{few.title}, {few.operations:.0f} M", f"{quick.title}, {quick.ms:.1f} ms")
        )  # fmt: skip
    left = [row.name for row in binary if row.ms is None]
    note = f"\nTimes of {', '.join(left)} are still to be measured, so the last column may change.\n" if left else ""
    clean = ", ".join(row.title for row in binary if row.rival is None)
    return f"""# Which binary network should I use?

The answers below are picked by `python -m tools.pages.rivals_page` from the tables of [rivals.md](rivals.md): published accuracies on ImageNet, our counts, and times measured in this engine on one AVX2 core.

## For 1000 classes at 224 x 224

{table("at least this top-1, as published | fewest bytes of parameters | fewest normalised operations | least time in this engine", lines)}{note}
## All matrix products 1 x 1 bit

{clean}: every other network here has real matrix products or zeros around its +-1 maps ([what is not 1 bit](rivals.md#what-is-not-1-bit)). Choose these for hardware that has nothing but bits for matrices.

## With your own training budget

Published accuracies come from different schedules, teachers and epochs. Trained alike and briefly, at about the same binary MACs, on CIFAR-10 ([how](rivals.md#trained-at-equal-budget)):

{answer()}{equal_budget()}"""


# --- the picture ----------------------------------------------------------------------------------------------------


def label(axes: Any, points: list[tuple[str, float, float, str]]) -> None:
    """Names beside their points, each at the first place around its point where no other name and no point is."""
    spots = axes.transData.transform([(x, y) for _, x, y, _ in points])
    taken = [(left - 4, low - 4, left + 4, low + 4) for left, low in spots]  # pixels
    for (name, x, y, color), (left, low) in zip(points, spots, strict=True):
        wide, high = 4.9 * len(name), 9
        for dx, dy in (
            (5, 2),
            (5, -10),
            (-wide - 5, 2),
            (-wide - 5, -10),
            (5, 12),
            (5, -20),
            (-wide - 5, 12),
            (-wide - 5, -20),
            (5, 22),
            (5, -30),
        ):
            box = (left + dx, low + dy, left + dx + wide, low + dy + high)
            if all(box[2] < a or box[0] > c or box[3] < b or box[1] > d for a, b, c, d in taken):
                break
        taken.append(box)
        axes.annotate(
            name, (x, y), xytext=(dx * 0.72, dy * 0.72), textcoords="offset points", fontsize=6.5, color=color
        )


def draw() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    found = [row for row in rows() if row.top1 is not None]
    figure = Figure(figsize=(15, 6.2), layout="constrained")
    panels = {
        "parameters, MB (int8 real, 1-bit binary)": lambda row: row.megabytes,
        "normalised MOPs/2": lambda row: row.operations,
        "ms in this engine, one AVX2 core": lambda row: row.ms,
    }
    named: list[tuple[Any, list[tuple[str, float, float, str]]]] = []
    for axes, (what, value) in zip(figure.subplots(1, 3, sharey=True), panels.items(), strict=True):
        points: list[tuple[str, float, float, str]] = []
        for row in found:
            x = value(row)
            if x is None:
                continue
            color = "#dc2626" if row.rival is None else "#2563eb" if row.binary else "#9ca3af"
            axes.plot(x, row.top1, "o", color=color, markersize=6)
            points.append((row.title.strip("*"), x, row.top1, color))
        axes.set_xscale("log")
        axes.set_xlabel(what)
        axes.grid(alpha=0.3, which="both")
        axes.margins(x=0.18)
        named.append((axes, points))
    figure.axes[0].set_ylabel("top-1 on ImageNet, %, as published")
    figure.draw_without_rendering()  # places the panels: labels need their sizes
    for axes, points in named:
        label(axes, points)
    figure.suptitle("red: the paper's, blue: other binary networks, grey: real networks", fontsize=10)
    figure.savefig(PICTURE, dpi=100)


def write() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    WHICH.write_text(which(), encoding="utf-8")
    draw()


def main() -> None:
    write()
    print(f"wrote {', '.join(str(path.relative_to(ROOT)) for path in (PAGE, WHICH, PICTURE))}")


if __name__ == "__main__":
    main()
