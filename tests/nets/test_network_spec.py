"""Which network, as data: the paper's by its fields, any other by its name and choices, from settings to checkpoints and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors
import tiny_runs
import torch

from bcnn import UserError
from bcnn.nets import latent, network_spec
from bcnn.nets.bcnn import Network
from bcnn.nets.config import PRESETS, preset
from bcnn.nets.network_spec import Chosen
from bcnn.nets.registry import ARCHITECTURES
from bcnn.packed import shipped
from bcnn.packed.packfile import read
from bcnn.training import checkpoint, recipes, settings
from bcnn.training.opening import check_network

SMALL = Chosen("birealnet-20-cifar", 10, (8, 8), {"width": 0.25})
META = checkpoint.Meta((0.1, 0.2, 0.3), (0.5, 0.6, 0.7), tuple("0123456789"), 0.875, {"recipe": "tiny"})


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_registered_network_is_data_and_back(name: str) -> None:
    network = network_spec.resolve(name)
    assert network == (preset(name) if name in PRESETS else network)
    assert network_spec.from_plain(json.loads(json.dumps(network_spec.to_plain(network)))) == network
    assert (network.name, network.image_size) == (name, ARCHITECTURES[name].size)


def test_a_table_that_names_a_preset_may_change_its_fields() -> None:
    table = {"network": "digits", "size": [16, 16], "branches": 2}
    assert network_spec.from_plain(table) == preset("digits").replace(image_size=(16, 16), branches=2)


def test_a_module_knows_which_network_it_is() -> None:
    module = network_spec.build(SMALL)
    assert network_spec.config_of(module) == SMALL
    assert network_spec.config_of(torch.nn.Linear(1, 1)) is None
    assert isinstance(network_spec.build(preset("digits")), Network)


def test_replace_changes_classes_size_and_choices() -> None:
    changed = SMALL.replace(classes=3, image_size=(16, 24), width=0.5)
    assert changed == Chosen("birealnet-20-cifar", 3, (16, 24), {"width": 0.5})
    with pytest.raises(UserError, match="multiples of 4, got"):
        SMALL.replace(image_size=(9, 8))


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"widht": 1}, "birealnet-20-cifar has no choice 'widht'; did you mean 'width'"),
        ({"width": "wide"}, "cannot build birealnet-20-cifar with width='wide': "),
    ],
)
def test_what_cannot_be_built_gets_a_sentence(choices: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        network_spec.build(replace(SMALL, choices=choices))
    assert str(error.value).startswith(sentence)


def test_settings_take_a_registered_network_and_its_choices() -> None:
    config = settings.override(
        recipes.cifar10(), ["network=birealnet-20-cifar", "network.width=0.5", "network.size=16", "network.pad=plus"]
    )
    assert config.network == Chosen("birealnet-20-cifar", 10, (16, 16), {"width": 0.5, "pad": "plus"})
    assert settings.from_dict(json.loads(json.dumps(settings.to_dict(config)))) == config
    with pytest.raises(UserError, match="unknown key 'widht'; did you mean 'width'"):
        settings.override(config, ["network.widht=1"])


def test_a_step_that_the_layers_cannot_take_is_noticed_before_a_folder_is_made() -> None:
    steps = (replace(tiny_runs.STEP1, weights="scaled"),)
    with pytest.raises(UserError, match="step 'step1': birealnet-20-cifar has unknown weights 'scaled'"):
        check_network(tiny_runs.config(network=SMALL, steps=steps))


def test_a_checkpoint_holds_any_registered_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = network_spec.build(SMALL)
    network(torch.randn(4, 3, 8, 8))
    checkpoint.save(tmp_path / "a.safetensors", checkpoint.Checkpoint(SMALL, "real", network.state_dict(), META))
    loaded, meta = checkpoint.load(tmp_path / "a.safetensors")
    assert (network_spec.config_of(loaded), latent.weights_of(loaded), meta) == (SMALL, "real", META)
    latent.set_weights(network, "real")
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(loaded(x), network.eval()(x))


def test_the_papers_networks_are_stored_as_in_0_1_0(tmp_path: Path) -> None:
    network = Network(tiny_runs.NETWORK)
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, checkpoint.Checkpoint(tiny_runs.NETWORK, "binary", network.state_dict(), META))
    with safetensors.safe_open(str(path), "pt") as file:
        header = file.metadata()
    assert header["format"] == "bcnn-checkpoint-2"
    stored = json.loads(header["network"])
    assert {"name", "image_size", "classes", "branches", "prelu", "intensity", "stem", "levels"} == stored.keys()


def test_a_header_that_describes_no_network_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    wrong = replace(SMALL, choices={"width": [1, 2]})
    checkpoint.save(path, checkpoint.Checkpoint(wrong, "binary", {}, META))
    with pytest.raises(UserError, match="cannot build birealnet-20-cifar"):
        checkpoint.load(path)
    huge = replace(SMALL, choices={"width": 4000})  # hundreds of gigabytes, of which none is taken
    checkpoint.save(path, checkpoint.Checkpoint(huge, "binary", {}, META))
    with pytest.raises(UserError, match=r"lacks .* tensors of this network"):
        checkpoint.load(path)


@pytest.mark.parametrize("name", ["cifar10", "digits", "imagenette", "tinyimagenet"])
def test_preset_recipe_and_shipped_model_of_a_name_are_one_network(name: str) -> None:
    assert recipes.recipe(name).network == preset(name)
    packed = network_spec.from_plain(read(shipped.find(name)).provenance["config"]["network"])
    assert packed.replace(name=name) == preset(name)


def test_a_network_without_a_recipe_gets_that_of_its_size() -> None:
    assert recipes.for_size((32, 32)) == "cifar10"
    assert recipes.for_size((8, 8)) == "digits"
    assert recipes.for_size((224, 224)) == "imagenet"
    assert recipes.for_size((64, 64)) == "imagenette"
