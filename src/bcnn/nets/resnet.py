"""ResNet: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016. Real weights; 18 and 34.

What the binary networks are measured against, and the teacher of some of them.
"""

from __future__ import annotations

from torch import nn

from bcnn.nets.blocks import Add, Decoder, assemble, conv_norm, resnet_stem, stages, strided_shortcut, wide

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


def resnet(
    depth: int = 18,
    classes: int = 1000,
    size: tuple[int, int] = (224, 224),
    form: str = "imagenet",
    width: float = 1,
) -> nn.Module:
    base = wide(64, width)
    widths = [base * 2**stage for stage in range(4)]

    def block(channels: int, out: int, stride: int) -> nn.Module:
        body = nn.Sequential(conv_norm(channels, out, 3, stride, act=nn.ReLU()), conv_norm(out, out, 3))
        return Add(body, strided_shortcut(channels, out, stride), nn.ReLU())

    stem = resnet_stem(base, form, nn.ReLU())
    return assemble(stem, stages(block, base, widths, BLOCKS[depth]), Decoder(widths[-1], classes))
