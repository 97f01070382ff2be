"""ABC-Net: Lin, Zhao and Pan, "Towards Accurate Binary Convolutional Neural Network", NIPS 2017.

A real convolution is approximated by M x N binary ones. With W the latent weights of a layer and x its input:

    B_i = sign(W - mean(W) + u_i std(W)),  u_i = -1 + 2 (i - 1) / (M - 1)            weight bases
    a   = the least squares solution of W = sum_i a_i B_i
    A_j = +1 where x + v_j >= 0.5, else -1;  gradient 1 where 0 <= x + v_j <= 1       activation bases, v_j learned
    out = sum_ij a_i beta_j conv(A_j, B_i)                                            beta_j learned

First layer, shortcuts and the last layer are real. Trained from a real network; the authors' schedule is not published.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.base.errors import UserError
from bcnn.nets import fused
from bcnn.nets.binarize import SLOPES, sign, sloped_sign
from bcnn.nets.binary_conv import PADS, BinaryConv2d, Rules
from bcnn.nets.blocks import Add, Decoder, assemble, resnet_stem, stages, strided_shortcut, wide

# Reading: the padding was not published; 0, as in the other papers of its time.
RULES = Rules(activation="half", weight="identity")
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


class BasesConv(BinaryConv2d):
    """A convolution approximated by `weight_bases` x `activation_bases` binary ones.

    Reading: where v_j and beta_j start is not published: v_j spread evenly over [-1, 1] as the u_i are, beta_j = 1 / N.
    """

    modes = frozenset({"real", "binary", "float"})

    def __init__(
        self, channels: int, out: int, stride: int, weight_bases: int, activation_bases: int, rules: Rules
    ) -> None:
        super().__init__(channels, out, 3, stride, rules=rules)
        if rules != RULES.but(activation=rules.activation, pad=rules.pad, bias=rules.bias):
            raise UserError("ABC-Net's weights have rules of their own: only activation, bias and pad can be changed")
        if min(weight_bases, activation_bases) < 1:
            raise UserError(f"ABC-Net needs at least one base of each kind, got {weight_bases} x {activation_bases}")
        self.spread = _spread(weight_bases)  # u_i
        self.shift = nn.Parameter(torch.tensor(_spread(activation_bases)))  # v_j
        self.beta = nn.Parameter(torch.full((activation_bases,), 1 / activation_bases))

    @property
    def fusible(self) -> bool:
        return type(self) is BasesConv and self.rules.pad != "before" and self.in_kernels

    def forward(self, x: Tensor) -> Tensor:
        binary = self.weights == "binary"
        filters: list[Tensor] = self.bases() if binary else [self.weight]
        factors = self.factors(filters) if binary else self.weight.new_ones(1)
        if binary and self.training:
            # A convolution is linear in its filter: N of them with sum_i a_i B_i have the values and gradients of M x N.
            filters = [torch.einsum("m,mocyx->ocyx", factors, torch.stack(filters))]
            factors = factors.new_ones(1)
        out = None
        for j in range(len(self.beta)):
            for i, dot in enumerate(self.dots(x, self.shift[j] - 0.5, filters)):
                term = dot * (factors[i] * self.beta[j])
                out = term if out is None else out + term
        assert out is not None
        return out

    def dots(self, x: Tensor, shift: Tensor, filters: list[Tensor]) -> Iterator[Tensor]:
        """The signs of one activation base, convolved with each filter."""
        if self.one_operator(x):
            for filter in filters:
                yield fused.tap_conv(
                    x + shift, self.bias, filter, None, stride=self.stride, padding=self.padding,
                    pad=PADS[self.rules.pad], slope=self.rules.activation, weight_slope=None,
                )  # fmt: skip
            return
        padding = self.padding if self.rules.pad == "zero" else 0
        bits = self.activate(x, lambda x: self.signed(x + shift))
        for filter in filters:
            yield F.conv2d(bits, filter.to(bits.dtype), None, self.stride, padding)

    def bases(self) -> list[Tensor]:
        """The B_i; the gradient passes each of them to W as if it were W, mean and deviation taken as constants."""
        w = self.weight.detach()
        mean, std = w.mean(), w.std(correction=0)
        return [sloped_sign(self.weight - mean + u * std, SLOPES[self.rules.weight]) for u in self.spread]

    def factors(self, bases: list[Tensor]) -> Tensor:
        """a from its normal equations, which are small: (B'B) a = B'W. The pseudo inverse allows equal bases. No gradient."""
        w = self.weight.detach()
        b = torch.stack([base.detach().flatten() for base in bases]).double()  # which autocast leaves as it is
        inverse: Tensor = torch.linalg.pinv(b @ b.T, hermitian=True)
        return (inverse @ (b @ w.flatten().double())).to(w.dtype)

    def signs(self) -> Tensor:
        """M,out,C,3,3: every base is stored."""
        return sign(torch.stack([base.detach() for base in self.bases()]))


def _spread(bases: int) -> list[float]:
    return [-1 + 2 * i / (bases - 1) for i in range(bases)] if bases > 1 else [0.0]


def abcnet(
    depth: int = 18,
    classes: int = 1000,
    size: tuple[int, int] = (224, 224),
    form: str = "imagenet",
    width: float = 1,
    weight_bases: int = 5,
    activation_bases: int = 5,
    **rules: Any,
) -> nn.Module:
    """Reading: where batch norm stands is not published: after each convolution and shortcut, as in ResNet; no ReLU, since the
    next layer's thresholds take its place."""
    made = RULES.but(**rules)
    base = wide(64, width)
    widths = [base * 2**stage for stage in range(4)]

    def binary(channels: int, out: int, stride: int) -> list[nn.Module]:
        return [BasesConv(channels, out, stride, weight_bases, activation_bases, made), nn.BatchNorm2d(out)]

    def block(channels: int, out: int, stride: int) -> nn.Module:
        body = nn.Sequential(*binary(channels, out, stride), *binary(out, out, 1))
        return Add(body, strided_shortcut(channels, out, stride))

    stem = resnet_stem(base, form, nn.ReLU())
    return assemble(stem, stages(block, base, widths, BLOCKS[depth]), Decoder(widths[-1], classes))
