"""A finished run becomes a model with a card; an unfinished one, or the wrong data, does not."""

from __future__ import annotations

import json

import pytest
import tiny_runs
from tiny_runs import train
from tools.pages.model_descriptions import MODELS
from tools.release.ship import ship

import bcnn
from bcnn.models.evaluate import measure
from bcnn.packed import card, packfile
from bcnn.training.checkpoint import load


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ship") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcnn.training.report.write", lambda folder: None)  # pictures have a test of their own
        train(tiny_runs.config(), folder)
    return folder


def test_the_card_holds_what_the_run_and_the_engine_say(run, tmp_path):
    path = ship(run, "digits", hardware="one core of a test", folder=tmp_path)
    program = packfile.read(path)
    found, info = card.of(program), json.loads((run / "run.json").read_text())
    assert found.steps == info["accuracy"]
    assert (found.train_images, found.images) == (info["data"]["train"], info["data"]["val"])
    assert found.hardware == "one core of a test"
    assert [row["step"] for row in found.epochs()] == [
        step["name"] for step in info["config"]["steps"] for _ in range(step["warmup"] + step["epochs"])
    ]
    again = measure(str(path))
    assert again.scores.top1 == found.top1
    assert again.scores.confusion.tolist() == found.confusion
    assert 0.9 <= found.agreement <= 1
    assert found.float_top1 is found.float_same is None
    assert path.stat().st_size == packfile.open_packed(path).sizes.total


def test_the_last_step_is_shipped_not_the_best_epoch(run, tmp_path):
    last = json.loads((run / "run.json").read_text())["config"]["steps"][-1]["name"]
    program = packfile.read(ship(run, "digits", folder=tmp_path))
    network, _ = load(run / f"{last}.safetensors")
    linear = program.ops[-1]
    assert (linear.bias == network.decoder.linear.bias.detach().numpy()).all()


@pytest.mark.parametrize("parameters", ["int8", "int16"])
def test_a_run_is_shipped_in_integers_with_both_accuracies_on_its_card(run, tmp_path, parameters):
    path = ship(run, "digits", folder=tmp_path, numbers="int16", parameters=parameters, allowed=100)
    program = packfile.read(path)
    found = card.of(program)
    assert program.numbers == "int16"
    assert (program.provenance["parameters"], program.provenance["calibrated_on"]) == (parameters, "synthetic pictures")
    again = measure(str(path))
    assert again.scores.top1 == found.top1
    floats = card.of(packfile.read(ship(run, "digits", folder=run)))
    assert found.float_top1 == floats.top1
    assert found.agreement == floats.agreement
    assert 0.5 < found.float_same <= 1


def test_a_float_file_with_its_card_is_shipped_in_integers_as_its_run_is(run, tmp_path):
    before = ship(run, "digits", folder=tmp_path)
    (tmp_path / "zoo").mkdir()
    one = ship(before, "digits", "digits", folder=tmp_path / "zoo", numbers="int16", allowed=100)
    (tmp_path / "other").mkdir()
    other = ship(run, "digits", folder=tmp_path / "other", numbers="int16", allowed=100)
    assert one.read_bytes() == other.read_bytes()
    with pytest.raises(bcnn.UserError, match="is no float32 file with a card"):
        ship(one, "digits", "digits", folder=tmp_path, numbers="int16")


def test_integers_that_cost_accuracy_are_not_shipped(run, tmp_path):
    with pytest.raises(
        bcnn.UserError, match=r"integers cost .* points on a fifth of the training images, more than -100"
    ):
        ship(run, "digits", folder=tmp_path, numbers="int16", allowed=-100)
    assert not list(tmp_path.glob("*.bcnn"))


def test_every_class_of_tiny_imagenet_has_a_name_of_its_own():
    names = MODELS["tinyimagenet"].names
    assert len(names) == len(set(names.values())) == 200
    assert names["n01443537"] == "goldfish"


def test_an_unfinished_run_and_an_unknown_name_are_refused(run, tmp_path):
    info = json.loads((run / "run.json").read_text())
    del info["accuracy"]
    (tmp_path / "run.json").write_text(json.dumps(info))
    with pytest.raises(bcnn.UserError, match="is not finished"):
        ship(tmp_path, "digits", folder=tmp_path)
    with pytest.raises(bcnn.UserError, match="no model is called 'dogs'"):
        ship(run, "dogs", folder=tmp_path)
    assert not list(tmp_path.glob("*.bcnn"))
