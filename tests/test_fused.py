"""The native building block against `layers`, the definition: outputs, every gradient, running statistics, and when it applies.

Tolerance: both sides are float32 and differ in the order of sums only. Sums run over up to 800 pixels and 130 channels, so a value
may differ by about sqrt(800) * 2^-24 of the largest term, some 2e-6; batch norm and cancellation cost up to a digit and a half. We
allow 1e-4 of each tensor's largest value. Modules are compared one at a time with equal inputs, or rounding would flip signs.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bcnn import config, fused, layers
from bcnn.network import Network

pytestmark = pytest.mark.skipif(not fused.available(), reason="the native training kernels are not built")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def set_random(module: nn.Module) -> None:
    """Every parameter and statistic at a value that matters: no zero beta, both signs of gamma and slope."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name.endswith("norm.weight") or "prelu" in name:
                p.copy_(torch.randn_like(p))
            elif name.endswith("norm.bias"):
                p.copy_(torch.randn_like(p) * 0.3)
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(torch.randn_like(b))
            if name.endswith("running_var"):
                b.copy_(torch.rand_like(b) + 0.5)


def nhwc(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x.permute(0, 2, 3, 1).contiguous()).permute(0, 3, 1, 2)


def results(module: nn.Module, forward: Callable[[Tensor], Tensor], x: Tensor) -> dict[str, Tensor]:
    """Output, gradients of x and of every parameter, buffers after the call."""
    x = x.clone().requires_grad_()
    out = forward(x)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(7))
    (out * weight).sum().backward()
    found = {"out": out.detach(), "x": x.grad}
    found |= {f"gradient of {name}": p.grad for name, p in module.named_parameters()}
    found |= {f"buffer {name}": b for name, b in module.named_buffers()}
    return found


def assert_same(plain: dict[str, Tensor], native: dict[str, Tensor]) -> None:
    assert plain.keys() == native.keys()
    for name, expected in plain.items():
        assert native[name] is not None, name
        assert native[name].shape == expected.shape, name
        error = (native[name] - expected).abs().max() / expected.abs().max().clamp_min(1e-3)
        assert error < 1e-4, f"{name}: differs by {error:.1e} of its largest value"


def compare(module: nn.Module, native: Callable[[nn.Module], Callable[[Tensor], Tensor]], x: Tensor) -> None:
    twin = copy.deepcopy(module)
    fused.enabled = False
    try:
        expected = results(module, module, x)
    finally:
        fused.enabled = True
    assert_same(expected, results(twin, native(twin), x))


def set_weights(module: nn.Module, mode: str) -> None:
    for part in module.modules():
        if isinstance(part, layers.Branch):
            part.weights = mode


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("weights", ["binary", "real"])
@pytest.mark.parametrize(("channels", "branches"), [(4, 1), (5, 2), (31, 1), (33, 2), (64, 1), (65, 1), (130, 2)])
def test_binary_conv_equals_the_definition(channels: int, branches: int, weights: str, training: bool) -> None:
    conv = layers.BinaryConv(channels, branches).train(training)
    set_random(conv)
    set_weights(conv, weights)
    compare(conv, lambda twin: nhwc(lambda x: fused.binary_conv(twin, x)), torch.randn(2, channels, 19, 21))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("channels", [4, 33, 64])
def test_depthwise_conv_equals_the_definition(channels: int, stride: int, training: bool) -> None:
    conv = layers.DepthwiseConv(channels, stride).train(training)
    set_random(conv)
    compare(conv, lambda twin: nhwc(lambda x: fused.depthwise_conv(twin, x)), torch.randn(3, channels, 7, 8))


@pytest.mark.parametrize("stride", [2, 3])
def test_avg_pool_equals_the_definition(stride: int) -> None:
    pool = nn.AvgPool2d(stride)
    compare(pool, lambda _: nhwc(lambda x: fused.avg_pool(x, stride)), torch.randn(2, 5, 6, 12))
