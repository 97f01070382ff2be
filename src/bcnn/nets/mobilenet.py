"""MobileNetV1: Howard et al., "MobileNets: Efficient CNNs for Mobile Vision Applications", arXiv 1704.04861. Real weights.

Thirteen pairs of a depth wise 3x3 and a 1x1 convolution, each with batch norm and ReLU. ReActNet is built on its plan.
"""

from __future__ import annotations

from torch import nn

from bcnn.nets.blocks import Decoder, assemble, conv_norm, is_cifar, wide

# Channels made and stride of the 13 pairs.
PLAN = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
STEM = 32


def mobilenet(
    classes: int = 1000, size: tuple[int, int] = (224, 224), form: str = "imagenet", width: float = 1
) -> nn.Module:
    """Reading: for 32 x 32 images the first convolution has stride 1."""
    channels = wide(STEM, width)
    stem = conv_norm(3, channels, 3, 1 if is_cifar(form) else 2, act=nn.ReLU())
    pairs: list[nn.Module] = []
    for out, stride in PLAN:
        out = wide(out, width)
        depthwise = conv_norm(channels, channels, 3, stride, groups=channels, act=nn.ReLU())
        pairs.append(nn.Sequential(depthwise, conv_norm(channels, out, act=nn.ReLU())))
        channels = out
    return assemble(stem, pairs, Decoder(channels, classes))
