"""A real convolution, a trick, a binary convolution, an answer: the frame that most cases share."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Function = Callable[..., Tensor]
CHANNELS, MADE, CLASSES = 8, 6, 5


def step(x: Tensor) -> Tensor:
    return torch.where(x >= 0, 1.0, -1.0)


def binary_conv(x: Tensor, weight: Tensor, **more: int) -> Tensor:
    return F.conv2d(step(x), step(weight) * weight.abs().mean((1, 2, 3), keepdim=True), **more)


def shaken(norm: nn.Module) -> nn.Module:
    """A batch norm that has seen something, with gammas of both signs."""
    assert isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.normal_(0, 0.3)
    norm.running_var.uniform_(0.5, 2)
    if norm.affine:
        norm.weight.data.normal_()
        norm.bias.data.normal_()
    return norm


class Frame(nn.Module):
    """What all have: the first convolution, a binary weight, a head, and parameters that tricks may use."""

    def __init__(self, trick: Function, **parts: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(MADE, CHANNELS, 3, 3))
        self.bias = nn.Parameter(torch.randn(CHANNELS) * 0.3)
        self.head = nn.Linear(MADE, CLASSES)
        self.trick = trick
        for name, part in parts.items():
            self.add_module(name, part)


class Between(Frame):
    """The trick changes the map that a binary convolution reads."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(binary_conv(self.trick(self.first(x), self), self.weight).mean((2, 3)))


class After(Frame):
    """The trick changes what a binary convolution made."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.trick(binary_conv(self.first(x), self.weight, padding=1), self).mean((2, 3)))


class End(Frame):
    """The trick makes the answer of what a binary convolution made."""

    def forward(self, x: Tensor) -> Tensor:
        return self.trick(binary_conv(self.first(x), self.weight, padding=1), self)


class Signs(Frame):
    """The trick is the sign."""

    def forward(self, x: Tensor) -> Tensor:
        w = step(self.weight)
        return self.head(F.conv2d(self.trick(self.first(x), self), w).mean((2, 3)))


class Weights(Frame):
    """The trick makes the weights."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.conv2d(step(self.first(x)), self.trick(self.weight, self)).mean((2, 3)))
