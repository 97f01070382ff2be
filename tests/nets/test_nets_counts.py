"""Parameters and MACs of every network against counts made by hand, layer by layer; padded taps count as MACs.

The networks run on the meta device: shapes without values. A dispatch mode sees every product that runs, and hooks tell
which module issued it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bcnn.nets.binary_conv import BinaryConv2d
from bcnn.nets.latent import latents
from bcnn.nets.registry import architecture


class Counts(NamedTuple):
    binary: int  # weights of one bit
    binary_macs: int
    real: int  # weights of real convolutions and fully connected layers, and the latter's biases
    real_macs: int  # without the last layer
    classifier_inputs: int
    norm_channels: int
    other: int  # every other trained number


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


R18 = (10_985_472, 1_676_279_808)  # the 16 binary 3x3 convolutions of ResNet-18
R34 = (21_086_208, 3_525_967_872)
IMAGENET = {
    "reactnet-a": Counts(28_253_184, 4_816_896_000, 1_025_864, 10_838_016, 1024, 10_944, 42_656),
    "reactnet-b": Counts(27_554_816, 4_688_445_440, 1_200_456, 42_950_656, 1024, 10_944, 41_664),
    "reactnet-c": Counts(27_554_816, 4_688_445_440, 1_724_232, 139_288_576, 1024, 10_944, 41_664),
    "birealnet-18": Counts(*R18, 694_440, 137_281_536, 512, 4_800, 0),
    "birealnet-34": Counts(*R34, 694_440, 137_281_536, 512, 8_512, 0),
    "birealnet-50": Counts(20_672_512, 3_596_615_680, 5_003_432, 567_590_912, 2048, 26_560, 0),
    "birealnet-152": Counts(55_209_984, 11_021_058_048, 5_003_432, 567_590_912, 2048, 75_712, 0),
    "reactnet-r18": Counts(*R18, 694_440, 137_281_536, 512, 4_800, 14_912),
    "real2bin-r18": Counts(*R18, 988_840, 137_575_936, 512, 4_352, 3_904),
    "xnornet-r18": Counts(*R18, 694_440, 137_281_536, 512, 3_456, 0),
    "xnornetpp-r18": Counts(*R18, 694_440, 137_281_536, 512, 3_456, 4_680),
    "xnornet-alexnet": Counts(58_236_928, 1_025_744_896, 4_130_848, 105_415_200, 4096, 9_664, 10_568),
    "abcnet-r18": Counts(
        54_927_360, 41_906_995_200, 694_440, 137_281_536, 512, 4_800, 160
    ),  # 16 layers, 5 v and 5 beta
    "abcnet-r34": Counts(5 * R34[0], 25 * R34[1], 694_440, 137_281_536, 512, 8_512, 320),
    "groupnet-r18": Counts(55_099_392, 8_477_736_960, 522_408, 118_013_952, 512, 20_160, 7),
    "groupnet-r34": Counts(105_603_072, 17_726_177_280, 522_408, 118_013_952, 512, 38_720, 15),
    "meliusnet-22": Counts(6_119_424, 4_624_220_160, 800_072, 135_876_608, 512, 12_544, 0),
    "meliusnet-29": Counts(10_321_920, 5_469_585_408, 965_960, 128_851_968, 640, 20_224, 0),
    "meliusnet-42": Counts(24_956_928, 9_692_798_976, 1_775_176, 174_010_368, 1056, 46_720, 0),
    "meliusnet-59": Counts(52_641_792, 18_316_247_040, 2_721_352, 245_762_048, 1312, 96_096, 0),
    "meliusnet-a": Counts(8_441_856, 4_851_818_496, 763_464, 86_729_216, 672, 16_832, 0),
    "meliusnet-b": Counts(11_280_384, 5_722_472_448, 914_760, 106_423_296, 704, 22_016, 0),
    "meliusnet-c": Counts(11_427_840, 4_353_269_760, 768_072, 82_213_376, 672, 22_176, 0),
    "mobilenet-v1": Counts(0, 0, 4_210_088, 567_716_352, 1024, 10_944, 0),
    "resnet-34": Counts(0, 0, 21_780_648, 3_663_249_408, 512, 8_512, 0),
    "regnetx-400mf": Counts(0, 0, 5_458_120, 413_412_608, 400, 18_928, 0),
}
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
