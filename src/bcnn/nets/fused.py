"""The layers of a binary network through native kernels: the same functions and gradients as torch's, several times faster.

`nets.layers` and `nets.binary_conv` are the definition and the only path on a GPU. Their modules ask `ready` whether the kernels may
take the place of the modules inside them, and call the operators below. The paper's binary convolution is one pass sign ->
convolution -> statistics and one pass batch norm + identity + addition + PReLU; the field's (`tap_conv`) is sign -> k x k convolution ->
scale, with batch norm and what follows left to torch. `enabled = False` or BCNN_FUSED=0 turns all of it off.

Results do not depend on the number of threads. `cores` gives the threads of torch to the kernels for a whole training loop.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bcnn.nets import fused_autograd as autograd
from bcnn.nets.fused_autograd import native

_modules: Any = nn.modules.module  # torch gives its global hooks no types
HOOKS = (
    "backward_pre",
    "backward",
    "forward_pre",
    "forward",
)  # that all modules call; torch 2.6 has no question for them

enabled = os.environ.get("BCNN_FUSED", "1") != "0"


# --- when they apply ------------------------------------------------------------------------------------------------


def available() -> bool:
    """Whether this install has the native kernels."""
    return native is not None


def ready(x: Tensor, channels: int, *inside: nn.Module | None) -> bool:
    """Whether the kernels may read the map x in the place of the modules `inside`: when nobody could tell the difference.

    That is in training, of float32 on a CPU. Tracing, compiling, exporting, counting and transforming see torch's operators, and
    so does a hook on a module inside. Evaluation and verification run the definition. `channels` is what the modules make.
    """
    return (
        not torch.compiler.is_compiling()  # first: a tracer looks no further
        and enabled
        and native is not None
        and type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not _observed()
        and all(_plain(module, channels) for module in inside if module is not None)
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
        or any(getattr(_modules, f"_global_{hooks}_hooks") for hooks in HOOKS)
    )


def _plain(module: nn.Module, channels: int) -> bool:
    """Whether a module trains, in float32 and without hooks, and computes what the kernels do: `fusible` is a module's own word."""
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return False
    known = _KNOWN.get(type(module))
    return (
        module.training
        and (getattr(module, "fusible", False) if known is None else known(module, channels))
        and all(p is None or (p.dtype == torch.float32 and p.is_cpu) for p in module._parameters.values())
    )


def _is_depthwise(conv: nn.Conv2d, channels: int) -> bool:
    options = conv.kernel_size, conv.padding, conv.dilation, conv.padding_mode, conv.groups, conv.out_channels
    expected = (3, 3), (1, 1), (1, 1), "zeros", channels, channels
    return options == expected and conv.stride[0] == conv.stride[1] and conv.bias is None


def _tracks(norm: nn.BatchNorm2d, channels: int) -> bool:
    tracks = norm.affine and norm.running_mean is not None and norm.momentum is not None
    return tracks and norm.num_features == channels


_KNOWN: dict[type, Callable[[Any, int], bool]] = {
    nn.BatchNorm2d: _tracks,
    nn.Conv2d: _is_depthwise,
    nn.PReLU: lambda prelu, channels: bool(prelu.num_parameters == channels),
    nn.AvgPool2d: lambda pool, _: pool.stride == pool.kernel_size and pool.padding == 0 and not pool.ceil_mode,
}


# --- operators: maps are N,C,H,W in channels-last memory, as torch calls N,H,W,C ------------------------------------------


def binary_conv(
    x: Tensor,
    branches: Sequence[tuple[Tensor, Tensor, nn.BatchNorm2d]],
    *,
    binary: bool,
    identity: bool = True,
    prelu: Tensor | None = None,
    add: Tensor | None = None,
    prelu_after: Tensor | None = None,
) -> Tensor:
    """prelu_after(add + prelu(x + sum over branches of norm(conv1x1(sign(x + bias), weight)))), one of the PReLUs at most.

    A branch is (bias, weight, norm); `binary` takes the sign of its weight (Eq. 3). Where x has fewer channels than the branches
    read, they are replicated: channel k is channel k mod C. Without `identity`, x is not added.
    """
    parameters: list[Tensor] = []
    for bias, weight, norm in branches:
        parameters += [bias, weight, norm.weight, norm.bias]
        _count_batch(norm)
    how = autograd.How(identity, prelu is not None, binary, [norm for _, _, norm in branches], threads())
    slope = prelu if prelu is not None else prelu_after
    out: Tensor = autograd.BinaryConvFunction.apply(x, add, slope, how, *parameters)  # type: ignore[no-untyped-call]
    return out


# What the slope of a sign is in the kernels: 1 where |x| is at most this, None for the triangle of Eq. 1.
LIMITS: dict[str, float | None] = {"triangle": None, "clip": 1.0, "wide": 1.3, "half": 0.5, "identity": math.inf}
# That of a weight's sign has two values. The limit of "xnor" is the largest float32 below 1.
WEIGHT_LIMITS = {name: limit for name, limit in LIMITS.items() if limit is not None} | {"xnor": 1 - 2**-24}
FEWEST_IMAGES = 8  # of a batch: lanes of the gradient of x are sixteen images, and half of them may be empty


def tap_conv(
    x: Tensor,
    bias: Tensor | None,
    weight: Tensor,
    scale: Tensor | None,
    *,
    stride: int,
    padding: int,
    pad: int,
    slope: str,
    weight_slope: tuple[str, Callable[[Tensor], Tensor]] | None,
) -> Tensor:
    """scale * conv(sign(x + bias), weight), k x k, with `pad` (0, +1, -1) around the signs; `slope` is that of x's sign.

    With a `weight_slope`, a name and its function, the sign of the weight is convolved with; without, the weight itself.
    """
    made = len(weight)
    steps = None
    if weight_slope is not None:
        name, function = weight_slope
        inside, outside = (function(weight.new_full((made, 1, 1, 1), value)) for value in (0.0, math.inf))
        steps = inside, outside, WEIGHT_LIMITS[name]
    scales = weight.new_ones(made) if scale is None else scale.detach().expand(1, made, 1, 1)
    taps = autograd.TapOptions(stride, padding, pad, LIMITS[slope], scales, steps, threads())
    out: Tensor = autograd.TapConv.apply(x, bias, weight, taps)  # type: ignore[no-untyped-call]
    return out


def depthwise_conv(x: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d, prelu: nn.PReLU) -> Tensor:
    """prelu(norm(conv(x))), conv a depth wise 3x3/S."""
    _count_batch(norm)
    parameters = conv.weight, norm.weight, norm.bias, prelu.weight
    out: Tensor = autograd.DepthwiseConvFunction.apply(x, conv.stride[0], norm, threads(), *parameters)  # type: ignore[no-untyped-call]
    return out


def avg_pool(x: Tensor, stride: int) -> Tensor:
    """SxS/S average; H and W divide by S."""
    if stride == 1:
        return x
    out: Tensor = autograd.AvgPool.apply(x, stride, threads())  # type: ignore[no-untyped-call]
    return out


def fork(x: Tensor) -> tuple[Tensor, Tensor]:
    """x, x: for two paths that both begin there."""
    pair: tuple[Tensor, Tensor] = autograd.Fork.apply(x, threads())  # type: ignore[no-untyped-call]
    return pair


def _count_batch(norm: nn.BatchNorm2d) -> None:
    if norm.training and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)


# --- threads --------------------------------------------------------------------------------------------------------

_threads: int | None = None


def threads() -> int:
    """Of the kernels: as many as torch has, or had when `cores` began."""
    return _threads or torch.get_num_threads()


@contextmanager
def cores(network: nn.Module) -> Iterator[None]:
    """While it lasts, the kernels have all threads and torch has one, if the network's convolutions are theirs.

    The threads of torch wait for work by spinning, for milliseconds. What is left to torch in a network of such layers is small
    operations between long kernels, and its waiting threads would take a core from every one of these.
    """
    global _threads
    found = torch.get_num_threads()
    if _threads is not None or not (enabled and available() and _covers(network)):
        yield
        return
    native.keep_memory()  # a step's maps and tables are the next one's
    _threads = found
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(found)
        _threads = None


def _covers(network: nn.Module) -> bool:
    """Whether the products of matrices in a network go through the kernels: nine tenths of its weights O,C,k,k but the depth wise ones.

    The rest is the field's real stems and shortcuts.
    """
    weights = [
        (module, p)
        for module in network.modules()
        for p in module._parameters.values()
        if p is not None and p.dim() == 4 and p.shape[0] > 1 and p.shape[1] > 1
    ]
    ours = sum(p.numel() for module, p in weights if getattr(module, "fusible", False))
    return ours > 0.9 * sum(p.numel() for _, p in weights) and all(p.is_cpu for p in network.parameters())
