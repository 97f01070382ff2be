"""Bi-Real Net: Liu et al., "Bi-Real Net: Enhancing the Performance of 1-bit CNNs ...", ECCV 2018 (18, 34); IJCV 2020 (50, 152).

The real map before each sign is carried past the binary convolution by a shortcut of its own, so that a unit adds one bit
convolution to a real map: x -> sign -> binary 3x3 -> batch norm -> + x. Nothing follows the addition.
Training (paper): Adam 1e-3 linear to 0, 256 epochs, batch 512, label smoothing 0.1, no weight decay; 50: 5e-4, batch 256.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.base.errors import UserError
from bcnn.nets.binary_conv import BinaryConv2d, Rules
from bcnn.nets.blocks import Add, Decoder, assemble, conv, conv_norm, pooled_shortcut, resnet_stem, stages, wide

RULES = Rules(activation="triangle", weight="clip", scale="filter")
UNITS = {18: (4, 4, 4, 4), 34: (6, 8, 12, 6), 50: (3, 4, 6, 3), 152: (3, 8, 36, 3)}


def birealnet(
    depth: int = 18,
    classes: int = 1000,
    size: tuple[int, int] = (224, 224),
    form: str = "imagenet",
    width: float = 1,
    **rules: Any,
) -> nn.Module:
    if depth not in UNITS:
        raise UserError(f"Bi-Real Net has depth {', '.join(map(str, UNITS))}, got {depth}")
    made = RULES.but(**rules)
    base = wide(64, width)
    if depth >= 50:
        return BottleneckNet(UNITS[depth], base, classes, form, made)
    widths = [base * 2**stage for stage in range(4)]

    def unit(channels: int, out: int, stride: int) -> nn.Module:
        return Add(binary3x3(channels, out, stride, made), pooled_shortcut(channels, out, stride))

    return assemble(
        resnet_stem(base, form), stages(unit, base, widths, UNITS[depth]), Decoder(widths[-1], classes)
    )  # no ReLU in the stem


def binary3x3(channels: int, out: int, stride: int, rules: Rules) -> nn.Sequential:
    return nn.Sequential(BinaryConv2d(channels, out, 3, stride, rules=rules), nn.BatchNorm2d(out))


# --- 50 and 152 -----------------------------------------------------------------------------------------------------


class LeakyClip(nn.Module):
    """x in [-1, 1], slope 0.1 outside: in front of the one real 1x1 convolution of the first unit."""

    def forward(self, x: Tensor) -> Tensor:
        inside = x.clamp(-1, 1)
        return inside + 0.1 * (x - inside)


class Bottleneck(nn.Module):
    """Binary 1x1, 3x3/S, 1x1 on two streams, the narrow x1 (mid channels) and the wide x2; each convolution has a shortcut.

    Reading: the paper draws one shortcut around each of the three; that the narrow ones join units to a second stream is the
    official code's. Its first unit has a dead 16 -> 64 convolution, left out here; the layout of 152 was not released and is
    taken to be that of 50.
    """

    def __init__(self, narrow: int, channels: int, out: int, stride: int, rules: Rules, first: bool) -> None:
        super().__init__()
        mid = out // 4
        self.first = first
        if first:
            self.reduce: nn.Module = nn.Sequential(LeakyClip(), *conv_norm(channels, mid))
        else:
            self.reduce = nn.Sequential(BinaryConv2d(channels, mid, 1, rules=rules), nn.BatchNorm2d(mid))
        self.narrow = nn.Identity() if first or narrow == mid else conv(narrow, mid)
        self.filter = Add(binary3x3(mid, mid, stride, rules), nn.AvgPool2d(2) if stride == 2 else nn.Identity())
        self.expand = nn.Sequential(BinaryConv2d(mid, out, 1, rules=rules), nn.BatchNorm2d(out))
        self.shortcut = pooled_shortcut(channels, out, stride)

    def forward(self, streams: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x1, x2 = streams
        reduced = self.reduce(x2)
        filtered = self.filter(reduced if self.first else reduced + self.narrow(x1))
        return filtered, self.expand(filtered) + self.shortcut(x2)


class BottleneckNet(nn.Module):
    def __init__(self, units: tuple[int, ...], base: int, classes: int, form: str, rules: Rules) -> None:
        super().__init__()
        self.stem = resnet_stem(base, form)
        self.stages = nn.Sequential()
        narrow = channels = base
        for stage, count in enumerate(units):
            for index in range(count):
                out, stride = 4 * base * 2**stage, 2 if stage and not index else 1
                first = not self.stages
                self.stages.append(Bottleneck(narrow, channels, out, stride, rules, first))
                narrow, channels = out // 4, out
        self.decoder = Decoder(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        _, x = self.stages((x, x))
        out: Tensor = self.decoder(x)
        return out


# --- ResNet-20 for 32 x 32 ------------------------------------------------------------------------------------------


class ZeroShortcut(nn.Module):
    """Every second pixel, and zeros for the channels that are new, half of them on each side: no parameter."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.before = (out - channels) // 2
        self.after = out - channels - self.before

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(x, 1, 2)  # a window of one pixel: x[:, :, ::2, ::2] as a pooling
        return F.pad(x, (0, 0, 0, 0, self.before, self.after))


def birealnet20(classes: int = 10, size: tuple[int, int] = (32, 32), width: float = 1, **rules: Any) -> nn.Module:
    """ResNet-20 (16, 32, 64 channels) of Bi-Real units with a hard tanh after each addition, the form of IR-Net and ReCU."""
    made = RULES.but(**rules)
    base = wide(16, width)
    widths = [base, 2 * base, 4 * base]

    def unit(channels: int, out: int, stride: int) -> nn.Module:
        shortcut = nn.Identity() if stride == 1 else ZeroShortcut(channels, out)
        return Add(binary3x3(channels, out, stride, made), shortcut, nn.Hardtanh())

    stem = conv_norm(3, base, 3, act=nn.Hardtanh())
    return assemble(stem, stages(unit, base, widths, (6, 6, 6)), Decoder(widths[-1], classes))
