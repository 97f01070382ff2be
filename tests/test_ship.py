"""A finished run becomes a model with a card; an unfinished one, or the wrong data, does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import bcnn
import tiny
from bcnn.deploy import card, packfile
from bcnn.deploy.measure import measure
from bcnn.train.checkpoint import load
from bcnn.train.start import train

sys.path.insert(0, str(Path(__file__).parent.parent))
from tools.ship import ship


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ship") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcnn.train.report.write", lambda folder: None)  # pictures have a test of their own
        train(tiny.config(), folder)
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
    assert path.stat().st_size == packfile.open_packed(path).sizes.total


def test_the_last_step_is_shipped_not_the_best_epoch(run, tmp_path):
    last = json.loads((run / "run.json").read_text())["config"]["steps"][-1]["name"]
    program = packfile.read(ship(run, "digits", folder=tmp_path))
    network, _ = load(run / f"{last}.safetensors")
    linear = program.ops[-1]
    assert (linear.bias == network.decoder.linear.bias.detach().numpy()).all()


def test_an_unfinished_run_and_an_unknown_name_are_refused(run, tmp_path):
    info = json.loads((run / "run.json").read_text())
    del info["accuracy"]
    (tmp_path / "run.json").write_text(json.dumps(info))
    with pytest.raises(bcnn.UserError, match="is not finished"):
        ship(tmp_path, "digits", folder=tmp_path)
    with pytest.raises(bcnn.UserError, match="no model is called 'dogs'"):
        ship(run, "dogs", folder=tmp_path)
    assert not list(tmp_path.glob("*.bcnn"))
