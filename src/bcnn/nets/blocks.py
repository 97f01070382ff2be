"""What the networks of the field are assembled from, besides the binary convolution: stems, stages, shortcuts, endings.

A network is an `nn.Sequential` of `stem`, `stage1` ..., `decoder` (image N,3,H,W -> logits N,classes). `form` says for which
images: "imagenet" halves the map twice before the first stage, "cifar" keeps its 32 x 32.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.base.errors import UserError

FORMS = ("imagenet", "cifar")
Unit = Callable[[int, int, int], nn.Module]  # channels in, channels out, stride


def is_cifar(form: str) -> bool:
    if form not in FORMS:
        raise UserError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    return form == "cifar"


def wide(channels: int, width: float) -> int:
    """`width` times as many channels, as a multiple of 8: groups and gates divide them by that."""
    if not 0 < width < math.inf:
        raise UserError(f"width must be a number > 0, got {width!r}")
    return max(8, round(channels * width / 8) * 8)


def conv(channels: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, bias: bool = False) -> nn.Conv2d:
    """A real convolution that keeps the size, but for its stride."""
    return nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=bias)


def conv_norm(
    channels: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: nn.Module | None = None
) -> nn.Sequential:
    """A real convolution, batch norm and, where there is one, what follows them."""
    parts: list[nn.Module] = [conv(channels, out, kernel, stride, groups), nn.BatchNorm2d(out)]
    return nn.Sequential(*parts, *([act] if act is not None else []))


def resnet_stem(width: int, form: str, act: nn.Module | None = None) -> nn.Sequential:
    """7x7/2 and max pooling 3/2, or 3x3/1 for 32 x 32 images."""
    if is_cifar(form):
        return conv_norm(3, width, 3, act=act)
    return nn.Sequential(conv_norm(3, width, 7, 2, act=act), nn.MaxPool2d(3, 2, 1))


def stages(unit: Unit, channels: int, widths: Iterable[int], depths: Iterable[int], first: int = 1) -> list[nn.Module]:
    """One sequence of units for every width; the first unit of all but the first stage (or of all: first = 2) has stride 2."""
    made: list[nn.Module] = []
    for out, depth in zip(widths, depths, strict=True):
        stride = 2 if made else first
        made.append(nn.Sequential(unit(channels, out, stride), *(unit(out, out, 1) for _ in range(depth - 1))))
        channels = out
    return made


def assemble(stem: nn.Module, stages: Sequence[nn.Module], decoder: nn.Module) -> nn.Sequential:
    named = [(f"stage{i}", stage) for i, stage in enumerate(stages, start=1)]
    return nn.Sequential(OrderedDict([("stem", stem), *named, ("decoder", decoder)]))


class Decoder(nn.Module):
    """Global average pool and a real fully connected layer: a vector matrix product for one image, so it stays real."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.mean((2, 3)))
        return out


class Add(nn.Module):
    """body(x) + shortcut(x), then what follows the addition."""

    def __init__(self, body: nn.Module, shortcut: nn.Module, after: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut
        self.after = nn.Identity() if after is None else after

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.after(self.body(x) + self.shortcut(x))
        return out


def pooled_shortcut(channels: int, out: int, stride: int) -> nn.Module:
    """Identity where shapes allow it; else average pooling, a real 1x1 convolution and batch norm (Bi-Real Net and after)."""
    if channels == out and stride == 1:
        return nn.Identity()
    pool = [nn.AvgPool2d(stride)] if stride > 1 else []
    return nn.Sequential(*pool, *conv_norm(channels, out))


def strided_shortcut(channels: int, out: int, stride: int, norm: bool = True) -> nn.Module:
    """Identity where shapes allow it; else a real 1x1 convolution with the stride, as in ResNet, and batch norm."""
    if channels == out and stride == 1:
        return nn.Identity()
    return conv_norm(channels, out, 1, stride) if norm else conv(channels, out, 1, stride)


class RPReLU(nn.Module):
    """PReLU(x + before) + after, a bias each and a slope for every channel (ReActNet)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.before = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.prelu = nn.PReLU(channels)  # slopes 0.25
        self.after = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.prelu(x + self.before) + self.after
        return out


class Gate(nn.Module):
    """A factor in (0, 1) for every output channel from the means of the input's (squeeze and excite, Real-to-Binary Net)."""

    def __init__(self, channels: int, out: int, reduction: int = 8) -> None:
        super().__init__()
        self.squeeze = nn.Linear(channels, channels // reduction, bias=False)
        self.excite = nn.Linear(channels // reduction, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = self.excite(F.relu(self.squeeze(x.mean((2, 3))))).sigmoid()
        return gate[:, :, None, None]
