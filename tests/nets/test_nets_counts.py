"""Parameters and MACs of every network against counts made by hand, layer by layer; padded taps count as MACs.

The networks run on the meta device: shapes without values. A dispatch mode sees every product that runs, and hooks tell
which module issued it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from counts_by_hand import IMAGENET, Counts
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bcnn.nets.binary_conv import BinaryConv2d
from bcnn.nets.latent import latents
from bcnn.nets.registry import architecture


class _Products(TorchDispatchMode):
    """MACs of every convolution and matrix product by the module that issued it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.stack: list[nn.Module] = []
        self.macs: Counter[nn.Module] = Counter()
        for module in network.modules():
            module.register_forward_pre_hook(lambda module, _: self.stack.append(module))
            module.register_forward_hook(lambda *_: self.stack.pop() and None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name == "convolution":
            self.macs[self.stack[-1]] += out.numel() * args[1][0].numel()
        elif name in ("mm", "addmm") and self.stack and not isinstance(self.stack[-1], BinaryConv2d):
            self.macs[self.stack[-1]] += out.numel() * args[-1].shape[0]
        return out


def built(name: str, **choices: Any) -> tuple[nn.Module, Counter[nn.Module]]:
    with torch.device("meta"):
        network = architecture(name).build(**choices).eval()
        products = _Products(network)
        with products:
            network(torch.empty(1, 3, *architecture(name).size))
    return network, products.macs


def count(name: str, **choices: Any) -> Counts:
    network, macs = built(name, **choices)
    binary = [module for _, module in latents(network)]
    real = [module for module in network.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    last = real[-1]
    assert {*macs} <= {*binary, *real}
    real_parameters = sum(m.weight.numel() for m in real)
    real_parameters += sum(m.bias.numel() for m in real if isinstance(m, nn.Linear) and m.bias is not None)
    norms = sum(m.num_features for m in network.modules() if isinstance(m, nn.BatchNorm2d))
    total = sum(p.numel() for p in network.parameters())
    return Counts(
        binary=sum(m.signs().numel() for m in binary),
        binary_macs=sum(macs[m] for m in binary),
        real=real_parameters,
        real_macs=sum(macs[m] for m in real if m is not last),
        classifier_inputs=last.weight.shape[1],
        norm_channels=norms,
        other=total - sum(m.weight.numel() for m in binary) - real_parameters - 2 * norms,
    )


# Binary parameters and MACs at 32 x 32.
CIFAR = {
    "xnornet-vgg": (4_571_136, 603_979_776),
    "xnornet-nin": (949_248, 207_618_048),
    "birealnet-20-cifar": (267_264, 40_108_032),
    "birealnet-18-cifar": (10_985_472, 547_356_672),
    "reactnet-r18-cifar": (10_985_472, 547_356_672),
    "xnornet-r18-cifar": (10_985_472, 547_356_672),
    "xnornetpp-r18-cifar": (10_985_472, 547_356_672),
    "real2bin-r18-cifar": (10_985_472, 547_356_672),
    "abcnet-r18-cifar": (5 * 10_985_472, 25 * 547_356_672),
    "reactnet-a-cifar": (28_253_184, 393_216_000),
    "meliusnet-22-cifar": (6_119_424, 1_509_949_440),
}


@pytest.mark.parametrize("name", IMAGENET)
def test_counts_at_224(name: str) -> None:
    assert count(name) == IMAGENET[name]


@pytest.mark.parametrize("name", CIFAR)
def test_binary_counts_at_32(name: str) -> None:
    assert count(name)[:2] == CIFAR[name]


def test_bnn_resnet18_is_binary_from_the_image_to_the_classes() -> None:
    network, macs = built("bnn-r18")
    binary = dict(latents(network))
    first, last = binary.pop("stem.0"), binary.pop("decoder.3")
    assert (first.signs().numel(), macs[first]) == (9_408, 118_013_952)  # real x 1 bit
    assert (last.signs().numel(), macs[last]) == (512_000, 512_000)
    assert sum(m.signs().numel() for m in binary.values()) == 11_157_504
    assert sum(macs[m] for m in binary.values()) == 1_695_547_392
    assert sum(m.num_features for m in network.modules() if isinstance(m, nn.BatchNorm2d)) == 6_312
    assert sum(p.numel() for p in network.parameters()) == 11_157_504 + 512_000 + 9_408 + 2 * 6_312 + 1_000


def test_bnn_vgg_is_binary_from_the_image_to_the_classes() -> None:
    network, macs = built("bnn-vgg")
    first, *layers = [module for _, module in latents(network)]
    convolutions, connected = layers[:5], layers[5:]
    assert first.signs().numel() == 3_456
    assert sum(m.signs().numel() for m in convolutions) == 4_571_136
    assert sum(macs[m] for m in convolutions) == 603_979_776
    assert sum(m.signs().numel() for m in connected) == sum(macs[m] for m in connected) == 9_447_424
    assert not [m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("resnet-18", 11_689_512),  # torchvision's
        ("resnet-34", 21_797_672),
        ("regnetx-400mf", 5_495_976),
        ("birealnet-18", 11_689_512),
        ("meliusnet-22", 6_944_584),  # Larq's
    ],
)
def test_totals_are_those_of_other_libraries(name: str, total: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in architecture(name).build().parameters()) == total


@pytest.mark.parametrize(
    ("shape", "other"),
    [
        ("channel", 3_840),
        ("dense", 4 * (64 * 56**2 + 128 * 28**2 + 256 * 14**2 + 512 * 7**2)),
        ("plane", 3_840 + 4 * (56**2 + 28**2 + 14**2 + 7**2)),
        ("axes", 4_680),
    ],
)
def test_the_four_scales_of_xnornetpp_have_their_sizes(shape: str, other: int) -> None:
    assert count("xnornetpp-r18", shape=shape).other == other


def test_the_shortcut_of_reactnet_c_changes_no_count() -> None:
    assert count("reactnet-c", shortcut=True) == IMAGENET["reactnet-c"]


FAMILIES = ["bnn-vgg", "xnornet-nin", "xnornet-alexnet", "birealnet-20-cifar", "reactnet-a-cifar", "meliusnet-a"]
FAMILIES += ["xnornetpp-r18-cifar", "real2bin-r18-cifar", "resnet-18", "mobilenet-v1", "regnetx-400mf"]


@pytest.mark.parametrize("name", FAMILIES)
def test_half_the_width_is_about_a_quarter_of_the_work(name: str) -> None:
    whole, half = (sum(built(name, width=width)[1].values()) for width in (1, 0.5))
    assert 0.2 < half / whole < 0.5  # first and last layer shrink once only
