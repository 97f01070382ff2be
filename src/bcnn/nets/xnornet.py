"""XNOR-Net: Rastegari et al., "XNOR-Net: ImageNet Classification Using Binary Convolutional Neural Networks", ECCV 2016.

Batch norm before the sign, and a scale: alpha = mean |w| of each filter. First and last layer are real. The paper's second
scale K (the mean of |x| where the filter lies) is `input_scale=True`.
Reading: K is off by default, as in the official code, which has none; the paper has it.
Training (official): Adam 1e-3 down to 1e-5 in five steps over 55 epochs, batch 800, weight decay 5e-4 to epoch 29.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from bcnn.base.errors import UserError
from bcnn.nets.binary_conv import BinaryConv2d, Rules
from bcnn.nets.blocks import Add, Decoder, assemble, conv, resnet_stem, stages, strided_shortcut, wide

# Reading: the official code centres and clamps the latent weights in place before each pass; here a pass does it by value and
# `latent.constrain` in place. Its gradient, (alpha [|w| < 1] + 1/n)(1 - 1/C), is "xnor".
RULES = Rules(activation="clip", weight="xnor", scale="filter", centre=True, clamp=True)


def unit(
    channels: int, out: int, kernel: int | tuple[int, int], rules: Rules, padding: int | None = None
) -> list[nn.Module]:
    """Batch norm, sign, binary convolution; it has an offset, as all convolutions of the official code."""
    return [
        nn.BatchNorm2d(channels, eps=1e-4),
        BinaryConv2d(channels, out, kernel, padding=padding, rules=rules, offset=True),
    ]


def xnornet_alexnet(
    classes: int = 1000, size: tuple[int, int] = (224, 224), width: float = 1, **rules: Any
) -> nn.Module:
    made = RULES.but(**rules)
    c96, c256, c384, c4096 = (wide(channels, width) for channels in (96, 256, 384, 4096))

    def map_side(side: int) -> int:
        side = (side + 2 * 2 - 11) // 4 + 1
        for _ in range(3):
            side = (side - 3) // 2 + 1
        return side

    last = map_side(size[0]), map_side(size[1])
    if min(last) < 1:
        raise UserError(f"XNOR-Net's AlexNet needs images of at least 63 x 63, got {size[0]} x {size[1]}")
    return nn.Sequential(
        nn.Conv2d(3, c96, 11, 4, 2),
        nn.BatchNorm2d(c96),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        *unit(c96, c256, 5, made),
        nn.MaxPool2d(3, 2),
        *unit(c256, c384, 3, made),
        *unit(c384, c384, 3, made),
        *unit(c384, c256, 3, made),
        nn.MaxPool2d(3, 2),
        *unit(c256, c4096, last, made, padding=0),  # 6 x 6 at 224: a fully connected layer
        *unit(c4096, c4096, 1, made),
        nn.BatchNorm2d(c4096, eps=1e-3),
        nn.ReLU(),
        nn.Conv2d(c4096, classes, 1),
        nn.Flatten(),
    )


def xnornet_nin(classes: int = 10, size: tuple[int, int] = (32, 32), width: float = 1, **rules: Any) -> nn.Module:
    """Network in Network for 32 x 32 images: 86.28 % on CIFAR-10 in the official PyTorch code."""
    made = RULES.but(**rules)
    c192, c160, c96 = (wide(channels, width) for channels in (192, 160, 96))

    def relu(channels: int, out: int, kernel: int) -> list[nn.Module]:
        return [*unit(channels, out, kernel, made), nn.ReLU()]

    return nn.Sequential(
        conv(3, c192, 5, bias=True),
        nn.BatchNorm2d(c192, eps=1e-4),
        nn.ReLU(),
        *relu(c192, c160, 1),
        *relu(c160, c96, 1),
        nn.MaxPool2d(3, 2, 1),
        *relu(c96, c192, 5),
        *relu(c192, c192, 1),
        *relu(c192, c192, 1),
        nn.AvgPool2d(3, 2, 1),
        *relu(c192, c192, 3),
        *relu(c192, c192, 1),
        nn.BatchNorm2d(c192, eps=1e-4),
        conv(c192, classes, 1, bias=True),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def xnornet_vgg(classes: int = 10, size: tuple[int, int] = (32, 32), width: float = 1, **rules: Any) -> nn.Module:
    """VGG-small: BNN's six convolutions with a real first one, and one real fully connected layer."""
    made = RULES.but(**rules)
    c128, c256, c512 = (wide(channels, width) for channels in (128, 256, 512))
    layers: list[nn.Module] = [conv(3, c128, 3, bias=True)]
    for channels, out, pool in ((c128, c128, 1), (c128, c256, 0), (c256, c256, 1), (c256, c512, 0), (c512, c512, 1)):
        layers += [*unit(channels, out, 3, made), *[nn.MaxPool2d(2)] * pool]
    inputs = c512 * (size[0] // 8) * (size[1] // 8)
    return nn.Sequential(*layers, nn.BatchNorm2d(c512), nn.Hardtanh(), nn.Flatten(), nn.Linear(inputs, classes))


Convolution = Callable[[int, int, int], nn.Module]  # channels in, channels out, stride


def resnet18(convolution: Convolution, base: int, classes: int, form: str) -> nn.Module:
    """Blocks of (batch norm, sign, binary 3x3) twice, a real 1x1 shortcut without batch norm where shapes change.

    Reading: the paper names its ResNet-18 and no code of it was released; this is the block of its Figure 3 in ResNet-18.
    """
    widths = [base * 2**stage for stage in range(4)]

    def block(channels: int, out: int, stride: int) -> nn.Module:
        first = [nn.BatchNorm2d(channels), convolution(channels, out, stride)]
        second = [nn.BatchNorm2d(out), convolution(out, out, 1)]
        return Add(nn.Sequential(*first, *second), strided_shortcut(channels, out, stride, norm=False))

    stem = resnet_stem(base, form, nn.ReLU())
    return assemble(stem, stages(block, base, widths, (2, 2, 2, 2)), Decoder(widths[-1], classes))


def xnornet_resnet18(
    classes: int = 1000, size: tuple[int, int] = (224, 224), form: str = "imagenet", width: float = 1, **rules: Any
) -> nn.Module:
    made = RULES.but(**rules)

    def convolution(channels: int, out: int, stride: int) -> nn.Module:
        return BinaryConv2d(channels, out, 3, stride, rules=made)

    return resnet18(convolution, wide(64, width), classes, form)
