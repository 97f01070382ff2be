"""BNN: Hubara et al., "Binarized Neural Networks", NIPS 2016. The VGG of its CIFAR-10 runs, and a ResNet-18.

Every weight is binary, the first and the last layer's as well; the first reads the real image. No scale: batch norm follows
each convolution. The ResNet-18 is that of BinaryNet.pytorch, by which the field's 42.2 % on ImageNet may or may not be.
Training (paper): squared hinge with +-1 targets, Adam 1e-3 to 3e-7 exponential, 500 epochs, batch 50, latents in [-1, 1].
"""

from __future__ import annotations

from typing import Any

from torch import nn

from bcnn.nets.binary_conv import BinaryConv2d, Rules
from bcnn.nets.blocks import Add, assemble, is_cifar, stages, wide

RULES = Rules(activation="clip", weight="clip", scale="none", clamp=True)
IMAGE = {"activation": "none", "pad": "zero"}  # the first layer's input is the image: real, and 0 outside


def bnn_vgg(classes: int = 10, size: tuple[int, int] = (32, 32), width: float = 1, **rules: Any) -> nn.Module:
    """128-128-P-256-256-P-512-512-P, then 1024-1024-classes: convolution, pooling, batch norm, and the next layer's sign.

    A fully connected layer is a convolution whose filter is the whole map.
    """
    made = RULES.but(**rules)
    channels, layers = 3, nn.Sequential()

    def layer(out: int, kernel: int | tuple[int, int], padding: int, pool: bool = False) -> None:
        nonlocal channels
        own = made if layers else made.but(**IMAGE)
        layers.append(BinaryConv2d(channels, out, kernel, padding=padding, rules=own, offset=True))
        if pool:
            layers.append(nn.MaxPool2d(2))
        layers.append(nn.BatchNorm2d(out, eps=1e-4))
        channels = out

    for out in (128, 256, 512):
        layer(wide(out, width), 3, 1)
        layer(wide(out, width), 3, 1, pool=True)
    layer(wide(1024, width), (size[0] // 8, size[1] // 8), 0)
    layer(wide(1024, width), 1, 0)
    layer(classes, 1, 0)
    layers.append(nn.Flatten())
    return layers


def bnn_resnet18(
    classes: int = 1000, size: tuple[int, int] = (224, 224), form: str = "imagenet", width: float = 1, **rules: Any
) -> nn.Module:
    """Reading: BinaryNet.pytorch's class for ImageNet cannot run; the order of its layers is taken from its CIFAR class."""
    made = RULES.but(**rules)
    base = wide(64, width)
    widths = [base * 2**stage for stage in range(4)]

    def binary(channels: int, out: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
        return [BinaryConv2d(channels, out, kernel, stride, rules=made), nn.BatchNorm2d(out)]

    def block(channels: int, out: int, stride: int) -> nn.Module:
        body = [*binary(channels, out, 3, stride), nn.Hardtanh(), BinaryConv2d(out, out, 3, rules=made)]
        plain = channels == out and stride == 1
        shortcut = nn.Identity() if plain else nn.Sequential(*binary(channels, out, 1, stride))
        return Add(nn.Sequential(*body), shortcut, nn.Sequential(nn.BatchNorm2d(out), nn.Hardtanh()))

    kernel, stride = (3, 1) if is_cifar(form) else (7, 2)
    stem = [BinaryConv2d(3, base, kernel, stride, rules=made.but(**IMAGE))]
    pool = [] if is_cifar(form) else [nn.MaxPool2d(3, 2, 1)]
    decoder = [
        nn.AdaptiveAvgPool2d(1),
        nn.BatchNorm2d(widths[-1]),
        nn.Hardtanh(),
        BinaryConv2d(widths[-1], classes, 1, rules=made, offset=True),
        nn.BatchNorm2d(classes),
        nn.Flatten(),
    ]
    return assemble(
        nn.Sequential(*stem, *pool, nn.BatchNorm2d(base), nn.Hardtanh()),
        stages(block, base, widths, (2, 2, 2, 2)),
        nn.Sequential(*decoder),
    )
