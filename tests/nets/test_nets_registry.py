"""Every network by name: listed without torch, rebuilt from plain data, run and trained on random images."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from bcnn import UserError
from bcnn.nets.bcnn import Network
from bcnn.nets.config import PRESETS, preset
from bcnn.nets.latent import binary_weights, constrain, latents, set_weights, weights_of
from bcnn.nets.registry import ARCHITECTURES, architecture, build, from_config

torch.set_num_threads(1)

NAMES = [
    *(
        "bnn-vgg",
        "bnn-r18",
        "xnornet-alexnet",
        "xnornet-r18",
        "xnornet-nin",
        "xnornetpp-r18",
        "abcnet-r18",
        "abcnet-r34",
    ),
    *(f"birealnet-{depth}" for depth in (18, 34, 50, 152)),
    *("groupnet-r18", "groupnet-r34"),
    *(f"meliusnet-{which}" for which in ("22", "29", "42", "59", "a", "b", "c")),
    *(f"reactnet-{which}" for which in ("a", "b", "c", "r18")),
    *("real2bin-r18", "mobilenet-v1", "resnet-18", "resnet-34", "regnetx-400mf"),
]
RIVALS = [name for name in ARCHITECTURES if name not in PRESETS]
# The deep ones are made by the same functions as the others, and counted on the meta device.
SHALLOW = [
    name
    for name in RIVALS
    if not any(deep in name for deep in ("34", "152", "-29", "-42", "-59", "-b", "-c", "abcnet"))
]
SHALLOW += ["reactnet-b", "reactnet-c-cifar", "meliusnet-c", "abcnet-r18-cifar"]


def small(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    few = {"weight_bases": 2, "activation_bases": 2} if name.startswith("abcnet") else {}
    return build(name, classes=7, size=64 if name == "xnornet-alexnet" else 32, width=0.125, **few)


def images(name: str, count: int = 2) -> torch.Tensor:
    side = 64 if name == "xnornet-alexnet" else 32
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def test_every_network_of_the_field_is_registered() -> None:
    assert {*NAMES, *PRESETS} <= {*ARCHITECTURES}
    forms = {f"{name}-cifar" for name in NAMES if architecture(name).size == (224, 224)} - {"xnornet-alexnet-cifar"}
    assert forms <= {*ARCHITECTURES}
    assert len({each.description for each in ARCHITECTURES.values()}) == len(ARCHITECTURES)


def test_listing_imports_no_torch() -> None:
    code = "import sys, bcnn.nets.registry as r; print(len(r.ARCHITECTURES), 'torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == f"{len(ARCHITECTURES)} False\n"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_keep_their_config(name: str) -> None:
    assert architecture(name).network_config == preset(name)
    with torch.device("meta"):
        network = build(name)
        changed = build(name, classes=3, branches=2)
    assert isinstance(network, Network)
    assert isinstance(changed, Network)
    assert network.config == preset(name)
    assert changed.config == preset(name).replace(classes=3, branches=2)


@pytest.mark.parametrize("name", SHALLOW)
def test_runs_and_trains_on_random_images(name: str) -> None:
    network = small(name)
    out = network.train()(images(name))
    assert out.shape == (2, 7)
    out.square().sum().backward()
    without = [n for n, p in network.named_parameters() if p.grad is None or not bool(p.grad.isfinite().all())]
    assert without == []
    network.eval()
    with torch.no_grad():
        logits = network(images(name))
        alone = network(images(name)[:1])
    assert logits.shape == (2, 7)
    assert bool(logits.isfinite().all())
    assert torch.allclose(logits[:1], alone, atol=1e-3)


@pytest.mark.parametrize("name", ["bnn-r18-cifar", "birealnet-50-cifar", "groupnet-r18-cifar", "reactnet-a-cifar"])
def test_step_1_and_step_2_share_their_parameters(name: str) -> None:
    network = small(name).eval()
    x = images(name)
    with torch.no_grad():
        binary = network(x)
        set_weights(network, "real")
        assert {layer.weights for _, layer in latents(network)} == {"real"}
        assert weights_of(network) == "real"
        assert not torch.equal(network(x), binary)
        set_weights(network, "binary")
        assert torch.equal(network(x), binary)


@pytest.mark.parametrize("name", ["xnornet-nin", "abcnet-r18-cifar", "groupnet-r18-cifar", "reactnet-a-cifar"])
def test_autocast_to_bfloat16_trains_and_other_types_run(name: str) -> None:
    network = small(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = network(images(name))
    out.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in network.parameters())
    network.eval()
    for dtype in (torch.bfloat16, torch.float64):
        assert network.to(dtype)(images(name).to(dtype)).dtype == dtype


@pytest.mark.parametrize("name", ["xnornet-nin", "bnn-vgg", "meliusnet-22-cifar", "abcnet-r18-cifar"])
def test_binary_weights_are_plus_and_minus_one_by_parameter_name(name: str) -> None:
    network = small(name)
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        for parameter in parameters.values():
            parameter[..., :1] = 0.0  # what torch.sign would make a third value of
    constrain(network)
    for key, signs in binary_weights(network):
        assert key in parameters
        assert {*signs.unique().tolist()} <= {-1.0, 1.0}


def test_real_networks_have_nothing_to_switch() -> None:
    network = small("resnet-18-cifar")
    set_weights(network, "real")
    assert [*latents(network)] == []
    assert weights_of(network) == "binary"


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("birealnet-18-cifar", {"width": 0.25, "pad": "before"}),
        ("xnornetpp-r18", {"size": (64, 96), "shape": "plane", "width": 0.125, "classes": 5}),
        ("abcnet-r18-cifar", {"weight_bases": 3, "activation_bases": 1, "width": 0.125}),
        ("digits", {"branches": 2}),
    ],
)
def test_a_config_survives_json_and_builds_the_same_network(name: str, choices: dict[str, object]) -> None:
    config = json.loads(json.dumps(architecture(name).config(**choices)))  # type: ignore[arg-type]
    with torch.device("meta"):
        first, second = build(name, **choices), from_config(config)  # type: ignore[arg-type]
    shapes = [{key: value.shape for key, value in network.state_dict().items()} for network in (first, second)]
    assert config["network"] == name
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("name", "choices", "sentence"),
    [
        ("birealnet-19", {}, "unknown network 'birealnet-19'; did you mean 'birealnet-18'"),
        ("birealnet-18", {"widht": 2}, "birealnet-18 has no choice 'widht'; did you mean 'width'"),
        ("birealnet-18", {"depth": 34}, "birealnet-18 has no choice 'depth'"),
        ("resnet-18", {"pad": "zero"}, "resnet-18 has no choice 'pad'"),
        ("digits", {"image_size": 8}, "digits has no choice 'image_size'"),
        ("birealnet-18", {"size": 200}, "size of birealnet-18 must be height and width in multiples of 32, got 200"),
        ("birealnet-18", {"size": "64"}, "size of birealnet-18 must be height and width in multiples of 32, got '64'"),
        ("birealnet-18", {"classes": 0}, "classes of birealnet-18 must be a whole number >= 1, got 0"),
        ("birealnet-18", {"pad": "one"}, "pad of a binary convolution: unknown 'one'"),
        ("digits", {"size": 9}, "image_size height 9 is not a multiple of 4"),
        ("abcnet-r18", {"scale": "filter"}, "ABC-Net's weights have rules of their own: only"),
        ("abcnet-r18", {"weight_bases": 0}, "ABC-Net needs at least one base of each kind, got 0 x 5"),
        ("birealnet-18", {"width": -1}, "width must be a number > 0, got -1"),
        ("xnornet-alexnet", {"size": 32}, "XNOR-Net's AlexNet needs images of at least 63 x 63, got 32 x 32"),
    ],
)
def test_wrong_names_and_choices_get_a_sentence(name: str, choices: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        build(name, **choices)  # type: ignore[arg-type]
    assert str(error.value).startswith(sentence)


def test_a_config_without_a_name_gets_a_sentence() -> None:
    with pytest.raises(UserError, match="a network's config needs its name under 'network', got None"):
        from_config({"classes": 10})


def test_choices_lists_what_build_takes() -> None:
    assert {"width", "bases", "pad", "activation"} <= {*architecture("groupnet-r18").choices()}
    assert {"branches", "prelu", "levels"} <= {*architecture("cifar10").choices()}
    assert architecture("resnet-18").choices() == ["width"]
