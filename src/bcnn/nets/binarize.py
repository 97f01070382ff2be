"""Sign with its two surrogate gradients, Eq. 1 to 4 (sec. 5.3).

The forward function is sign, with sign(0) = sign(-0.0) = +1 so that a binary tensor never holds a third value (torch.sign
yields 0). Its derivative is 0 almost everywhere, so the backward pass uses that of a smoother function:

    activations   dy/dx = 2 - 2|x| on [-1, 1]   (Eq. 1), the derivative of `soft_sign` (Eq. 2)
    weights       dy/dx = 1        on [-1, 1]   (Eq. 3), the derivative of `hard_tanh`  (Eq. 4)

Eq. 2 is never computed by the network; it is here so that tests can differentiate it. Eq. 4 takes the place of sign in the
float twin, the same network with nothing binarized: a teacher, and a measure of what one bit costs. `SLOPES` has the
derivatives that other papers take in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def sign(x: Tensor) -> Tensor:
    """+1 where x >= 0 (-0.0 included), else -1; the dtype of x. No gradient."""
    return (x >= 0).to(x.dtype).mul_(2).sub_(1)  # exact in every dtype, and 2.5 times as fast as torch.where on a CPU


# What stands for the derivative of sign(x) in the backward pass; every one is 0 outside of its interval but `identity`.
Slope = Callable[[Tensor], Tensor]
SLOPES: dict[str, Slope] = {
    "triangle": lambda x: (2 - 2 * x.abs()).clamp_min(0),  # Eq. 1; Bi-Real Net, ReActNet, Group-Net
    "clip": lambda x: (x.abs() <= 1).to(x.dtype),  # Eq. 3; BNN, XNOR-Net, Real-to-Binary Net
    "wide": lambda x: (x.abs() <= 1.3).to(x.dtype),  # MeliusNet
    "half": lambda x: (x.abs() <= 0.5).to(x.dtype),  # ABC-Net: 1 on the interval [0, 1] around its threshold 0.5
    "identity": torch.ones_like,  # weights of ABC-Net, Group-Net, MeliusNet
}


class _ActivationSign(torch.autograd.Function):
    """sign(x + bias). Saves x, which the identity path keeps alive anyway, and never the sum: P branches on one x cost no copy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, bias)
        return sign(x + bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, bias = ctx.saved_tensors
        dx = grad * (2 - 2 * (x + bias).abs()).clamp_min(0)  # Eq. 1: 2 - 2|x| turns negative just where it must be 0
        dims = [d for d in range(dx.dim()) if bias.shape[d] == 1 and dx.shape[d] != 1]
        return dx, dx.sum(dims, keepdim=True) if dims else dx


class _SlopedSign(torch.autograd.Function):
    """sign(x) with any slope. Saves x and computes the slope when it is asked for, so that evaluation runs sign and no more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Slope) -> Tensor:
        ctx.save_for_backward(x)
        ctx.slope = slope
        return sign(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * ctx.slope(x), None


class _WeightSign(torch.autograd.Function):
    """sign(w). Saves one byte a weight: whether it lies in [-1, 1]."""

    @staticmethod
    def forward(ctx: Any, w: Tensor) -> Tensor:
        ctx.save_for_backward(w.abs() <= 1)
        return sign(w)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (inside,) = ctx.saved_tensors
        dw: Tensor = grad * inside  # Eq. 3
        return dw


def sign_activation(x: Tensor, bias: Tensor) -> Tensor:
    """sign(x + bias) with the gradient of Eq. 1 to both; `bias` has as many dimensions as x."""
    signs: Tensor = _ActivationSign.apply(x, bias)  # type: ignore[no-untyped-call]
    return signs


def sign_weight(w: Tensor) -> Tensor:
    """sign(w) with the gradient of Eq. 3; w itself is the latent real weight that accumulates it (sec. 5.2)."""
    signs: Tensor = _WeightSign.apply(w)  # type: ignore[no-untyped-call]
    return signs


def sloped_sign(x: Tensor, slope: Slope) -> Tensor:
    """sign(x) whose backward pass multiplies by slope(x): one of `SLOPES`, or a function of the caller's."""
    signs: Tensor = _SlopedSign.apply(x, slope)  # type: ignore[no-untyped-call]
    return signs


def soft_sign(x: Tensor) -> Tensor:
    """Eq. 2, the unused forward function whose derivative is Eq. 1."""
    inner = torch.where(x < 0, x * x + 2 * x, -x * x + 2 * x)
    return torch.where(x < -1, -1.0, torch.where(x >= 1, 1.0, inner))


def hard_tanh(x: Tensor) -> Tensor:
    """Eq. 4, whose derivative is Eq. 3: what the float twin has in the place of sign."""
    return x.clamp(-1, 1)


def tanh_weight(w: Tensor, temperature: float = 1.0) -> Tensor:
    """tanh(temperature * w): w itself for a small temperature, sign(w) in the limit; for a step between step 1 and step 2."""
    return torch.tanh(temperature * w)


def magnitude(w: Tensor) -> Tensor:
    """Mean |w| of every output channel, as 1,C,1,1: the scale that brings sign(w) nearest to w in the L2 sense."""
    return w.abs().mean((1, 2, 3)).reshape(1, -1, 1, 1)


# What a convolution does to its latent weights before it uses them: step 1 (sec. 5.1) and step 2 (sec. 5.2) of training, and
# the "alternative real to binary transformations" of sec. 7. "scaled" multiplies the result of the binary convolution by
# `magnitude`, a vector operation, so that the convolution's operands stay +-1. "float" is the float twin: there activations
# are real too.
WEIGHTS: dict[str, Callable[..., Tensor]] = {
    "real": lambda w, temperature=1.0: w,
    "binary": lambda w, temperature=1.0: sign_weight(w),
    "scaled": lambda w, temperature=1.0: sign_weight(w),
    "tanh": tanh_weight,
    "float": lambda w, temperature=1.0: w,
}
