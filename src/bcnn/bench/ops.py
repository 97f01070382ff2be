"""Where the engine's time goes: seconds per op -> time, share and binary GMAC/s per class of ops. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnn import program as p

CLASSES: dict[type, str] = {
    p.Input: "input",
    p.BinaryConv: "binary conv",
    p.DepthwiseConv: "depth wise",
    p.AvgPool: "pool",
    p.ChannelAvg: "pool",
    p.GlobalAvgPool: "decoder",
    p.Linear: "decoder",
}
LATE = 256  # channels of the levels where the popcount decides, and no longer the work around it


@dataclass(frozen=True)
class OpClass:
    name: str
    ms: float
    share: float  # of the sum over all ops
    gmacs: float  # binary GMAC/s, 0 where there are none


def binary_macs(program: p.Program, index: int) -> int:
    """H W O K for every branch."""
    op = program.ops[index]
    if not isinstance(op, p.BinaryConv):
        return 0
    height, width, o = program.shapes[index]
    return height * width * o * sum(branch.threshold.size for branch in op.branches)


def op_classes(program: p.Program, seconds: Sequence[float]) -> list[OpClass]:
    """One row per class, in the order of `CLASSES`, the classes that the program has."""
    total = sum(seconds)
    rows = []
    for name in dict.fromkeys(CLASSES.values()):
        members = [index for index, op in enumerate(program.ops) if CLASSES[type(op)] == name]
        spent = sum(seconds[index] for index in members)
        macs = sum(binary_macs(program, index) for index in members)
        if members:
            rows.append(OpClass(name, spent * 1e3, spent / total, macs / spent / 1e9 if macs else 0.0))
    return rows


def late_gmacs(program: p.Program, seconds: Sequence[float]) -> float:
    """Binary GMAC/s of the convolutions with `LATE` channels or more, the work around their dots included; 0 without any."""
    late = [i for i, op in enumerate(program.ops) if isinstance(op, p.BinaryConv) and program.shapes[i][2] >= LATE]
    spent = sum(seconds[index] for index in late)
    return sum(binary_macs(program, index) for index in late) / spent / 1e9 if late else 0.0


def least(samples: Sequence[Sequence[float]]) -> list[float]:
    """The minimum of every op over several profiles."""
    return [float(value) for value in np.min(np.asarray(samples), axis=0)]


def text(rows: Sequence[OpClass], late: float, peak: float) -> str:
    lines = [f"{'op class':12}  {'ms':>7}  {'share':>6}  {'binary GMAC/s':>13}"]
    for row in rows:
        gmacs = f"{row.gmacs:.0f}" if row.gmacs else ""
        lines.append(f"{row.name:12}  {row.ms:7.3f}  {row.share:6.1%}  {gmacs:>13}")
    if late:
        lines.append(f"levels of {LATE} channels and up: {late:.0f} GMAC/s, {late / peak:.0%} of the xor + popcount peak")
    lines.append(f"xor + popcount peak measured on this core: {peak:.0f} binary GMAC/s")
    return "\n".join(lines) + "\n"
