"""Other papers' recipes: their schedules at epoch boundaries, and a few updates of each on tiny data."""

import json
from dataclasses import replace

import pytest
import tiny_runs
import torch
from tiny_runs import train

from bcnn.base.errors import UserError
from bcnn.nets import network_spec
from bcnn.nets.binary_conv import BinaryConv2d
from bcnn.nets.latent import latent_weights
from bcnn.training import adam, checkpoint, losses, recipes, settings
from bcnn.training.config import Step
from bcnn.training.interrupt import Stopped
from bcnn.training.published import PUBLISHED
from bcnn.training.schedule import boundaries, learning_rate

torch.set_num_threads(1)
# Small forms of the same families: what is tested is the recipe. Those of 224 x 224 have one for small images.
SMALL = {
    "bnn-vgg": ("bnn-vgg", {"width": 0.125}),
    "xnornet-alexnet": ("xnornet-nin", {"width": 0.125}),
    "birealnet-50": ("birealnet-50-cifar", {"width": 0.125}),
    "groupnet-r18": ("groupnet-r18-cifar", {"width": 0.125, "bases": 2}),
    "meliusnet-22": ("meliusnet-22-cifar", {"width": 0.25}),
}


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr("bcnn.training.report.write", lambda folder: None)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_every_published_recipe_is_complete_documented_and_named_after_its_network(name):
    config = recipes.recipe(name)
    assert config.recipe == config.network.name == name
    assert "Published: " in PUBLISHED[name].__doc__
    assert config.steps[-1].weights == "binary"
    assert config.steps[-1].weight_decay == 0
    assert settings.from_dict(json.loads(json.dumps(settings.to_dict(config)))) == config


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_every_published_recipe_trains(name, tmp_path):
    """Each step for one epoch of two updates; outside teachers are replaced by labels."""
    config = recipes.recipe(name)
    small, choices = SMALL.get(name, (f"{name}-cifar", {"width": 0.125}))
    network = network_spec.resolve(small).replace(classes=10, **choices)
    network = network.replace(image_size=(16, 16) if network.stride <= 16 else (32, 32))
    steps = tuple(
        replace(step, epochs=1, teacher="none" if ":" in step.teacher else step.teacher) for step in config.steps
    )
    data = replace(tiny_runs.config().data, hold_out=0.9)
    run = replace(config, network=network, data=data, steps=steps, batch=64, threads=1, tensorboard=False)
    info = train(run, tmp_path / "run")
    assert list(info["accuracy"]) == [step.name for step in config.steps]


def test_rates_of_published_recipes_at_epoch_boundaries():
    (bnn,), (bireal,) = recipes.recipe("bnn-vgg").steps, recipes.recipe("birealnet-18").steps
    rates = dict(boundaries(bnn))
    assert (rates[0], rates[500]) == pytest.approx((1e-3, 3e-7))
    assert rates[250] == pytest.approx((1e-3 * 3e-7) ** 0.5)
    rates = dict(boundaries(bireal))
    assert (rates[0], rates[128], rates[256]) == pytest.approx((1e-3, 5e-4, 0))
    decayed, free = recipes.recipe("xnornet-alexnet").steps
    assert [learning_rate(decayed, t) for t in (0, 17.9, 18, 28.9)] == [1e-3, 1e-3, 5e-4, 5e-4]
    assert [learning_rate(free, t) for t in (0, 13.9, 14, 22.9, 23)] == pytest.approx([1e-4, 1e-4, 5e-5, 5e-5, 1e-5])
    assert decayed.epochs + free.epochs == 55


def test_squared_hinge_is_zero_beyond_the_margin_and_its_mean_inside():
    logits, labels = torch.tensor([[2.0, -1.0], [0.5, 0.0]]), torch.tensor([0, 1])
    assert losses.squared_hinge(logits[:1], labels[:1]) == 0
    assert losses.squared_hinge(logits, labels) == pytest.approx((0 + 0 + 1.5**2 + 1) / 4)


def test_glorot_rates_are_those_of_the_layer_and_of_binary_layers_alone():
    network = network_spec.build(network_spec.resolve("birealnet-20-cifar"))
    optimizer = adam.adam(network, Step(glorot=True))
    adam.set_rate(optimizer, 0.5)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert len(rates) == len(list(network.parameters()))
    binary = [m for m in network.modules() if isinstance(m, BinaryConv2d)]
    for module in binary:
        out, channels, height, width = module.weight.shape
        assert rates[id(module.weight)] == pytest.approx(0.5 * ((channels + out) * height * width / 1.5) ** 0.5)
    others = {id(p) for p in network.parameters()} - {id(p) for p in latent_weights(network)}
    assert {rates[each] for each in others} == {0.5}


@pytest.mark.parametrize("optimizer", ["sgd", "radam"])
def test_a_killed_run_of_another_optimizer_resumes_to_the_same_bits(optimizer, tmp_path):
    steps = (replace(tiny_runs.STEP1, optimizer=optimizer, warmup=0, epochs=2),)
    whole = train(tiny_runs.config(steps=steps), tmp_path / "whole")
    with pytest.raises(Stopped):
        train(tiny_runs.config(steps=steps), tmp_path / "cut", stop_after=3)
    assert train(None, tmp_path / "cut", resume=True)["accuracy"] == whole["accuracy"]
    one, other = (checkpoint.read(tmp_path / name / "step1.safetensors").state for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"decay": "steps"}, "needs drops"),
        ({"drops": ((3, 0.1),)}, "needs drops"),
        ({"decay": "steps", "drops": ((3, 0.1), (2, 0.2))}, "needs drops"),
        ({"decay": "steps", "drops": ((3, 0.0),)}, "factor above 0"),
        ({"decay": "exponential", "lr_last": 0.0}, "exponential"),
        ({"smoothing": 0.1, "loss": "squared hinge"}, "smoothing"),
        ({"teacher": "step1", "smoothing": 0.1}, "take the place of labels"),
        ({"lr_last": -0.1}, "lr_last must be 0 or more"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        Step(**changes)
