"""A building block through native kernels: the same function, parameters and gradients as `layers.Block`, several times faster.

`layers` is the definition and the only path on a GPU; `Block.forward` asks `applies` and comes here when training on a CPU. A
module is one pass sign -> convolution -> statistics and one pass batch norm + identity + PReLU. Backward recomputes sign and
PReLU mask from what is saved: the float32 map a module read and its convolution's result, which is int16 and exact where
weights are +-1. So only the order of float32 sums differs from the plain path. `enabled = False` or BCNN_FUSED=0 turns it off.

Maps are NHWC in here: channels are lanes. Legend: N images, C channels read, K = RC channels made, P branches.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

import bcnn.nets.layers as layers  # which imports this module: both look the other up when they run, not when they load

_training: Any
try:
    _training = importlib.import_module("bcnn._training")
except ImportError:  # an install without the native part
    _training = None
_modules: Any = nn.modules.module  # torch gives its global hooks no types

enabled = os.environ.get("BCNN_FUSED", "1") != "0"


# --- when it applies ------------------------------------------------------------------------------------------------


def available() -> bool:
    """Whether this install has the native kernels."""
    return _training is not None


def applies(block: layers.Block, x: Tensor) -> bool:
    """Whether `block` may read x through the native kernels: whenever nobody could tell the difference.

    Tracing, compiling, exporting, counting and transforming see the plain path, and so does a hook on a module inside the
    block. Only training mode comes here: evaluation and verification run the definition.
    """
    return (
        not torch.compiler.is_compiling()  # first: a tracer looks no further
        and enabled
        and _training is not None
        and block.training
        and type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not _observed()
        and _as_built(block)
        and _fits(block, x)
    )


def _observed() -> bool:
    """Whether something looks at, or changes, the operators that run."""
    return bool(
        torch._C._get_tracing_state() is not None
        or torch.is_autocast_enabled("cpu")
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or _modules._has_any_global_hook()
    )


def _as_built(block: layers.Block) -> bool:
    """Whether the block holds the modules that `layers.Block` makes: none replaced, none hooked, none of a kind left out here."""
    kinds = (
        layers.Replicate,
        layers.BinaryConv,
        layers.Branch,
        layers.DepthwiseConv,
        nn.ModuleList,
        nn.Conv2d,
        nn.BatchNorm2d,
    )
    if type(block) is not layers.Block or block.replicate.channels < block.replicate.channels_in:
        return False
    modes = [module.weights for module in block.modules() if isinstance(module, layers.Branch)]
    for module in block.modules():
        if module is block:
            continue  # its own hooks run around forward, whatever that does
        if type(module) not in (*kinds, nn.PReLU, nn.AvgPool2d):
            return False
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            return False
        if isinstance(module, nn.BatchNorm2d) and (
            module.training != block.training
            or not module.affine
            or module.running_mean is None
            or module.momentum is None
        ):
            return False
        if isinstance(module, layers.Branch) and (
            any(module.shift) or module.weights not in ("real", "binary") or module.weights != modes[0]
        ):
            return False
    return all(p.device.type == "cpu" and p.dtype == torch.float32 for p in block.parameters())


def _fits(block: layers.Block, x: Tensor) -> bool:
    """Whether x is a map the block can read; the plain path says what is wrong with any other."""
    if x.dim() != 4 or x.shape[1] != block.replicate.channels_in:
        return False
    stride = block.depthwise.conv.stride[0]
    n, _, h, w = x.shape
    return h % stride == 0 and w % stride == 0 and n * (h // stride) * (w // stride) > 1


# --- the block ------------------------------------------------------------------------------------------------------


def block(block: layers.Block, x: Tensor) -> Tensor:
    """What `layers.Block` computes, N,C,H,W -> N,K,H/S,W/S. Replication is an index rule of conv1 and identity."""
    x_nhwc = x.permute(0, 2, 3, 1).contiguous()
    inner = depthwise_conv(block.depthwise, binary_conv(block.conv1, x_nhwc))
    other = x_nhwc
    if block.identity is not None and block.pool is not None:
        other = binary_conv(block.identity, avg_pool(x_nhwc, block.depthwise.conv.stride[0]))
    out_nhwc = binary_conv(block.conv3, inner, add=other, prelu_after_add=block.prelu)
    return out_nhwc.permute(0, 3, 1, 2)


def binary_conv(
    conv: layers.BinaryConv, x: Tensor, add: Tensor | None = None, prelu_after_add: nn.PReLU | None = None
) -> Tensor:
    """`layers.BinaryConv` of a map N,H,W,C, plus `add`; a block's PReLU after the addition is part of it."""
    prelu = prelu_after_add or conv.prelu
    branches: list[layers.Branch] = list(conv.branches)  # type: ignore[arg-type]
    parameters = []
    for b in branches:
        parameters += [b.bias, b.weight, b.norm.weight, b.norm.bias]
        _count_batch(b.norm)
    how = _How(
        binary=branches[0].weights == "binary",  # the kernels take the sign of the weights themselves (Eq. 3)
        prelu_before_add=conv.prelu is not None,
        norms=[b.norm for b in branches],
        training=conv.training,
    )
    out: Tensor = _BinaryConv.apply(x, add, None if prelu is None else prelu.weight, how, *parameters)  # type: ignore[no-untyped-call]
    return out


def depthwise_conv(conv: layers.DepthwiseConv, x: Tensor) -> Tensor:
    """`layers.DepthwiseConv` of a map N,H,W,C."""
    _count_batch(conv.norm)
    parameters = conv.conv.weight, conv.norm.weight, conv.norm.bias, conv.prelu.weight
    out: Tensor = _DepthwiseConv.apply(x, conv.conv.stride[0], conv.norm, *parameters)  # type: ignore[no-untyped-call]
    return out


def avg_pool(x: Tensor, stride: int) -> Tensor:
    """SxS/S average of a map N,H,W,C."""
    if stride == 1:
        return x
    out: Tensor = _AvgPool.apply(x, stride)  # type: ignore[no-untyped-call]
    return out


# --- autograd -------------------------------------------------------------------------------------------------------


class _How(NamedTuple):
    """What a convolution module needs besides tensors with gradients."""

    binary: bool
    prelu_before_add: bool
    norms: list[nn.BatchNorm2d]
    training: bool


class _BinaryConv(torch.autograd.Function):
    """x, add, slope, then bias, weight, gamma, beta of each branch. Saves x, add and each branch's convolution result."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, add: Tensor | None, slope: Tensor | None, how: _How, *parameters: Tensor
    ) -> Tensor:
        channels = parameters[0].numel()
        shape = (*x.shape[:3], channels)
        out = x.new_empty(shape)
        y = [x.new_empty(shape, dtype=torch.int16 if how.binary else None) for _ in how.norms]
        statistics = [x.new_empty(2, channels) for _ in how.norms]
        ctx.how, ctx.branches = how, len(how.norms)
        saved = x, add, slope, *y, *statistics, *parameters
        ctx.save_for_backward(*saved)
        running = [(norm.running_mean, norm.running_var) for norm in how.norms]
        _training.binary_conv_forward(*_binary_conv_arguments(ctx, saved, running), _array(out))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, add, slope, *rest = ctx.saved_tensors
        parameters = rest[2 * ctx.branches :]
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        d_add = None if add is None else torch.empty_like(add)
        d_slope = None if slope is None else torch.empty_like(slope)
        gradients = [torch.empty_like(p, memory_format=torch.contiguous_format) for p in parameters]
        arrays = tuple(tuple(_array(g) for g in gradients[i : i + 4]) for i in range(0, len(gradients), 4))
        arguments = _binary_conv_arguments(ctx, ctx.saved_tensors, None)
        to = _array(grad.contiguous()), _array(dx), _array(d_add), _array(d_slope), arrays
        _training.binary_conv_backward(*arguments, to)
        return dx, d_add, d_slope, None, *gradients


def _binary_conv_arguments(ctx: Any, saved: Any, running: list[tuple[Any, Any]] | None) -> tuple[Any, ...]:
    """The native call's arguments up to its result, from what is saved. `running` statistics are not needed backward."""
    x, add, slope, *rest = saved
    y, statistics, parameters = rest[: ctx.branches], rest[ctx.branches : 2 * ctx.branches], rest[2 * ctx.branches :]
    branches = []
    for p, norm in enumerate(ctx.how.norms):
        bias, weight, gamma, beta = (_array(t) for t in parameters[4 * p : 4 * p + 4])
        norm_arrays = _norm_arguments(
            norm, gamma, beta, statistics[p], running[p] if running else statistics[p].unbind()
        )
        branches.append((bias, weight, norm_arrays, _array(y[p])))
    channels = parameters[0].numel()
    pixels = _array(x).reshape(-1, x.shape[3])
    how = True, ctx.how.prelu_before_add, ctx.how.binary, ctx.how.training
    return pixels, tuple(branches), _array(add), _array(slope), (channels, channels), how, torch.get_num_threads()


class _DepthwiseConv(torch.autograd.Function):
    """Saves x and the convolution's result, what batch norm reads."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        stride: int,
        norm: nn.BatchNorm2d,
        weight: Tensor,
        gamma: Tensor,
        beta: Tensor,
        slope: Tensor,
    ) -> Tensor:
        n, h, w, channels = x.shape
        out = x.new_empty(n, (h - 1) // stride + 1, (w - 1) // stride + 1, channels)
        y, statistics = torch.empty_like(out), x.new_empty(2, channels)
        ctx.stride, ctx.norm, ctx.training = stride, norm, norm.training
        saved = x, weight, gamma, beta, slope, y, statistics
        ctx.save_for_backward(*saved)
        running = norm.running_mean, norm.running_var
        _training.depthwise_conv_forward(*_depthwise_arguments(ctx, saved, running), _array(out))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, gamma, beta, slope, _, _ = ctx.saved_tensors
        dx, *gradients = (
            torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x, weight, gamma, beta, slope)
        )
        to = tuple(_array(t) for t in (grad.contiguous(), dx, *gradients))
        _training.depthwise_conv_backward(*_depthwise_arguments(ctx, ctx.saved_tensors, None), to)
        return dx, None, None, *gradients


def _depthwise_arguments(ctx: Any, saved: Any, running: tuple[Any, Any] | None) -> tuple[Any, ...]:
    x, weight, gamma, beta, slope, y, statistics = saved
    norm = _norm_arguments(ctx.norm, _array(gamma), _array(beta), statistics, running or statistics.unbind())
    return _array(x), _array(weight), norm, _array(slope), _array(y), ctx.stride, ctx.training, torch.get_num_threads()


class _AvgPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, stride: int) -> Tensor:
        n, h, w, channels = x.shape
        ctx.shape, ctx.stride = x.shape, stride
        out = x.new_empty(n, h // stride, w // stride, channels)
        _training.avg_pool_forward(_array(x), stride, torch.get_num_threads(), _array(out))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        dx = grad.new_empty(ctx.shape)
        _training.avg_pool_backward(_array(grad.contiguous()), ctx.stride, torch.get_num_threads(), _array(dx))
        return dx, None


def _norm_arguments(norm: nn.BatchNorm2d, gamma: Any, beta: Any, statistics: Tensor, running: Any) -> tuple[Any, ...]:
    mean, inverse = _array(statistics)
    return gamma, beta, _array(running[0]), _array(running[1]), mean, inverse, norm.momentum, norm.eps


def _count_batch(norm: nn.BatchNorm2d) -> None:
    if norm.training and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)


def _array(tensor: Tensor | None) -> NDArray[np.float32] | Any:
    """A contiguous tensor's memory as an array."""
    return None if tensor is None else tensor.detach().contiguous().numpy()
