"""G, H. Pools, resizing, norms and curves, with every argument that changes what they do."""

import torch
import torch.nn.functional as F
from torch import nn

from capture_corpus.parts import CHANNELS, MADE, After, Between


def after(function, **parts):
    return lambda: After(function, **{k: v() for k, v in parts.items()})


def between(function, **parts):
    return lambda: Between(function, **{k: v() for k, v in parts.items()})


CASES = {
    "max pool": after(lambda x, s: F.max_pool2d(x, 2)),
    "max pool, padded": after(lambda x, s: F.max_pool2d(x, 3, 2, 1)),
    "max pool, ceiling": after(lambda x, s: F.max_pool2d(x, 3, 2, ceil_mode=True)),
    "max pool, dilated": after(lambda x, s: F.max_pool2d(x, 3, 1, 1, dilation=2)),
    "max pool with indices": after(lambda x, s: F.max_pool2d(x, 2, return_indices=True)[0]),
    "indices of a max pool": after(lambda x, s: F.max_pool2d(x, 2, return_indices=True)[1].float()),
    "average pool, ceiling": after(lambda x, s: F.avg_pool2d(x, 4, 3, ceil_mode=True)),
    "average pool, ceiling, inside": after(
        lambda x, s: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
    ),
    "average pool, divisor": after(lambda x, s: F.avg_pool2d(x, 2, divisor_override=3)),
    "average pool, inside": after(lambda x, s: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)),
    "power pool": after(lambda x, s: F.lp_pool2d(x.abs(), 2, 2)),
    "adaptive average": after(lambda x, s: F.adaptive_avg_pool2d(x, (4, 5))),
    "adaptive average, unequal": after(lambda x, s: F.adaptive_avg_pool2d(x, (5, 4))),
    "adaptive maximum": after(lambda x, s: F.adaptive_max_pool2d(x, (3, 5))),
    "adaptive maximum, unequal": after(lambda x, s: F.adaptive_max_pool2d(x, (5, 3))),
    "nearest by 2": after(lambda x, s: F.interpolate(x, scale_factor=2)),
    "nearest by 1.5": after(lambda x, s: F.interpolate(x, scale_factor=1.5)),
    "nearest exact": after(lambda x, s: F.interpolate(x, scale_factor=2, mode="nearest-exact")),
    "bilinear": after(lambda x, s: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "bilinear, corners": after(lambda x, s: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)),
    "transposed convolution": after(lambda x, s: s.up(x), up=lambda: nn.ConvTranspose2d(MADE, MADE, 2, 2)),
    "group norm": between(lambda x, s: F.group_norm(x, 2)),
    "instance norm": between(lambda x, s: F.instance_norm(x)),
    "local response": after(lambda x, s: F.local_response_norm(x, 3)),
    "gelu": after(lambda x, s: F.gelu(x)),
    "gelu by tanh": after(lambda x, s: F.gelu(x, approximate="tanh")),
    "softplus": after(lambda x, s: F.softplus(x)),
    "elu": after(lambda x, s: F.elu(x, 0.7)),
    "celu": after(lambda x, s: F.celu(x, 0.7)),
    "selu": after(lambda x, s: F.selu(x)),
    "mish": after(lambda x, s: F.mish(x)),
    "silu": after(lambda x, s: F.silu(x)),
    "hardswish": after(lambda x, s: F.hardswish(x)),
    "hardsigmoid": after(lambda x, s: F.hardsigmoid(x)),
    "hardtanh": after(lambda x, s: F.hardtanh(x, -2, 3)),
    "leaky relu": after(lambda x, s: F.leaky_relu(x, 0.2)),
    "leaky relu above one": after(lambda x, s: F.leaky_relu(x, 1.5)),
    "rrelu": after(lambda x, s: F.rrelu(x)),
    "clamp by tensors": after(lambda x, s: torch.clamp(x, s.bias[:MADE].view(1, -1, 1, 1) - 9, torch.tensor(9.0))),
    "clamp from above": after(lambda x, s: x.clamp(max=3)),
    "hardshrink": after(lambda x, s: F.hardshrink(x, 2)),
    "glu": after(lambda x, s: torch.cat([F.glu(x, 1)] * 2, 1)),
    "maximum of maps": after(lambda x, s: torch.maximum(x, x.flip(1))),
    "minimum with a number": after(lambda x, s: torch.minimum(x, torch.tensor(2.0))),
    "relu of both": after(lambda x, s: torch.cat([x.relu()[:, :3], (-x).relu()[:, :3]], 1)),
    "prelu of one": between(lambda x, s: F.prelu(x, torch.tensor([0.3]))),
    "prelu below zero": after(lambda x, s: F.prelu(x, -s.bias[:MADE].abs())),
    "padding same, even": after(lambda x, s: s.even(x), even=lambda: nn.Conv2d(MADE, MADE, 4, padding="same")),
    "circular convolution": after(
        lambda x, s: s.ring(x), ring=lambda: nn.Conv2d(MADE, MADE, 3, padding=1, padding_mode="circular")
    ),
    "dilated and grouped": between(
        lambda x, s: s.wide(x), wide=lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=2, dilation=2, groups=2)
    ),
    "asymmetric kernel": after(lambda x, s: s.bar(x), bar=lambda: nn.Conv2d(MADE, MADE, (1, 5), (2, 1), (0, 2))),
    "mean in another type": after(lambda x, s: x.mean((2, 3), keepdim=True, dtype=torch.float64).float()),
    "sum in another type": after(lambda x, s: x.sum((2, 3), keepdim=True, dtype=torch.float16).float()),
}
