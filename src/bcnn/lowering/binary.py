"""A binary convolution, recognised: a step (`graph.step`) against a constant weight that is +-1 times one scale per output channel,
however that was made. Padding may stand in the convolution, after the sign or before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from bcnn.capture.capture import Node, Value
from bcnn.capture.channel_permutation import unmoved
from bcnn.capture.sign_detection import Step
from bcnn.lowering.filters import filter_of, magnitudes
from bcnn.lowering.fold import Folded, Term
from bcnn.program import ops as o

if TYPE_CHECKING:
    from bcnn.lowering.lower import Lowering


@dataclass(frozen=True, eq=False)
class Binary:
    """A binary convolution found: the map it reads, and the branch it would be."""

    source: Value
    reads: int
    window: o.Window
    groups: int
    term: Term
    node: Node

    def fits(self, other: Binary) -> bool:
        """Whether both can be branches of one op."""
        mine = self.source, self.reads, self.window, self.groups, self.term.bits.shape
        return mine == (other.source, other.reads, other.window, other.groups, other.term.bits.shape)


def binary_of(lowering: Lowering, value: Value) -> Binary | None:
    """The binary convolution that makes `value`, if one does."""
    known: dict[Value, Binary | None] = lowering.__dict__.setdefault("binaries", {})
    if value not in known:
        known[value] = _binary_of(lowering, value)
    return known[value]


def _binary_of(lowering: Lowering, value: Value) -> Binary | None:
    found = filter_of(lowering, value)
    if found is None:
        return None
    scale = magnitudes(found.weight)
    if scale is None:
        return None
    x = unmoved(found.x)
    outer, outer_value = (0, 0, 0, 0), 0.0
    if x.node is not None and x.node.op == "constant_pad_nd" and lowering.step(x.node.args[0]) is not None:
        left, right, top, bottom, *more = [*x.node.args[1], 0, 0, 0, 0][:6]
        if not any(more):
            outer, outer_value, x = (top, left, bottom, right), float(x.node.arg(2, "value", 0) or 0), x.node.args[0]
    step = lowering.step(x)
    if step is None:
        return None
    kinds = [pads for pads in (step.padding, outer, found.padded) if any(pads)]
    if len(kinds) > 1:
        raise lowering.error(found.node, "its map is padded twice, before and after the sign: pad once")
    padding = kinds[0] if kinds else (0, 0, 0, 0)
    pad = _pad_bits(lowering, found.node, step, outer, outer_value, found.padded)
    if pad is None and any(p > 0 for p in padding) and step.middle:
        raise lowering.error(
            found.node,
            f"its input has the values {step.low:g} and {step.high:g} and zeros around the map: pad with one of them",
        )
    source, reads = lowering.replicated(step.source)
    bits = found.weight >= 0
    made, inner = bits.shape[:2]
    falls = step.falls.reshape(found.groups, inner)
    group = torch.arange(made) // (made // found.groups)
    bits = bits != falls[group][:, :, None, None]
    level = float(step.half) * scale.numpy()
    offset, size = np.zeros(made), np.zeros(made)
    # Weights and levels that torch has only up to rounding: what compare must allow for, as magnitudes that round by so much.
    size = (
        size + float(step.half) * (found.weight.double().abs().flatten(1) - scale[:, None]).abs().sum(1).numpy() * 2**21
    )
    size = size + step.off * scale.numpy() * found.weight[0].numel() * 2**21
    if step.middle:
        extra = step.middle * found.weight.double().sum((1, 2, 3)).numpy()
        offset, size = offset + extra, size + np.abs(extra)
    if found.bias is not None:
        offset, size = offset + found.bias, size + np.abs(found.bias)
    window, shift = _shifted(o.Window(found.window.kernel, found.window.stride, padding, found.window.dilation))
    taps = bits.permute(0, 2, 3, 1).reshape(made, -1, inner).numpy()
    if pad is not None:
        pad = pad != step.falls.numpy()
    term = Term(step.threshold.double().numpy(), taps, Folded(level, offset, size), pad, shift)
    return Binary(source, reads, window, found.groups, term, found.node)


def _pad_bits(
    lowering: Lowering, node: Node, step: Step, outer: tuple[int, ...], outer_value: float, padded: tuple[int, ...]
) -> NDArray[np.bool_] | None:
    """The level of each channel outside the map; none where it is 0, no level, or where nothing is padded."""
    if any(step.padding) and step.pad is not None:
        return step.pad.numpy() if any(p > 0 for p in step.padding) else None
    value = outer_value if any(outer) else 0.0
    if not any(p > 0 for p in (*outer, *padded)):
        return None
    near = 1e-3 * (step.high - step.low)
    for level, bit in ((step.low, False), (step.high, True)):
        if abs(value - level) <= near:
            return np.full(step.threshold.numel(), bit)
    if value != 0:
        raise lowering.error(
            node, f"its map is padded with {value:g}, but has the values {step.low:g} and {step.high:g}"
        )
    return None


def _shifted(window: o.Window) -> tuple[o.Window, tuple[int, int]]:
    """A window that reads one pixel elsewhere, as many rows added above as cut below, is a shift."""
    top, left, bottom, right = window.padding
    if window.kernel == (1, 1) and window.stride == (1, 1) and top == -bottom and left == -right and (top or left):
        return o.Window(), (-top, -left)
    return window, (0, 0)
