"""What the theorem costs: branches, binary parameters and operations of a plan, in the words of `counts` (sec. 3.2). No torch.

With N = 1/d + 1 cells a coordinate (unit interval, half-width ends; N = 1/d - 1 without), mean height h = mean of f - f_min:

    input branches     2 K N                               1 / d
    rectangles         N^K                                 1 / d^K
    sub branches   S = step * Q * h * N^K                  Q / d^K       step = 1, or 2 for M > 1 outputs (h: of the highest)
    binary weights     2 (K N)^2 + S K N + M S             Q / d^(K + 1)

The error falls as d + 1 / Q, so a precision of e in one dimension costs of the order of 1 / e^3 binary weights. A binary MAC is
done once per weight and point, so operations for one point are as many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bcnn.counting.counts import CountNode
from bcnn.program.counts import Counts
from bcnn.theory.plan import Plan


@dataclass(frozen=True)
class Budget:
    """Branches in the paper's words, and the counts of the three layers for one point x."""

    input_branches: int  # 2 (1/d - 1) in each coordinate, or with half-width ends 2 (1/d + 1)
    rectangles: int  # K-dimensional ones
    sub_branches: int
    layers: CountNode

    @property
    def counts(self) -> Counts:
        return self.layers.counts


def budget(plan: Plan) -> Budget:
    """Counted from the plan; the network need not exist."""
    rectify = (True, True, False)
    nodes = tuple(
        CountNode(f"layer{i}", _layer(*size, prelu=prelu), shape=(size[1], 1, 1))
        for i, (size, prelu) in enumerate(zip(plan.sizes, rectify, strict=True), start=1)
    )
    cells = [tiling.cells for tiling in plan.tilings]
    whole = CountNode("approximator", children=nodes, shape=nodes[-1].shape)
    return Budget(2 * sum(cells), math.prod(cells), int(plan.subs.sum()), whole)


def _layer(branches: int, out: int, channels: int, prelu: bool) -> Counts:
    """P branches of K -> O without identity path: the rules of `counts`, but the first branch has nothing to be added to."""
    words = -(-channels // 32)
    return Counts(
        binary_params=branches * out * channels,
        real_params=branches * (channels + 2 * out) + out * prelu,  # bias; scale and offset; slope
        binary_macs=branches * out * channels,
        adds=branches * (channels + out) + (branches - 1) * out,  # bias, batch norm; module addition
        mults=branches * out,
        signs=branches * channels,
        prelus=out * prelu,
        weight_bytes=4 * (branches * (out * words + channels + 2 * out) + out * prelu),
        map_bytes=4 * out + 4 * branches * words,
    )
