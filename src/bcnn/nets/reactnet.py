"""ReActNet: Liu et al., "ReActNet: Towards Precise Binary Neural Network with Generalized Activation Functions", ECCV 2020.

MobileNetV1's plan with binary convolutions: 3x3 in the place of the depth wise one, then 1x1, each with a shortcut. Channels
double by two 1x1 convolutions of the same bits side by side. Signs and PReLUs have learned biases (RSign, RPReLU). B and C
double channels with a real 1x1 convolution in 4 groups or 1. R18 is Bi-Real Net 18 with RSign and RPReLU.
Training (official): real, then binary weights, each Adam 1.25e-3 linear to 0, 128 epochs, batch 256, weight decay 1e-5, then 0;
loss: cross entropy with ResNet-34's softmax. R18: 2.5e-3, batch 512.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bcnn.base.errors import UserError, nearest
from bcnn.nets.binary_conv import BinaryConv2d, Rules
from bcnn.nets.birealnet import UNITS, binary3x3
from bcnn.nets.blocks import (
    Add,
    Decoder,
    RPReLU,
    assemble,
    conv_norm,
    is_cifar,
    pooled_shortcut,
    resnet_stem,
    stages,
    wide,
)
from bcnn.nets.mobilenet import PLAN, STEM

RULES = Rules(activation="triangle", bias=True, weight="clip", scale="filter")
GROUPS = {"a": 0, "b": 4, "c": 1}  # of the real convolution that doubles the channels; 0: it is binary


class Twice(nn.Module):
    """The map behind itself: both halves of a doubling layer read it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x], dim=1)


def reactnet(
    which: str = "a",
    classes: int = 1000,
    size: tuple[int, int] = (224, 224),
    form: str = "imagenet",
    width: float = 1,
    shortcut: bool = False,
    **rules: Any,
) -> nn.Module:
    """`shortcut` is that of the real doubling convolutions of B and C.

    Reading: B and C were not released, and whether the shortcut stays around a real convolution is not said; it does not.
    Reading: for 32 x 32 images the first convolution has stride 1.
    """
    if which not in GROUPS:
        raise UserError(f"unknown ReActNet {which!r}; {nearest(which, GROUPS)}")
    made = RULES.but(**rules)
    channels = wide(STEM, width)

    def binary(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Module:
        return nn.Sequential(BinaryConv2d(channels, out, kernel, stride, rules=made), nn.BatchNorm2d(out))

    def pointwise(channels: int, out: int) -> nn.Module:
        if channels == out:
            return Add(binary(channels, out, 1), nn.Identity(), RPReLU(out))
        if not GROUPS[which]:  # both halves in one convolution: the same bits, filters and statistics
            return Add(binary(channels, out, 1), Twice(), RPReLU(out))
        real = conv_norm(channels, out, groups=GROUPS[which])
        return Add(real, Twice(), RPReLU(out)) if shortcut else nn.Sequential(*real, RPReLU(out))

    stem = conv_norm(3, channels, 3, 1 if is_cifar(form) else 2)
    blocks: list[nn.Module] = []
    previous = STEM
    for planned, stride in PLAN:
        out, previous = channels * planned // previous, planned
        pool = nn.AvgPool2d(2) if stride == 2 else nn.Identity()
        spatial = Add(binary(channels, channels, 3, stride), pool, RPReLU(channels))
        blocks.append(nn.Sequential(spatial, pointwise(channels, out)))
        channels = out
    return assemble(stem, blocks, Decoder(channels, classes))


def reactnet_resnet18(
    classes: int = 1000, size: tuple[int, int] = (224, 224), form: str = "imagenet", width: float = 1, **rules: Any
) -> nn.Module:
    made = RULES.but(**rules)
    base = wide(64, width)
    widths = [base * 2**stage for stage in range(4)]

    def unit(channels: int, out: int, stride: int) -> nn.Module:
        return Add(binary3x3(channels, out, stride, made), pooled_shortcut(channels, out, stride), RPReLU(out))

    return assemble(resnet_stem(base, form), stages(unit, base, widths, UNITS[18]), Decoder(widths[-1], classes))
