"""B. Constants in shapes of all kinds: per channel, spread over pixels, of one pixel, of a part of the map."""

import torch
from torch import nn

from capture_corpus.parts import CHANNELS, MADE, After, Between, shaken


def between(function, **parts):
    return lambda: Between(function, **{k: v() for k, v in parts.items()})


def after(function, **parts):
    return lambda: After(function, **{k: v() for k, v in parts.items()})


def column(s):
    return s.bias.view(1, CHANNELS, 1, 1)


CASES = {
    "bias of channels": between(lambda x, s: x + column(s)),
    "bias by expand_as": between(lambda x, s: x + column(s).expand_as(x)),
    "scale by expand_as": between(lambda x, s: x * column(s).expand_as(x)),
    "bias without the batch": between(lambda x, s: x + s.bias[:, None, None]),
    "bias of one number": between(lambda x, s: x + s.bias[0]),
    "bias by repeat": between(lambda x, s: x + column(s).repeat(1, 1, *x.shape[2:])),
    "bias of each pixel": between(lambda x, s: x + torch.linspace(-1, 1, x.shape[3])),
    "scale of each pixel": after(lambda x, s: x * torch.linspace(0.5, 2, x.shape[3])),
    "bias of a part of the channels": after(lambda x, s: torch.cat([x[:, :2] + 0.3, x[:, 2:]], 1)),
    "ones_like": between(lambda x, s: x - 0.25 * torch.ones_like(x)),
    "scale by a gate": after(lambda x, s: x * torch.sigmoid(s.bias[:MADE])[None, :, None, None]),
    "gate by expand_as": after(lambda x, s: x * torch.sigmoid(x.mean((2, 3), keepdim=True)).expand_as(x)),
    "gate by view and expand": after(lambda x, s: x * x.mean((2, 3)).sigmoid().view(1, MADE, 1, 1).expand(x.shape)),
    "alpha of an addition": between(lambda x, s: torch.add(x, column(s), alpha=2.5)),
    "alpha of a subtraction": between(lambda x, s: torch.sub(x, column(s), alpha=-0.5)),
    "alpha of maps": after(lambda x, s: torch.add(x, x.relu(), alpha=3)),
    "rsub": between(lambda x, s: torch.rsub(x, column(s), alpha=2)),
    "number minus map": between(lambda x, s: 0.3 - x),
    "division with floor": between(lambda x, s: torch.div(x, 0.5, rounding_mode="floor")),
    "division with trunc": after(lambda x, s: torch.div(x, 0.37, rounding_mode="trunc")),
    "division by channels": between(lambda x, s: x / (column(s).abs() + 0.5)),
    "addcmul": between(lambda x, s: torch.addcmul(column(s), x, torch.full((), 1.7), value=0.5)),
    "lerp": between(lambda x, s: torch.lerp(x, column(s), 0.25)),
    "norm with momentum None": between(
        lambda x, s: s.norm(x), norm=lambda: shaken(nn.BatchNorm2d(CHANNELS, momentum=None))
    ),
    "norm without affine": between(lambda x, s: s.norm(x), norm=lambda: shaken(nn.BatchNorm2d(CHANNELS, affine=False))),
    "norm without statistics": between(
        lambda x, s: s.norm(x), norm=lambda: nn.BatchNorm2d(CHANNELS, track_running_stats=False)
    ),
    "constant of the coordinates": after(lambda x, s: x + torch.arange(x.shape[2])[:, None] * 0.01),
}
