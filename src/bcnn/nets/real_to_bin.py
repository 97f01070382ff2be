"""Real-to-Binary Net: Martinez et al., "Training Binary Neural Networks with Real-to-Binary Convolutions", ICLR 2020.

ResNet-18 of units h = norm(x); PReLU(gate(h) * binary 3x3 (sign h)) + shortcut(x), where the gate rescales every output
channel from what the real map holds, as squeeze and excite does.
Reading: the authors released no code; the layers are those of Larq's reimplementation, which has the published accuracy.
Training (paper): a teacher, then tanh, then binary activations, then both binary; Adam 1e-3 (last 2e-4), 75 epochs each,
attention and output matching.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bcnn.nets.binary_conv import BinaryConv2d, Rules
from bcnn.nets.blocks import Decoder, Gate, assemble, pooled_shortcut, resnet_stem, stages, wide

RULES = Rules(activation="clip", weight="clip", scale="none")


class Unit(nn.Module):
    def __init__(self, channels: int, out: int, stride: int, rules: Rules) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = BinaryConv2d(channels, out, 3, stride, rules=rules)
        self.gate = Gate(channels, out)
        self.prelu = nn.PReLU(out)
        self.shortcut = pooled_shortcut(channels, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        out: Tensor = self.prelu(self.gate(h) * self.conv(h)) + self.shortcut(x)
        return out


def real2bin_resnet18(
    classes: int = 1000, size: tuple[int, int] = (224, 224), form: str = "imagenet", width: float = 1, **rules: Any
) -> nn.Module:
    made = RULES.but(**rules)
    base = wide(64, width)
    widths = [base * 2**stage for stage in range(4)]

    def unit(channels: int, out: int, stride: int) -> nn.Module:
        return Unit(channels, out, stride, made)

    stem = resnet_stem(base, form, nn.PReLU(base))
    return assemble(stem, stages(unit, base, widths, (4, 4, 4, 4)), Decoder(widths[-1], classes))
