"""Group-Net: Zhuang et al., "Structured Binary Neural Networks for Accurate Image Classification ...", CVPR 2019.

The network is a sum of M binary ones: every block is M binary blocks (bases) side by side, and a learned gate says how much
each base of the next block reads of its own base and how much of the mean of all.

    x_i = g base_i + (1 - g) mean,  g = sigmoid(one scalar a block)
    y_i = norm(relu(binary 3x3/S (sign x_i))) + x_i          (at a stage's start: + norm(binary 1x1/S (sign x_i)), shared)
    z_i = norm(relu(binary 3x3   (sign y_i))) + y_i

Training (official): real weights and tanh, SGD 0.05, 40 epochs; then binary, Adam 5e-4, 40 epochs; batch 256.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bcnn.base.errors import UserError
from bcnn.nets.binary_conv import BinaryConv2d, Rules
from bcnn.nets.blocks import Add, Decoder, conv, is_cifar, wide

# Reading: the official code pads the +-1 map with +1 and scales by one mean |w| a tensor; the paper says neither.
RULES = Rules(activation="triangle", weight="identity", scale="tensor", pad="plus")
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


def mean(maps: list[Tensor]) -> Tensor:
    total = maps[0]
    for one in maps[1:]:
        total = total + one
    return total * (1 / len(maps))


class GroupBlock(nn.Module):
    """M bases -> M bases. The first block of the network reads one map M times and has no gate.

    Reading: where the gate's scalar starts is not said; 0, so that g = 1/2.
    """

    def __init__(self, channels: int, out: int, stride: int, bases: int, gated: bool, rules: Rules) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(())) if gated else None
        self.shortcut: nn.Module = nn.Identity()
        if channels != out or stride != 1:
            self.shortcut = nn.Sequential(
                BinaryConv2d(channels, out, 1, stride, rules=rules), nn.BatchNorm2d(out)
            )  # one for all bases

        def binary(channels: int, stride: int) -> nn.Module:
            return nn.Sequential(BinaryConv2d(channels, out, 3, stride, rules=rules), nn.ReLU(), nn.BatchNorm2d(out))

        self.first = nn.ModuleList(binary(channels, stride) for _ in range(bases))
        self.second = nn.ModuleList(Add(binary(out, 1), nn.Identity()) for _ in range(bases))

    def forward(self, maps: list[Tensor]) -> list[Tensor]:
        if self.gate is not None:
            g, shared = self.gate.sigmoid(), mean(maps)
            maps = [g * x + (1 - g) * shared for x in maps]
        return [
            second(first(x) + self.shortcut(x)) for x, first, second in zip(maps, self.first, self.second, strict=True)
        ]


class GroupNet(nn.Module):
    def __init__(self, blocks: tuple[int, ...], base: int, bases: int, classes: int, form: str, rules: Rules) -> None:
        super().__init__()
        self.bases = bases
        if is_cifar(form):
            stem: list[nn.Module] = [conv(3, base, 3)]
        else:
            stem = [conv(3, base, 7, 2), nn.MaxPool2d(3, 2, 1)]
        self.stem = nn.Sequential(*stem, nn.BatchNorm2d(base))  # in this order, and no ReLU
        self.blocks = nn.Sequential()
        channels = base
        for stage, count in enumerate(blocks):
            for index in range(count):
                out, stride = base * 2**stage, 2 if stage and not index else 1
                self.blocks.append(GroupBlock(channels, out, stride, bases, gated=len(self.blocks) > 0, rules=rules))
                channels = out
        self.decoder = Decoder(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.decoder(mean(self.blocks([self.stem(x)] * self.bases)))
        return out


def groupnet(
    depth: int = 18,
    classes: int = 1000,
    size: tuple[int, int] = (224, 224),
    form: str = "imagenet",
    width: float = 1,
    bases: int = 5,
    **rules: Any,
) -> nn.Module:
    if bases < 1:
        raise UserError(f"Group-Net needs at least one base, got {bases}")
    return GroupNet(BLOCKS[depth], wide(64, width), bases, classes, form, RULES.but(**rules))
