"""Convolutions and fully connected layers as torch ran them: which map, which weights, and whether those are +-1 times a scale.

A fully connected layer is a convolution whose filter is the whole map that was flattened before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from bcnn.capture.capture import Node, Value
from bcnn.capture.channel_permutation import reshaped
from bcnn.lowering.fold import Doubles
from bcnn.program import ops as o

if TYPE_CHECKING:
    from bcnn.lowering.lower import Lowering

ALIKE = 1e-5  # magnitudes of a filter's weights may be off by rounding


@dataclass(frozen=True, eq=False)
class Filter:
    """A convolution or fully connected layer as torch ran it: which map, which weights."""

    node: Node
    x: Value  # the map, N,C,H,W or N,F
    weight: Tensor  # O, C / G, kernel height, kernel width
    bias: Doubles | None
    window: o.Window
    groups: int
    padded: tuple[int, int, int, int]  # by torch, with zeros


def filter_of(lowering: Lowering, value: Value) -> Filter | None:
    node = value.node
    if node is None:
        return None
    if node.op == "convolution":
        x, weight, bias, stride, padding, dilation, transposed, _, groups = node.args[:9]
        if transposed:
            raise lowering.error(node, "a transposed convolution is not lowered; upsample and convolve instead")
        if x.tensor.dim() != 4 or not weight.constant:
            raise lowering.error(node, "only two-dimensional convolutions with constant weights are lowered")
        pads = (padding[0], padding[-1], padding[0], padding[-1])
        kernel = (weight.shape[2], weight.shape[3])
        window = o.Window(kernel, (stride[0], stride[-1]), pads, (dilation[0], dilation[-1]))
        return Filter(node, x, weight.tensor, _bias(bias), window, groups, pads)
    if node.op in ("addmm", "mm"):
        bias, x, matrix = (None, *node.args[:2]) if node.op == "mm" else node.args[:3]
        if x.constant or not matrix.constant or x.shape[0] != 1:
            raise lowering.error(node, "only products of one image's vector with a constant matrix are lowered")
        if node.op == "addmm" and (node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("beta", 1) != 1):
            raise lowering.error(node, "addmm with alpha or beta is not lowered")
        source = behind_flatten(x)
        kernel = (1, 1) if source.tensor.dim() == 2 else (source.shape[2], source.shape[3])
        weight_t = matrix.tensor.t().reshape(matrix.shape[1], source.shape[1], *kernel)
        return Filter(node, x, weight_t, _bias(bias), o.Window(kernel), 1, (0, 0, 0, 0))
    return None


def behind_flatten(x: Value) -> Value:
    """The map that a vector was flattened from, through what works value by value."""
    from bcnn.capture.sign_detection import RESHAPES, origins

    best = reshaped(x)
    if best.tensor.dim() == 4:
        return best
    for source, nodes in origins(x):
        if (
            any(n.op in RESHAPES for n in nodes)
            and source.tensor.dim() == 4
            and source.tensor.numel() == x.tensor.numel()
        ):
            return source
    return best


def _bias(bias: Any) -> Doubles | None:
    return None if bias is None else np.broadcast_to(bias.tensor.double().numpy(), bias.tensor.shape)


def magnitudes(weight: Tensor) -> Tensor | None:
    """The scale of each filter whose weights are all plus or minus that; none if they are not."""
    size = weight.abs().flatten(1)
    if bool((size.amin(1) < size.amax(1) * (1 - ALIKE)).any()):
        return None
    return size.double().mean(1)
