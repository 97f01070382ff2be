"""MeliusNet: Bethge et al., "MeliusNet: Can Binary Neural Networks Achieve MobileNet-level Accuracy?", arXiv 2001.05936.

A dense network: a dense block adds 64 channels behind the map, an improvement block adds to those 64 once more.

    Dense         x -> norm, sign, binary 3x3 c -> 64      -> concatenated behind x
    Improvement   x -> norm, sign, binary 3x3 c + 64 -> 64 -> added to the last 64 channels of x
    Transition    norm, max pooling 2/2, ReLU, real 1x1; in a, b and c grouped, after a channel shuffle

Training (official): RAdam 0.002, cosine, 120 epochs; no weight decay on binary weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bcnn.base.errors import UserError, nearest
from bcnn.nets.binary_conv import BinaryConv2d, Rules
from bcnn.nets.blocks import Decoder, assemble, conv, conv_norm, is_cifar, wide

# Reading: the official code pads the +-1 map with -1 (BMXNet), where the paper says nothing. Its binary convolution returns
# (dot + n) / 2, which the next batch norm absorbs: here it is dot.
RULES = Rules(activation="wide", weight="identity", scale="none", pad="minus")
# Blocks of the four stages, channels after the three transitions, groups of the transitions' convolutions.
NETWORKS = {
    "22": ((4, 5, 4, 4), (160, 224, 256), 1),
    "29": ((4, 6, 8, 6), (128, 192, 256), 1),
    "42": ((5, 8, 14, 10), (160, 256, 416), 1),
    "59": ((6, 12, 24, 12), (192, 320, 544), 1),
    "a": ((4, 5, 5, 6), (160, 256, 288), 4),
    "b": ((4, 6, 8, 6), (160, 224, 320), 2),
    "c": ((3, 5, 10, 6), (128, 192, 288), 4),
}
SHUFFLE = 16  # groups of the channel shuffle of a, b and c


def _body(channels: int, growth: int, rules: Rules) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(channels), BinaryConv2d(channels, growth, 3, rules=rules))


class Dense(nn.Module):
    def __init__(self, channels: int, growth: int, rules: Rules) -> None:
        super().__init__()
        self.body = _body(channels, growth, rules)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], dim=1)


class Improvement(nn.Module):
    def __init__(self, channels: int, growth: int, rules: Rules) -> None:
        super().__init__()
        self.growth = growth
        self.body = _body(channels, growth, rules)

    def forward(self, x: Tensor) -> Tensor:
        kept, improved = x[:, : -self.growth], x[:, -self.growth :]
        return torch.cat([kept, improved + self.body(x)], dim=1)


def transition(channels: int, out: int, groups: int) -> nn.Sequential:
    shuffle = [nn.ChannelShuffle(SHUFFLE)] if groups > 1 else []
    return nn.Sequential(
        nn.BatchNorm2d(channels), nn.MaxPool2d(2), nn.ReLU(), *shuffle, conv(channels, out, groups=groups)
    )


def grouped_stem(channels: int, form: str) -> nn.Sequential:
    """Three 3x3 convolutions, the later two grouped, in the place of one 7x7. Reading: one 3x3/1 for 32 x 32 images."""
    if is_cifar(form):
        return conv_norm(3, channels, 3, act=nn.ReLU())
    half = channels // 2
    return nn.Sequential(
        conv_norm(3, half, 3, 2, act=nn.ReLU()),
        conv_norm(half, half, 3, groups=4, act=nn.ReLU()),
        conv_norm(half, channels, 3, groups=8, act=nn.ReLU()),
        nn.MaxPool2d(3, 2, 1),
    )


def meliusnet(
    which: str = "22",
    classes: int = 1000,
    size: tuple[int, int] = (224, 224),
    form: str = "imagenet",
    width: float = 1,
    **rules: Any,
) -> nn.Module:
    if which not in NETWORKS:
        raise UserError(f"unknown MeliusNet {which!r}; {nearest(which, NETWORKS)}")
    blocks, reduced, groups = NETWORKS[which]
    made = RULES.but(**rules)
    # At any width multiples of 16, which the stem's groups and the shuffle divide, or of 8 where there are neither.
    unit = 1 if is_cifar(form) and groups == 1 else 2
    growth, *outs = (unit * wide(channels // unit, width) for channels in (64, *reduced))
    channels = growth
    stages: list[nn.Module] = []
    for stage, count in enumerate(blocks):
        layers = nn.Sequential()
        for _ in range(count):
            layers.extend([Dense(channels, growth, made), Improvement(channels + growth, growth, made)])
            channels += growth
        if stage < len(outs):
            layers.append(transition(channels, outs[stage], groups))
            channels = outs[stage]
        stages.append(layers)
    decoder = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), Decoder(channels, classes))
    return assemble(grouped_stem(growth, form), stages, decoder)
