"""The native k x k convolution of signs against `BinaryConv2d`'s plain torch: dots with `==`, gradients within float32 rounding.

Tolerance of gradients as in test_fused: 1e-4 of each tensor's largest value.
"""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from bcnn.nets import fused
from bcnn.nets.binary_conv import CHOICES, BinaryConv2d, Rules
from bcnn.nets.fused_autograd import native
from bcnn.nets.registry import build

pytestmark = [
    pytest.mark.skipif(not fused.available(), reason="the native training kernels are not built"),
    pytest.mark.usefixtures("one_thread"),
]


def layer(
    channels: int,
    out: int,
    kernel: int | tuple[int, int] = 3,
    stride: int = 1,
    padding: int | None = None,
    **rules: object,
) -> BinaryConv2d:
    offset = bool(rules.pop("offset", False))
    made = BinaryConv2d(channels, out, kernel, stride, padding, rules=Rules().but(**rules), offset=offset)
    with torch.no_grad():
        for p in (made.bias, made.offset):
            if p is not None:
                p.copy_(torch.randn_like(p) / 2)
    return made


def image(n: int, channels: int, height: int, width: int) -> Tensor:
    """With values at every edge of the slopes, and both zeros."""
    x = torch.randn(n, channels, height, width)
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, 1.3, -1.3, 0.5, -0.5])
    return torch.where(torch.rand_like(x) < 0.2, edges[torch.randint(0, 8, x.shape)], x)


def run(module: nn.Module, x: Tensor, native: bool) -> dict[str, Tensor]:
    """Output, gradients of x and of every parameter."""
    fused.enabled = native
    try:
        x = x.clone().requires_grad_()
        out = module(x)
        (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(7))).sum().backward()
    finally:
        fused.enabled = True
    assert x.grad is not None
    return {"out": out.detach(), "x": x.grad} | {
        name: p.grad for name, p in module.named_parameters() if p.grad is not None
    }


def compare(module: BinaryConv2d, x: Tensor) -> None:
    assert module.one_operator(x)
    plain, fast = run(copy.deepcopy(module), x, False), run(module, x, True)
    assert plain.keys() == fast.keys()
    for name, expected in plain.items():
        assert fast[name].shape == expected.shape, name
        error = (fast[name] - expected).abs().max() / expected.abs().max().clamp_min(1e-3)
        assert error < 1e-4, f"{name}: differs by {error:.1e} of its largest value"


SHAPES = {
    "3x3": (16, 24, 3, 1, None, (9, 7)),
    "3x3/2": (24, 16, 3, 2, None, (8, 8)),
    "3x3/2 odd": (8, 8, 3, 2, None, (7, 9)),
    "1x1": (40, 72, 1, 1, None, (6, 5)),
    "1x1/2": (8, 16, 1, 2, None, (8, 6)),
    "5x5": (8, 16, 5, 1, None, (6, 6)),
    "wider than the map": (8, 16, 5, 1, None, (2, 2)),
    "no padding": (16, 8, 3, 1, 0, (6, 6)),
    "more padding": (8, 8, 3, 3, 4, (5, 6)),
    "whole map": (64, 32, (4, 3), 1, 0, (4, 3)),
    "many channels": (136, 264, 3, 1, None, (3, 3)),
}


@pytest.mark.parametrize("weights", ["binary", "real"])
@pytest.mark.parametrize("pad", CHOICES["pad"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_equals_the_definition(shape: str, pad: str, weights: str) -> None:
    channels, out, kernel, stride, padding, size = SHAPES[shape]
    conv = layer(channels, out, kernel, stride, padding, pad=pad, bias=True, activation="triangle", scale="filter")
    conv.weights = weights
    compare(conv, image(19, channels, *size))


@pytest.mark.parametrize("images", [8, 9, 16, 31, 33])
def test_any_number_of_images_equals_the_definition(images: int) -> None:
    compare(layer(8, 16), image(images, 8, 5, 5))


@pytest.mark.parametrize(
    ("activation", "bias"), [*itertools.product(["triangle", "clip", "wide", "half", "identity"], [0, 1])]
)
def test_every_slope_equals_the_definition(activation: str, bias: int) -> None:
    compare(layer(8, 16, activation=activation, bias=bool(bias)), image(9, 8, 5, 5))


@pytest.mark.parametrize("scale", CHOICES["scale"])
@pytest.mark.parametrize("weight", CHOICES["weight"])
def test_every_rule_of_weights_equals_the_definition(weight: str, scale: str) -> None:
    if weight == "triangle":  # of no paper: the kernels have two values
        assert not layer(8, 16, weight=weight).fusible
        return
    conv = layer(8, 16, weight=weight, scale=scale, centre=True, clamp=True, offset=True, input_scale=True)
    with torch.no_grad():
        conv.weight.mul_(5)  # beyond 1 as well
    compare(conv, image(9, 8, 5, 5))


def test_tanh_weights_equal_the_definition() -> None:
    conv = layer(8, 16, scale="filter")
    conv.weights, conv.temperature = "tanh", 3.0
    compare(conv, image(9, 8, 5, 5))


@pytest.mark.parametrize("pad", CHOICES["pad"])
@pytest.mark.parametrize("shape", SHAPES)
def test_dots_are_exact(shape: str, pad: str) -> None:
    """Without a scale the result is a whole number below 2^24, which torch's float32 sums have exactly, too."""
    channels, out, kernel, stride, padding, size = SHAPES[shape]
    conv = layer(channels, out, kernel, stride, padding, pad=pad)
    x = image(9, channels, *size)
    assert torch.equal(run(conv, x, True)["out"], run(conv, x, False)["out"])


@pytest.mark.parametrize("weights", ["binary", "real"])
@pytest.mark.parametrize(("channels", "out", "images", "size"), [(16, 24, 40, 12), (64, 576, 17, 4), (8, 8, 8, 3)])
def test_the_same_bits_for_any_number_of_threads(channels: int, out: int, images: int, size: int, weights: str) -> None:
    """Sums in lanes of pixels, sums shared by panels, and less work than threads."""
    conv = layer(channels, out, bias=True)
    conv.weights = weights
    x = image(images, channels, size, size)
    found = {}
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found[threads] = run(copy.deepcopy(conv), x, True)
    for threads in (2, 5):
        for name, expected in found[1].items():
            assert torch.equal(found[threads][name], expected), f"{name} with {threads} threads"


def test_a_map_that_needs_no_gradient_gets_none() -> None:
    conv, x = layer(8, 16), image(9, 8, 5, 5)
    conv(x).sum().backward()
    assert x.grad is None
    assert conv.weight.grad is not None


@pytest.mark.parametrize(
    "name", ["birealnet-18-cifar", "reactnet-a-cifar", "bnn-vgg", "meliusnet-22-cifar", "xnornet-r18-cifar"]
)
def test_the_field_s_networks_run_through_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All binary convolutions but those that read an image or make ten classes."""
    seen: list[int] = []
    original = fused.tap_conv
    monkeypatch.setattr(fused, "tap_conv", lambda *a, **k: seen.append(1) or original(*a, **k))
    network = build(name, width=1 / 8).train()
    network(torch.randn(8, 3, 32, 32)).sum().backward()
    convs = [m for m in network.modules() if isinstance(m, BinaryConv2d)]
    assert len(seen) == sum(m.fusible for m in convs) >= len(convs) - 2


def test_what_it_has_not_is_left_to_torch() -> None:
    x = image(9, 8, 5, 5)
    assert layer(8, 16).one_operator(x)
    for other in (layer(8, 16, activation="none"), layer(8, 10), layer(8, 16).eval(), layer(8, 16).double()):
        assert not other.one_operator(x)
    twin = layer(8, 16)
    twin.weights = "float"
    assert not twin.one_operator(x)
    few, wide = layer(8, 16), layer(12, 16)
    assert not few.one_operator(x[:7])
    assert not few.one_operator(x.double())
    assert not few.one_operator(x[:, :, :0])
    assert not wide.one_operator(image(9, 12, 5, 5))
    with torch.autocast("cpu", torch.bfloat16):
        assert not few.one_operator(x)


def test_a_map_of_other_channels_is_torch_s_error() -> None:
    with pytest.raises(RuntimeError, match="channels"):
        layer(8, 16)(image(9, 16, 5, 5))


@pytest.mark.parametrize("isa", ["scalar", "avx2"])
def test_other_instruction_sets_equal_the_definition_too(isa: str) -> None:
    env = {**os.environ, "BCNN_ISA": isa, "OMP_NUM_THREADS": "1"}
    chosen = ["-k", "slope or exact or images", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", __file__, *chosen], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_wrong_native_call_is_an_exception() -> None:
    x, weight, out = torch.randn(2, 4, 4, 8), torch.randn(8, 8, 3, 3), torch.empty(2, 4, 4, 8)
    bias, scale = torch.zeros(8), torch.ones(8)
    how = (1, 1, 0, True, True, 1.0)

    def call(**changes: object) -> None:
        given = {"x": x, "bias": bias, "weight": weight, "scale": scale, "how": how, "threads": 1, "out": out} | changes
        native.tap_conv_forward(**{k: v.numpy() if isinstance(v, Tensor) else v for k, v in given.items()})

    call()
    for changes, message in (
        ({"out": out[:1]}, "out: 128 elements, expected 256"),
        ({"how": (0, 1, 0, True, True, 1.0)}, "stride"),
        ({"how": (1, 1, 2, True, True, 1.0)}, r"0, \+1 or -1"),
        ({"how": (1, 1 << 40, 0, True, True, 1.0)}, "padded map"),
        ({"weight": torch.randn(8, 16, 3, 3)}, "multiples of 8"),
        ({"weight": torch.randn(8, 8, 7, 7)}, "larger than the padded map"),
        ({"bias": torch.zeros(7)}, "bias: 7 elements"),
        ({"threads": 0}, "threads"),
    ):
        with pytest.raises(ValueError, match=message):
            call(**changes)
    with pytest.raises(TypeError, match="contiguous float32"):
        call(x=x.double())
