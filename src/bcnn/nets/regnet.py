"""RegNetX: Radosavovic et al., "Designing Network Design Spaces", CVPR 2020. Real weights; the 400 MF network.

1x1, grouped 3x3/S, 1x1 with a shortcut: the block that the paper compares its own with (sec. 4.2.4).
"""

from __future__ import annotations

from torch import nn

from bcnn.nets.blocks import Add, Decoder, assemble, conv_norm, is_cifar, stages, strided_shortcut, wide

WIDTHS, DEPTHS, GROUP_WIDTH, STEM = (32, 64, 160, 400), (1, 2, 7, 12), 16, 32


def regnetx_400mf(
    classes: int = 1000, size: tuple[int, int] = (224, 224), form: str = "imagenet", width: float = 1
) -> nn.Module:
    """Reading: for 32 x 32 images the first convolution has stride 1."""
    widths = [2 * wide(channels // 2, width) for channels in WIDTHS]  # multiples of the group width
    stem = wide(STEM, width)

    def block(channels: int, out: int, stride: int) -> nn.Module:
        body = nn.Sequential(
            conv_norm(channels, out, act=nn.ReLU()),
            conv_norm(out, out, 3, stride, groups=out // GROUP_WIDTH, act=nn.ReLU()),
            conv_norm(out, out),
        )
        return Add(body, strided_shortcut(channels, out, stride), nn.ReLU())

    first = conv_norm(3, stem, 3, 1 if is_cifar(form) else 2, act=nn.ReLU())
    return assemble(first, stages(block, stem, widths, DEPTHS, first=2), Decoder(widths[-1], classes))
