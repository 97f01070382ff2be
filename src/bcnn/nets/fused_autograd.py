"""The native kernels as functions that autograd knows: what `fused` calls, and nobody else.

Backward recomputes sign and PReLU mask from what is saved: the float32 map a module read and its convolution's result, which is
int16 and exact where weights are +-1. So only the order of float32 sums differs from torch's operators.

Maps come and go as N,C,H,W in channels-last memory: their N,H,W,C view is contiguous. Legend: N images, C channels of the map
read, K that the convolution reads, O that it makes, P branches.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

native: Any
try:
    native = importlib.import_module("bcnn._training")
except ImportError:  # an install without the native part
    native = None

Array = Any  # of NumPy, which shares a tensor's memory


class How(NamedTuple):
    """What a binary convolution needs besides tensors with gradients."""

    identity: bool
    prelu_before_add: bool
    binary: bool
    norms: list[nn.BatchNorm2d]
    threads: int


class BinaryConvFunction(torch.autograd.Function):
    """x, add, slope, then bias, weight, gamma, beta of each branch. Saves x, add and each branch's convolution result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, add: Tensor | None, slope: Tensor | None, how: How, *parameters: Tensor) -> Tensor:
        x, add = _nhwc(x), None if add is None else _nhwc(add)
        branches = len(how.norms)
        channels, inputs = parameters[1].shape[:2]
        shape = (*x.shape[:3], channels)
        out = x.new_empty(shape)
        y = [x.new_empty(shape, dtype=torch.int16 if how.binary else None) for _ in range(branches)]
        statistics = [x.new_empty(2, channels) for _ in range(branches)]
        ctx.save_for_backward(x, add, slope, *y, *statistics, *parameters)
        ctx.how = how
        flags = how.identity, how.prelu_before_add, how.binary, how.norms[0].training
        ctx.arguments = _array(slope), (inputs, channels), flags, how.threads
        ctx.arrays = [_array(p) for p in parameters]
        running = [(norm.running_mean, norm.running_var) for norm in how.norms]
        native.binary_conv_forward(*_binary_conv_arguments(ctx, x, add, y, statistics, running), out.numpy())
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, add, slope, *rest = ctx.saved_tensors
        p = len(ctx.how.norms)
        y, statistics, parameters = rest[:p], rest[p : 2 * p], rest[2 * p :]
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        d_add = None if add is None else torch.empty_like(add)
        d_slope = None if slope is None else torch.empty_like(slope)
        gradients = [torch.empty_like(p, memory_format=torch.contiguous_format) for p in parameters]
        arrays = [g.numpy() for g in gradients]
        by_branch = tuple(tuple(arrays[i : i + 4]) for i in range(0, len(arrays), 4))
        to = _nhwc(grad).numpy(), _array(dx), _array(d_add), _array(d_slope), by_branch
        native.binary_conv_backward(*_binary_conv_arguments(ctx, x, add, y, statistics, None), to)
        return _nchw(dx), _nchw(d_add), d_slope, None, *gradients


def _binary_conv_arguments(
    ctx: Any, x: Tensor, add: Tensor | None, y: list[Tensor], statistics: list[Tensor], running: Any
) -> tuple[Any, ...]:
    """The native call's arguments up to its result. `running` statistics are not needed backward."""
    branches = []
    for i, norm in enumerate(ctx.how.norms):
        bias, weight, gamma, beta = ctx.arrays[4 * i : 4 * i + 4]
        norm_arrays = _norm_arguments(norm, gamma, beta, statistics[i], running[i] if running else None)
        branches.append((bias, weight, norm_arrays, y[i].numpy()))
    return x.numpy().reshape(-1, x.shape[3]), tuple(branches), _array(add), *ctx.arguments


class TapOptions(NamedTuple):
    """What a convolution of k x k taps needs besides tensors with gradients."""

    stride: int
    padding: int
    pad: int  # what is read outside of the map: 0, +1 or -1
    limit: float | None  # of |x| for the slope of the sign, 1 up to there; None: 2 - 2|x|, Eq. 1
    scale: Tensor  # of each output channel; no gradient
    weight_slope: (
        tuple[Tensor, Tensor, float] | None
    )  # of the weight's sign, (inside, outside, limit); None: no sign is taken
    threads: int


class TapConv(torch.autograd.Function):
    """x, bias, weight O,C,k,k. Saves x and the weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, weight: Tensor, taps: TapOptions) -> Tensor:
        x = _nhwc(x)
        made, _, *kernel = weight.shape
        size = [(side + 2 * taps.padding - k) // taps.stride + 1 for side, k in zip(x.shape[1:3], kernel, strict=True)]
        out = x.new_empty(len(x), *size, made)
        ctx.save_for_backward(x, bias, weight)
        ctx.taps = taps
        native.tap_conv_forward(*_tap_arguments(taps, x, bias, weight), out.numpy())
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, bias, weight = ctx.saved_tensors
        taps: TapOptions = ctx.taps
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] or bias is not None else None
        d_bias = None if bias is None else torch.empty_like(bias)
        d_weight = torch.empty_like(weight, memory_format=torch.contiguous_format)
        one = torch.ones(len(weight))
        inside, outside, limit = taps.weight_slope or (one, one, 0.0)
        slope = _array(inside), _array(outside), limit
        to = _nhwc(grad).numpy(), _array(dx), _array(d_bias), d_weight.numpy(), slope
        native.tap_conv_backward(*_tap_arguments(taps, x, bias, weight), to)
        return _nchw(dx), d_bias, d_weight, None


def _tap_arguments(taps: TapOptions, x: Tensor, bias: Tensor | None, weight: Tensor) -> tuple[Any, ...]:
    added = x.new_zeros(x.shape[3]) if bias is None else bias
    how = taps.stride, taps.padding, taps.pad, taps.weight_slope is not None, taps.limit is None, taps.limit or 0.0
    return x.numpy(), _array(added), _array(weight), _array(taps.scale), how, taps.threads


class DepthwiseConvFunction(torch.autograd.Function):
    """Saves x and the convolution's result, what batch norm reads."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, stride: int, norm: nn.BatchNorm2d, threads: int, *parameters: Tensor
    ) -> Tensor:  # weight, gamma, beta, slope
        x = _nhwc(x)
        n, h, w, channels = x.shape
        out = x.new_empty(n, (h - 1) // stride + 1, (w - 1) // stride + 1, channels)
        y, statistics = torch.empty_like(out), x.new_empty(2, channels)
        ctx.save_for_backward(x, y, statistics, *parameters)
        ctx.norm, ctx.arguments = norm, (stride, norm.training, threads)
        ctx.arrays = [_array(p) for p in parameters]
        running = norm.running_mean, norm.running_var
        native.depthwise_conv_forward(*_depthwise_arguments(ctx, x, y, statistics, running), out.numpy())
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, statistics, *parameters = ctx.saved_tensors
        dx = torch.empty_like(x)
        gradients = [torch.empty_like(p, memory_format=torch.contiguous_format) for p in parameters]
        to = tuple(t.numpy() for t in (_nhwc(grad), dx, *gradients))
        native.depthwise_conv_backward(*_depthwise_arguments(ctx, x, y, statistics, None), to)
        return _nchw(dx), None, None, None, *gradients


def _depthwise_arguments(ctx: Any, x: Tensor, y: Tensor, statistics: Tensor, running: Any) -> tuple[Any, ...]:
    weight, gamma, beta, slope = ctx.arrays
    norm = _norm_arguments(ctx.norm, gamma, beta, statistics, running)
    return x.numpy(), weight, norm, slope, y.numpy(), *ctx.arguments


class AvgPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, stride: int, threads: int) -> Tensor:
        x = _nhwc(x)
        n, h, w, channels = ctx.shape = x.shape
        ctx.stride, ctx.threads = stride, threads
        out = x.new_empty(n, h // stride, w // stride, channels)
        native.avg_pool_forward(x.numpy(), stride, threads, out.numpy())
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dx = grad.new_empty(ctx.shape)
        native.avg_pool_backward(_nhwc(grad).numpy(), ctx.stride, ctx.threads, dx.numpy())
        return _nchw(dx), None, None


class Fork(torch.autograd.Function):
    """One map for two readers: their gradients are added by the kernels' threads, which have them in their caches."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threads: int) -> tuple[Tensor, Tensor]:
        ctx.threads = threads
        return x.view_as(x), x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, first: Tensor, second: Tensor) -> tuple[Tensor | None, None]:
        first, second = _nhwc(first), _nhwc(second)
        out = torch.empty_like(first)
        native.add(first.numpy(), second.numpy(), ctx.threads, out.numpy())
        return _nchw(out), None


def _norm_arguments(
    norm: nn.BatchNorm2d, gamma: Array, beta: Array, statistics: Tensor, running: Any
) -> tuple[Any, ...]:
    mean, inverse = statistics.numpy()
    mean_var = (running[0].numpy(), running[1].numpy()) if running else (mean, inverse)
    return gamma, beta, *mean_var, mean, inverse, norm.momentum, norm.eps


def _nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous()


def _nchw(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.permute(0, 3, 1, 2)


def _array(tensor: Tensor | None) -> Array:
    """The memory of a parameter as an array; a copy if it is not contiguous."""
    return None if tensor is None else tensor.detach().contiguous().numpy()
