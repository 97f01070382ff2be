"""Networks that people who never heard of this package would write: plain torch, nothing of ours. For the tests of capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SignSte(torch.autograd.Function):
    """The textbook straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.where(x >= 0, torch.ones_like(x), -torch.ones_like(x))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class Masked(torch.autograd.Function):
    """Another one: a copy, written by masks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.clone()
        out[x >= 0] = 1
        out[x < 0] = -1
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class Filled(torch.autograd.Function):
    """A third: ones, with -1 where a mask says so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.ones_like(x)
        out[x < 0] = -1
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def _written(x: Tensor) -> Tensor:
    b = x.clone()
    b[b >= 0] = 1
    b[b < 0] = -1
    return b


# Ways to write sign. All are +1 and -1 but for rounding; torch.sign has a 0 for 0.
SIGNS: dict[str, Callable[[Tensor], Tensor]] = {
    "sign": torch.sign,
    "where": lambda x: torch.where(x >= 0, 1.0, -1.0),
    "compared": lambda x: 2.0 * (x >= 0) - 1.0,
    "cast": lambda x: (x > 0).float() * 2 - 1,
    "function": SignSte.apply,  # type: ignore[dict-item]
    "masked": Masked.apply,  # type: ignore[dict-item]
    "detached": lambda x: (x.sign() - x.clamp(-1, 1)).detach() + x.clamp(-1, 1),
    "identity ste": lambda x: x + (x.sign() - x).detach(),
    "tanh": lambda x: torch.sign(torch.tanh(x)),
    "clip first": lambda x: torch.sign(F.hardtanh(x)),
    "in place": lambda x: (x >= 0).to(x.dtype).mul_(2).sub_(1),
    "filled": Filled.apply,  # type: ignore[dict-item]
    "masked by itself": _written,
    "copysign": lambda x: torch.copysign(torch.ones_like(x), x),
    "copysign of a number": lambda x: torch.copysign(torch.tensor(1.0), x),
    "signbit": lambda x: 1.0 - 2.0 * torch.signbit(x).float(),
    "full": lambda x: torch.full_like(x, 1.0).masked_fill(x < 0, -1.0),
    "subtracted": lambda x: (x >= 0).float() - (x < 0).float(),
    "by its size": lambda x: torch.where(x == 0, torch.ones_like(x), x / x.abs()),
    "steep": lambda x: torch.clamp(x * 1e20, -1, 1).sign(),
    "heaviside": lambda x: 2 * torch.heaviside(x, torch.ones(())) - 1,
    "rounded": lambda x: torch.round(torch.sigmoid(x)) * 2 - 1,
    "elu": lambda x: torch.sign(F.elu(x)),
    "integers": lambda x: ((x >= 0).int() * 2 - 1).float(),
    "torch.compile's": lambda x: torch.ops.aten.where(torch.ops.aten.ge(x, 0), torch.ones(()), -torch.ones(())),
}


def weights_of(kind: str, w: Tensor) -> Tensor:
    """Ways to make binary weights."""
    if kind == "plain":
        return torch.where(w >= 0, 1.0, -1.0)
    if kind == "mean":  # XNOR-Net
        return torch.where(w >= 0, 1.0, -1.0) * w.abs().mean((1, 2, 3), keepdim=True)
    if kind == "centred":
        w = (w - w.mean(1, keepdim=True)).clamp(-1, 1)
        return torch.where(w >= 0, 1.0, -1.0) * w.abs().mean((1, 2, 3), keepdim=True)
    real = w.abs().mean((1, 2, 3), keepdim=True).detach() * torch.where(
        w >= 0, 1.0, -1.0
    )  # "detached": off by rounding
    return real.detach() - w.clamp(-1, 1).detach() + w.clamp(-1, 1)


class BinConv(nn.Module):
    def __init__(
        self,
        i: int,
        o: int,
        k: int = 3,
        s: int = 1,
        p: int = 1,
        sign: str = "where",
        weights: str = "mean",
        **more: Any,
    ) -> None:
        super().__init__()
        self.pad_value = more.pop("pad_value", 0.0)
        self.pad_first = more.pop("pad_first", False)
        self.s, self.p, self.sign, self.weights, self.more = s, p, sign, weights, more
        self.weight = nn.Parameter(torch.randn(o, i // more.get("groups", 1), k, k) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        w = weights_of(self.weights, self.weight)
        if self.pad_first:
            return F.conv2d(SIGNS[self.sign](F.pad(x, [self.p] * 4)), w, None, self.s, 0, **self.more)
        signs = SIGNS[self.sign](x)
        if self.pad_value:
            return F.conv2d(F.pad(signs, [self.p] * 4, value=self.pad_value), w, None, self.s, 0, **self.more)
        return F.conv2d(signs, w, None, self.s, self.p, **self.more)


class NetworkInNetwork(nn.Module):
    """Zero-padded binary 5x5 and 3x3, scaled weights, batch norm before sign, max pooling 3/2, average pooling 3/2 with padding."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 24, 5, padding=2), nn.BatchNorm2d(24), nn.ReLU(inplace=True))
        units: list[nn.Module] = []
        for i, o, k, pool in (
            (24, 20, 1, None),
            (20, 12, 1, "max"),
            (12, 33, 5, None),
            (33, 24, 1, "avg"),
            (24, 24, 3, None),
        ):
            units += [
                nn.BatchNorm2d(i, eps=1e-4),
                BinConv(i, o, k, 1, k // 2, "sign", "centred"),
                nn.ReLU(inplace=True),
            ]
            if pool == "max":
                units.append(nn.MaxPool2d(3, 2, 1))
            if pool == "avg":
                units.append(nn.AvgPool2d(3, 2, 1))
        self.units = nn.Sequential(*units)
        self.last = nn.Sequential(
            nn.BatchNorm2d(24), nn.Conv2d(24, classes, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.units(self.first(x))).flatten(1)


class Dense(nn.Module):
    """Concatenation, -1 padding, a shuffle and a grouped real convolution."""

    def __init__(self, classes: int = 7) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.PReLU())
        self.norms = nn.ModuleList(nn.BatchNorm2d(16 + 8 * i) for i in range(3))
        self.convs = nn.ModuleList(
            BinConv(16 + 8 * i, 8, sign="compared", pad_value=-1.0, weights="plain") for i in range(3)
        )
        self.squeeze = nn.Conv2d(40, 20, 1, groups=4, bias=False)
        self.norm = nn.BatchNorm2d(20)
        self.fc = nn.Linear(20, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = torch.cat([x, conv(norm(x))], 1)
        n, c, h, w = x.shape
        x = x.view(n, 4, c // 4, h, w).transpose(1, 2).reshape(n, c, h, w)
        x = F.max_pool2d(F.relu(x), 2)
        x = F.relu(self.norm(self.squeeze(x)))
        return self.fc(x.mean((2, 3)))


class Residual(nn.Module):
    """Shortcuts, squeeze-and-excite, RPReLU, strides, a real shortcut convolution."""

    class Unit(nn.Module):
        def __init__(self, i: int, o: int, s: int, sign: str) -> None:
            super().__init__()
            self.bias0 = nn.Parameter(torch.randn(1, i, 1, 1) * 0.1)
            self.conv, self.norm = BinConv(i, o, 3, s, 1, sign, "detached"), nn.BatchNorm2d(o)
            self.gate = nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(o, 4, 1), nn.ReLU(), nn.Conv2d(4, o, 1), nn.Sigmoid()
            )
            self.short = (
                nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o))
                if s > 1
                else nn.Identity()
            )
            self.bias1, self.prelu = nn.Parameter(torch.randn(1, o, 1, 1) * 0.1), nn.PReLU(o)
            self.bias2 = nn.Parameter(torch.randn(1, o, 1, 1) * 0.1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.conv(x + self.bias0))
            y = y * self.gate(y) + self.short(x)
            return self.prelu(y + self.bias1) + self.bias2

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.MaxPool2d(3, 2, 1))
        self.units = nn.Sequential(
            self.Unit(16, 16, 1, "detached"), self.Unit(16, 40, 2, "identity ste"), self.Unit(40, 40, 1, "tanh")
        )
        self.fc = nn.Linear(40, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.units(self.stem(x))
        return F.log_softmax(
            self.fc(F.dropout(F.adaptive_avg_pool2d(x, 1).squeeze(), 0.5, self.training).view(1, -1)), 1
        )


class EncoderDecoder(nn.Module):
    """A label for every pixel: down, up by nearest neighbours, joined with what was there before."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.Hardtanh())
        self.down = nn.Sequential(BinConv(12, 20, 3, 2, 1, "cast"), nn.BatchNorm2d(20), nn.LeakyReLU(0.1))
        self.deep = nn.Sequential(
            BinConv(20, 20, 3, 1, 2, "masked", "plain", dilation=2), nn.BatchNorm2d(20), nn.Hardswish()
        )
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.join = nn.Sequential(BinConv(32, 16, 3, 1, 1, pad_first=True), nn.BatchNorm2d(16), nn.SiLU())
        self.head = nn.Conv2d(16, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        deep = self.down(x)
        deep = deep - 0.5 * self.deep(deep)
        return self.head(self.join(torch.cat([self.up(deep), x], 1)))


class HandWritten(nn.Module):
    """Autograd functions, groups, +1 padding, a binary multilayer perceptron with BatchNorm1d at the end, as BNN has it."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.conv2, self.norm2 = BinConv(32, 32, sign="function", pad_value=1.0, groups=2), nn.BatchNorm2d(32)
        self.conv3, self.norm3 = BinConv(32, 24, sign="masked", weights="plain"), nn.BatchNorm2d(24)
        self.w1 = nn.Parameter(torch.randn(40, 24 * 4 * 4))
        self.norm4, self.norm5 = nn.BatchNorm1d(40), nn.BatchNorm1d(classes, affine=False)
        self.w2 = nn.Parameter(torch.randn(classes, 40))

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardtanh(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        x = F.hardtanh(self.norm2(self.conv2(x)))
        x = F.hardtanh(self.norm3(F.max_pool2d(self.conv3(x), 2)))
        x = F.linear(SIGNS["function"](x.flatten(1)), SIGNS["function"](self.w1))
        x = F.linear(SIGNS["function"](F.hardtanh(self.norm4(x))), SIGNS["function"](self.w2))
        return self.norm5(x)


STRANGERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int]]] = {
    "network in network": (NetworkInNetwork, (32, 32)),
    "dense": (Dense, (20, 24)),
    "residual": (Residual, (40, 32)),
    "encoder and decoder": (EncoderDecoder, (12, 16)),
    "hand written": (HandWritten, (16, 16)),
}


def stranger(name: str, seed: int = 0) -> tuple[nn.Module, tuple[int, int]]:
    """One of them in evaluation mode, with batch norms that have seen something: gammas of both signs and one of zero."""
    make, size = STRANGERS[name]
    torch.manual_seed(seed)
    network = make().eval()
    for norm in network.modules():
        if (
            isinstance(norm, (nn.BatchNorm2d, nn.BatchNorm1d))
            and norm.running_mean is not None
            and norm.running_var is not None
        ):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            if norm.affine:
                norm.weight.data.normal_()
                norm.weight.data[0] = 0
                norm.bias.data.normal_()
    return network, size
