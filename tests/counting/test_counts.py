"""Counts: the paper's unrounded values, and three derivations that share no code agreeing on any config."""

from __future__ import annotations

import functools
from dataclasses import asdict, fields

import plain_torch_networks
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bcnn import Level, NetworkConfig, UserError, preset
from bcnn.counting.captured import count_network
from bcnn.counting.conventions import CONVENTIONS, operations
from bcnn.counting.counts import count, peak_map_bytes
from bcnn.lowering.lower import lower
from bcnn.nets import layers
from bcnn.nets.bcnn import Decoder, Network
from bcnn.program.counts import Counts
from bcnn.program.program import Program

torch.set_num_threads(1)

TINY = NetworkConfig(name="tiny", image_size=(24, 12), classes=7, stem=Level(1, 1, 8), levels=(Level(2), Level(1)))
CONFIGS = {
    "imagenet": preset("imagenet"),
    "imagenet-p2": preset("imagenet-p2"),
    "cifar10": preset("cifar10"),
    "module prelu": TINY.replace(prelu="module"),
    "no intensity": TINY.replace(intensity=False),
    "F=3, P=2": TINY.replace(branches=2, levels=[{"filter": 3}]),
    "R=1.5": TINY.replace(levels=[{"replicate": 1.5}, {"replicate": 1.25, "stride": 1}]),
    "R<1": TINY.replace(levels=[{"replicate": 0.5}, {"replicate": 0.7, "stride": 1, "blocks": 2}]),
    "S=3": TINY.replace(levels=[{"stride": 3}, {"stride": 4, "replicate": 1}]),
    "stem only": TINY.replace(levels=[], stem={"replicate": 1, "blocks": 3}),
    "all": NetworkConfig(
        "all", (12, 24), 3, 2, "module", False, Level(1, 2, 5.5, 3), (Level(2, 3, 0.3), Level(1, 1, 1))
    ),
}


@pytest.fixture(params=CONFIGS, ids=str)
def config(request: pytest.FixtureRequest) -> NetworkConfig:
    return CONFIGS[request.param]


# --- the paper -------------------------------------------------------------------------------------------------------


def test_imagenet_p1_to_the_last_digit() -> None:
    counts = count(preset("imagenet")).counts
    assert counts == Counts(
        binary_params=9_042_944,
        real_params=1_148_168,
        binary_macs=2_414_870_528,
        real_macs=36_398_080,  # 36.25 e6 without the intensity channel
        adds=62_669_824,
        mults=19_568_640,
        signs=15_654_912,
        prelus=16_407_552,
        weight_bytes=5_699_652,
        connected_macs=1_024_000,
        map_bytes=84_153_248,
    )
    assert counts.real_macs - 3 * 224 * 224 == 36_247_552
    assert counts.real_ops == 93_548_544
    assert counts.paper_param_bytes == 2_278_536


def test_imagenet_p2_to_the_last_digit() -> None:
    counts = count(preset("imagenet-p2")).counts
    assert counts == Counts(
        binary_params=18_085_888,
        real_params=1_189_352,
        binary_macs=4_829_741_056,
        real_macs=36_398_080,
        adds=109_634_560,
        mults=35_223_552,
        signs=31_309_824,
        prelus=16_407_552,
        weight_bytes=6_994_756,
        connected_macs=1_024_000,
        map_bytes=86_110_112,
    )
    assert counts.real_ops == 132_685_824
    assert counts.paper_param_bytes == 3_450_088


@pytest.mark.parametrize(("network", "expected"), [("imagenet", 131_280_896), ("imagenet-p2", 208_150_528)])
def test_normalised_operations_of_the_paper(network: str, expected: int) -> None:
    assert operations(count(preset(network)), "paper") == expected


def test_both_prelu_readings_count_the_same_on_the_paper_s_network() -> None:
    assert count(preset("imagenet")).counts == count(preset("imagenet").replace(prelu="module")).counts


def test_about_nine_tenths_of_the_real_parameters_are_in_the_decoder() -> None:
    tree = count(preset("imagenet"))
    assert tree.children[-1].counts.real_params / tree.counts.real_params == pytest.approx(0.9, abs=0.01)  # sec. 6.2


# --- conventions ------------------------------------------------------------------------------------------------------


def test_conventions_from_the_unrounded_counts() -> None:
    tree, linear = count(preset("imagenet")), 1024 * 1000
    binary, real = 2_414_870_528, 36_398_080
    assert operations(tree, "reactnet") == binary / 64 + real
    assert operations(tree, "bireal") == binary / 64 + real - linear
    assert operations(tree, "bnext") == binary / 64 + real / 8
    assert operations(tree, "ace") == binary + real * 1024


def test_every_convention_is_additive_and_explained(config: NetworkConfig) -> None:
    tree = count(config)
    for name, rule in CONVENTIONS.items():
        assert rule.__doc__
        assert operations(tree, name) == pytest.approx(sum(operations(part, name) for part in tree.children))


def test_unknown_convention_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown convention 'reacnet'; did you mean 'reactnet'"):
        operations(count(TINY), "reacnet")


# --- the tree ---------------------------------------------------------------------------------------------------------


def test_every_level_of_the_tree_adds_up(config: NetworkConfig) -> None:
    tree = count(config)
    leaves = Counts()
    for leaf in tree.leaves():
        leaves += leaf.own
    assert tree.counts == leaves
    blocks = [block.name for part in tree.children[1:-1] for block in part.children]
    assert blocks == [block.name for block in config.plan()]
    names = dict(Network(config).named_modules())
    assert all(
        leaf.name in names for leaf in tree.leaves() if leaf.name.rpartition(".")[2] not in ("input", "add", "pool")
    )


def test_the_dictionary_holds_the_tree() -> None:
    data = count(TINY).to_dict()
    assert {key: data[key] for key in asdict(Counts())} == asdict(count(TINY).counts)
    children = data["children"]
    assert isinstance(children, list)
    assert [part["name"] for part in children] == ["input", "stem", "level1", "level2", "decoder"]


def test_replication_costs_nothing_and_channel_averaging_what_it_says() -> None:
    shape = CONFIGS["R<1"].plan()[1]
    averaged = next(leaf for leaf in count(CONFIGS["R<1"]).leaves() if leaf.name == "level1.0.replicate").counts
    assert (averaged.adds, averaged.mults) == (shape.channels_in * 24 * 12, shape.channels * 24 * 12)
    assert not any(leaf.name.endswith("replicate") for leaf in count(TINY).leaves())


# --- second derivation: the torch module and torch's flop counter -----------------------------------------------------


def test_parameters_and_macs_of_the_torch_module_agree(config: NetworkConfig) -> None:
    counts = count(config).counts
    with torch.device("meta"):
        network = Network(config)
        images = torch.empty(1, 3, *config.image_size)
    binary = sum(tensor.numel() for _, tensor in network.binary_weights())
    assert counts.binary_params == binary
    assert counts.real_params == sum(p.numel() for p in network.parameters()) - binary
    counter = FlopCounterMode(display=False)
    with counter:
        network(images)
    per_module = {name: sum(flops.values()) // 2 for name, flops in counter.get_flop_counts().items()}
    branches = {f"Network.{name}" for name, part in network.named_modules() if isinstance(part, layers.Branch)}
    binary_macs = sum(macs for name, macs in per_module.items() if name in branches)
    assert counts.binary_macs == binary_macs
    intensity = 3 * images.shape[2] * images.shape[3] if config.intensity else 0  # torch counts no element-wise product
    assert counts.real_macs == counter.get_total_flops() // 2 - binary_macs + intensity


# --- third derivation: run it and count the elements that pass --------------------------------------------------------


def test_elements_seen_by_hooks_agree(config: NetworkConfig) -> None:
    seen = dict.fromkeys(("adds", "mults", "signs", "prelus"), 0)

    def hook(module: nn.Module, args: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        before, after = args[0].numel(), out.numel()
        if isinstance(module, nn.BatchNorm2d):
            seen["mults"] += after
            seen["adds"] += after
        elif isinstance(module, nn.PReLU):
            seen["prelus"] += after
        elif isinstance(module, layers.Branch):
            seen["signs"] += before
            seen["adds"] += before + after  # bias, module addition
        elif isinstance(module, (nn.AvgPool2d, Decoder)):
            seen["adds"] += before
        elif isinstance(module, layers.Block):
            seen["adds"] += after
        elif isinstance(module, layers.Replicate) and after < before:
            seen["adds"] += before
            seen["mults"] += after

    with torch.device("meta"):
        network = Network(config)
        for module in network.modules():
            module.register_forward_hook(hook)
        network(torch.empty(1, 3, *config.image_size))
    counts = count(config).counts
    assert seen == {name: getattr(counts, name) for name in seen}


# --- memory: against a program of the same shapes ---------------------------------------------------------------------


@functools.cache
def program_of(config: NetworkConfig) -> Program:
    """What a network of the config lowers to."""
    torch.manual_seed(0)
    return lower(Network(config), (0.5,) * 3, (0.25,) * 3)


@pytest.fixture
def small(config: NetworkConfig) -> NetworkConfig:
    """The same at a size that lowers in a moment."""
    return config.replace(image_size=[2 * config.stride] * 2) if config.image_size[0] > 32 else config


def test_weight_bytes_are_the_bytes_of_the_program_s_arrays(small: NetworkConfig) -> None:
    made = program_of(small)
    pads = sum(
        b.pad.nbytes for op in made.ops for b in getattr(op, "branches", ()) if b.pad is not None
    )  # made of thresholds
    assert count(small).counts.weight_bytes == sum(array.nbytes for op in made.ops for array in op.arrays()) - pads


def test_map_bytes_are_the_maps_and_sign_bits_a_program_writes(small: NetworkConfig) -> None:
    made = program_of(small)
    total = sum(4 * h * w * c for h, w, c in made.shapes)
    for op, (h, w, _) in zip(made.ops, made.shapes, strict=True):
        total += sum(4 * h * w * branch.weight.shape[2] for branch in getattr(op, "branches", ()))
    assert count(small).counts.map_bytes == total


def test_peak_is_the_largest_sum_of_live_maps(small: NetworkConfig) -> None:
    made = program_of(small)
    last_use = list(range(len(made.ops)))
    for index, op in enumerate(made.ops):
        for source in op.maps_read():
            last_use[source] = index
    size = [4 * h * w * c for h, w, c in made.shapes]
    live = [sum(size[i] for i in range(step + 1) if last_use[i] >= step) for step in range(len(size))]
    assert peak_map_bytes(small) == max(live)


# --- counted from a recorded pass: the second derivation ----------------------------------------------------------------


def test_a_recorded_pass_counts_what_the_config_says(small: NetworkConfig) -> None:
    by_config, captured = count(small).counts, count_network(Network(small).eval(), small.image_size).counts
    for name in (field.name for field in fields(Counts)):
        if not name.endswith("bytes"):  # those are the program's
            assert getattr(captured, name) == getattr(by_config, name), name


@pytest.mark.parametrize("name", plain_torch_networks.STRANGERS)
def test_products_of_any_network_are_those_of_torch_s_flop_counter(name: str) -> None:
    network, size = plain_torch_networks.stranger(name)
    counts = count_network(network, size).counts
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.randn(1, 3, *size))
    assert 2 * (counts.binary_macs + counts.real_macs) == counter.get_total_flops()
    assert counts.binary_params + counts.real_params == sum(p.numel() for p in network.parameters())
    assert counts.binary_macs > 0
    assert counts.signs > 0


@pytest.mark.parametrize("name", ["birealnet-20-cifar", "xnornet-nin"])
def test_binary_products_of_the_field_s_networks_are_the_published_ones(name: str) -> None:
    from bcnn.nets import registry

    published = {"birealnet-20-cifar": (267_264, 40_108_032), "xnornet-nin": (949_248, 207_618_048)}
    found = registry.architecture(name)
    counts = count_network(found.build(), found.size).counts
    assert (counts.binary_params, counts.binary_macs) == published[name]


def test_the_tree_of_a_recorded_pass_adds_up() -> None:
    tree = count_network(plain_torch_networks.stranger("residual")[0], (40, 32))
    assert sum((leaf.own for leaf in tree.leaves()), Counts()) == tree.counts
    assert [child.name for child in tree.children] == ["stem", "units", "fc"]
