"""One binary convolution for every paper of the field: what they differ in is a `Rules` of eight fields.

    x -> pad -> (+ bias) -> sign -> convolution with sign(w) -> * scale (-> * input scale K) (+ offset)

Both operands of the convolution are +-1. The scale is applied to its result: alpha * sign(w) convolved with x is the same
number, but no longer a product of bits. Maps are NCHW. Legend: C channels read, n = C k k weights a filter, a the scale.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.base.errors import UserError, nearest
from bcnn.nets import fused
from bcnn.nets.binarize import SLOPES, hard_tanh, magnitude, sign, sign_activation, sloped_sign, tanh_weight
from bcnn.nets.latent import Latent

CHOICES: dict[str, tuple[str, ...]] = {
    "activation": (*SLOPES, "none"),
    "weight": (*SLOPES, "xnor"),
    "scale": ("none", "filter", "filter-trained", "tensor"),
    "pad": ("zero", "minus", "plus", "before"),
}
PADS = {"zero": 0, "minus": -1, "plus": 1, "before": 0}  # the value outside of the +-1 map


@dataclass(frozen=True)
class Rules:
    """What the binary convolutions of one paper have in common."""

    activation: str = "clip"  # slope of the activations' sign; "none": the input stays real
    bias: bool = False  # added before the sign, one a channel, trained: RSign
    weight: str = "clip"  # derivative of scale * sign(w) to w, as the official codes have it; "xnor": XNOR-Net's own
    scale: str = "none"  # mean |w| of each filter, without or with ("-trained") its gradient, or of the whole tensor
    pad: str = "zero"  # of the +-1 map: 0 is a third value; "before": zeros before bias and sign, so sign(bias)
    centre: bool = False  # the mean of the weights over input channels is subtracted
    clamp: bool = False  # the latent weights are held in [-1, 1]
    input_scale: bool = False  # K of XNOR-Net: mean |x| over channels, averaged over the filter, times the result

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise UserError(
                    f"{name} of a binary convolution: unknown {getattr(self, name)!r}; choose from {', '.join(known)}"
                )

    def but(self, **changes: Any) -> Rules:
        """A copy with some fields changed; a field that is not there is a `UserError`."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise UserError(f"a binary convolution has no rule {name!r}; {nearest(name, known)}")
        return dataclasses.replace(self, **changes)


class BinaryConv2d(Latent):
    """Sign and binary convolution as the rules say. Without a padding it is that of an odd filter that keeps the size."""

    modes = frozenset({"real", "binary", "tanh", "float"})  # "scaled" is a rule here, not a mode

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: int | tuple[int, int] = 3,
        stride: int = 1,
        padding: int | None = None,
        *,
        rules: Rules,
        offset: bool = False,
    ) -> None:
        super().__init__()
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        self.rules, self.stride = rules, stride
        self.padding = height // 2 if padding is None else padding
        self.weight = nn.Parameter(nn.init.kaiming_normal_(torch.empty(out, channels, height, width)))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1)) if rules.bias else None
        self.offset = nn.Parameter(torch.zeros(1, out, 1, 1)) if offset else None

    @property
    def fusible(self) -> bool:
        """Whether the native kernels may take this module's place; a subclass with rules of its own says so for itself."""
        return type(self) is BinaryConv2d and self.in_kernels

    @property
    def in_kernels(self) -> bool:
        """Whether the native kernels have this convolution: of signs, in lanes of eight channels, with a dot that fits 16 bits.

        Left to torch are a real input, the float twin, and the last layer of a network whose classes are no multiple of eight.
        """
        out, channels = self.weight.shape[:2]
        return (
            self.rules.activation in fused.LIMITS
            and self.rules.weight in fused.WEIGHT_LIMITS
            and self.weights != "float"
            and out % 8 == channels % 8 == 0
            and self.weight[0].numel() < 2**15
        )

    def one_operator(self, x: Tensor) -> bool:
        """Whether the native kernels take the place of sign, convolution and scale."""
        return (
            self.fusible
            and self.training
            and x.dim() == 4
            and x.shape[1] == self.weight.shape[1]
            and x.shape[0] >= fused.FEWEST_IMAGES
            and all(side + 2 * self.padding >= k for side, k in zip(x.shape[2:], self.weight.shape[2:], strict=True))
            and self.weight.dtype == torch.float32
            and fused.ready(x, self.weight.shape[0])
        )

    def forward(self, x: Tensor) -> Tensor:
        w = self.latent()
        a = self.scale(w) if self.weights in ("binary", "tanh") else None
        out = self.operated(x, w, a) if self.one_operator(x) else self.convolved(x, w, a)
        if self.rules.input_scale:
            out = out * self.input_scale(x)
        return out if self.offset is None else out + self.offset

    def convolved(self, x: Tensor, w: Tensor, a: Tensor | None) -> Tensor:
        """The definition: sign, convolution, scale."""
        bits = self.activate(x)
        padding = self.padding if self.rules.pad == "zero" else 0
        out = F.conv2d(bits, self.binarize(w, a).to(bits.dtype), None, self.stride, padding)
        return out if a is None else out * a

    def operated(self, x: Tensor, w: Tensor, a: Tensor | None) -> Tensor:
        """The same through the native kernels."""
        p, rules = self.padding, self.rules
        before = rules.pad == "before" and p > 0
        trained = a if a is not None and a.requires_grad else None
        out = fused.tap_conv(
            F.pad(x, (p, p, p, p)) if before else x,
            self.bias,
            tanh_weight(w, self.temperature) if self.weights == "tanh" else w,
            a if trained is None else None,
            stride=self.stride,
            padding=0 if before else p,
            pad=PADS[rules.pad],
            slope=rules.activation,
            weight_slope=(rules.weight, self.weight_slope(a)) if self.weights == "binary" else None,
        )
        return out if trained is None else out * trained

    def activate(self, x: Tensor, signed: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The padded +-1 map that is convolved; with pad "zero" the convolution itself pads."""
        p, pad = self.padding, self.rules.pad
        if pad == "before" and p:
            x = F.pad(x, (p, p, p, p))
        if self.rules.activation != "none":
            x = (signed or self.signed)(x)
        if pad in ("minus", "plus") and p:
            x = F.pad(x, (p, p, p, p), value=1.0 if pad == "plus" else -1.0)
        return x

    def signed(self, x: Tensor) -> Tensor:
        """sign(x + bias) with the slope of the rules; a hard tanh of it in the float twin."""
        if self.bias is not None:
            if self.weights != "float" and self.rules.activation == "triangle":
                return sign_activation(x, self.bias)
            x = x + self.bias
        return hard_tanh(x) if self.weights == "float" else sloped_sign(x, SLOPES[self.rules.activation])

    def latent(self) -> Tensor:
        """The weights to take the sign of: centred and clamped by value, while the gradient passes as if they were not."""
        w = self.weight
        if not (self.rules.centre or self.rules.clamp):
            return w
        return self.constrained(w.detach()) + (w - w.detach())  # w - w is 0: the value is the first term's to the bit

    def constrained(self, w: Tensor) -> Tensor:
        w = w - w.mean(1, keepdim=True) if self.rules.centre else w
        return w.clamp(-1, 1) if self.rules.clamp else w

    def scale(self, w: Tensor) -> Tensor | None:
        """1,out,1,1 or 1,1,1,1; nothing where the rules have no scale."""
        if self.rules.scale == "none":
            return None
        if self.rules.scale == "tensor":
            return w.detach().abs().mean().reshape(1, 1, 1, 1)
        return magnitude(w if self.rules.scale == "filter-trained" else w.detach())

    def binarize(self, w: Tensor, a: Tensor | None) -> Tensor:
        if self.weights == "tanh":
            return tanh_weight(w, self.temperature)
        return sloped_sign(w, self.weight_slope(a)) if self.weights == "binary" else w

    def weight_slope(self, a: Tensor | None) -> Callable[[Tensor], Tensor]:
        """The slope of sign(w) under which a * sign(w) has the derivative that the rules name.

        1. The official codes convolve with v = a sign(w) and define dv/dw = slope(w), a taken as a constant.
        2. Here the convolution reads s = sign(w) and its result is multiplied by a, so what arrives is dL/ds = a dL/dv.
        3. dL/dw = dL/dv slope(w) = dL/ds slope(w) / a. A scale with a gradient of its own has dv/dw = a ds/dw + s da/dw
           and nothing to divide by.
        """
        rule = self.rules.weight
        if a is None or self.rules.scale == "filter-trained":
            a = torch.ones((), dtype=self.weight.dtype, device=self.weight.device)
        a = (
            a.detach().reshape(-1, 1, 1, 1).clamp_min(torch.finfo(a.dtype).tiny)
        )  # a filter of zeros gets none: 0 / tiny
        if rule != "xnor":
            return lambda w: SLOPES[rule](w) / a
        n = self.weight[0].numel()
        diagonal = 1 - 1 / self.weight.shape[1]  # of the matrix that subtracts the mean over input channels
        return lambda w: (a * (w.abs() < 1) + 1 / n) * diagonal / a

    def input_scale(self, x: Tensor) -> Tensor:
        """K: the mean of |x| over channels, box filtered as the convolution reads it, zeros outside. No gradient."""
        kernel = self.weight.shape[2:]
        return F.avg_pool2d(x.detach().abs().mean(1, keepdim=True), tuple(kernel), self.stride, self.padding)

    def summed(self, x: Tensor) -> Tensor | None:
        if self.rules.activation == "none":
            return None
        return x if self.bias is None else x + self.bias

    def survives(self, summed: Tensor) -> Tensor:
        return SLOPES[self.rules.activation](summed) != 0

    def signs(self) -> Tensor:
        return sign(self.latent().detach())

    def constrain(self) -> None:
        if self.rules.centre or self.rules.clamp:
            self.weight.copy_(self.constrained(self.weight))

    def extra_repr(self) -> str:
        out, channels, height, width = self.weight.shape
        rules = ", ".join(f"{f.name}={getattr(self.rules, f.name)}" for f in dataclasses.fields(self.rules))
        return f"{channels}, {out}, {height}x{width}/{self.stride}, weights={self.weights}, {rules}"
