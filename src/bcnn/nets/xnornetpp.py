"""XNOR-Net++: Bulat and Tzimiropoulos, "XNOR-Net++: Improved Binary Neural Networks", BMVC 2019.

XNOR-Net's ResNet-18 with one learned scale of the output map in the place of both computed ones. The paper tries four shapes
of it; the last, an outer product of three vectors, is its best:

    channel   a[c]           one a channel
    dense     a[c, y, x]     one a value of the map
    plane     a[c] b[y, x]   a vector and a plane
    axes      a[c] b[y] g[x] three vectors

No code was released. Training: Adam 1e-3 in steps of a tenth, about 80 epochs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from bcnn.base.errors import UserError, nearest
from bcnn.nets.binary_conv import BinaryConv2d, Rules
from bcnn.nets.blocks import is_cifar, wide
from bcnn.nets.xnornet import resnet18

# Reading: the padding was not published; 0, as in XNOR-Net.
RULES = Rules(activation="clip", weight="clip", scale="none")
# The axes C, H, W that each factor of a shape extends over.
SHAPES = {"channel": ("c",), "dense": ("chw",), "plane": ("c", "hw"), "axes": ("c", "h", "w")}


class LearnedScale(nn.Module):
    """The map times the product of its factors, all ones at the start."""

    def __init__(self, shape: str, channels: int, height: int, width: int) -> None:
        super().__init__()
        if shape not in SHAPES:
            raise UserError(f"shape of XNOR-Net++'s scale: unknown {shape!r}; {nearest(shape, SHAPES)}")
        sizes = {"c": channels, "h": height, "w": width}
        self.factors = nn.ParameterList(
            torch.ones(1, *(length if axis in axes else 1 for axis, length in sizes.items())) for axes in SHAPES[shape]
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * math.prod(self.factors)


def xnornetpp_resnet18(
    classes: int = 1000,
    size: tuple[int, int] = (224, 224),
    form: str = "imagenet",
    width: float = 1,
    shape: str = "axes",
    **rules: Any,
) -> nn.Module:
    """Its scales have the size of the maps, so a network with any shape but "channel" reads images of its `size` alone."""
    made = RULES.but(**rules)
    base = wide(64, width)
    before = 1 if is_cifar(form) else 4  # the stem's stride; then the map halves wherever the channels double

    def convolution(channels: int, out: int, stride: int) -> nn.Module:
        height, width = (side // before * base // out for side in size)
        return nn.Sequential(
            BinaryConv2d(channels, out, 3, stride, rules=made), LearnedScale(shape, out, height, width)
        )

    return resnet18(convolution, base, classes, form)
