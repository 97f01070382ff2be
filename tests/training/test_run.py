"""A run as it is asked for: the command line and Python make the same object, and nothing that was asked for is lost."""

from dataclasses import fields, replace

import numpy as np
import pytest
import tiny_runs
from typer.testing import CliRunner

import bcnn
from bcnn.base.errors import UserError
from bcnn.cli import train as verbs  # noqa: F401  (adds `train`)
from bcnn.cli.app import app
from bcnn.data import objects
from bcnn.data.config import DataConfig
from bcnn.training.choose import Wanted, choose
from bcnn.training.run import TrainingRun
from bcnn.training.run_folder import RunFolder


@pytest.fixture
def started(monkeypatch):
    """The runs that would have been trained."""
    seen = []
    monkeypatch.setattr("bcnn.training.run_training.train", lambda run: seen.append(run) or {})
    return seen


def test_the_command_line_and_python_build_the_same_run(started, tmp_path):
    few = ["batch=16", "tensorboard=false", "data.hold_out=0.3"]
    out = str(tmp_path / "run")
    options = [word for text in few for word in ("--set", text)]
    arguments = ["--data", "digits", "--recipe", "cifar10", "--size", "8", "--epochs", "7", "--out", out, *options]
    assert CliRunner().invoke(app, ["train", *arguments]).exit_code == 0
    bcnn.train("digits", recipe="cifar10", size=8, epochs=7, settings=few, out=out)
    typed, called = started
    assert typed.config == called.config
    assert typed.folder == called.folder
    untold = {"config", "folder", "began"}
    for name in {field.name for field in fields(TrainingRun)} - untold:
        assert getattr(typed, name) == getattr(called, name), name


def test_every_option_of_the_command_line_reaches_the_run(started, tmp_path):
    arguments = ["--strict-data", "--stop-after", "3", "--trust", "--network", "bnn-vgg", "--data", "digits"]
    assert CliRunner().invoke(app, ["train", *arguments, "--out", str(tmp_path / "run")]).exit_code == 0
    (run,) = started
    assert (run.stop_after, run.trust, run.config.data.strict, run.config.data.source) == (3, True, True, "digits")
    assert run.config.network.name == "bnn-vgg"


def test_what_python_alone_can_ask_for_reaches_the_run(started, tmp_path):
    images = (np.zeros((40, 8, 8, 3), np.uint8), ["a", "b"] * 20)
    bcnn.train(images, network=tiny_runs.NETWORK, callbacks=[print], out=tmp_path / "run")
    (run,) = started
    assert run.callbacks == (print,)
    assert run.source.classes == ("a", "b")
    assert run.config.network == tiny_runs.NETWORK
    assert run.config.data.source == ""  # what a recipe names is not what was given


def test_a_plan_keeps_what_was_asked_of_the_data(monkeypatch):
    from bcnn.training import plan

    monkeypatch.setattr(plan, "MEASURED_SECONDS", 0.0)
    source = objects.source_of((np.zeros((200, 8, 8, 3), np.uint8), [0, 1] * 100))
    wanted = Wanted(
        data=source, network=tiny_runs.NETWORK, minutes=1.0, strict=True, settings=("data.workers=1", "seed=5")
    )
    choice = choose(wanted)
    assert choice.source is source
    assert (choice.config.data.strict, choice.config.data.workers, choice.config.seed) == (True, 1, 5)
    assert (choice.config.minutes, choice.config.pack) == (1.0, True)
    base = plan.recipes.recipe("digits").data
    assert choice.config.data == replace(base, source="", strict=True, workers=1)


def test_every_field_of_the_data_that_a_recipe_has_stays_unless_it_was_asked_for():
    base = bcnn.recipe("imagenette").data
    assert choose(Wanted(recipe="imagenette")).config.data == base
    assert choose(Wanted(recipe="imagenette", data="photos")).config.data == replace(base, source="photos")
    assert base != DataConfig()


def test_a_resumed_run_has_the_config_of_its_folder_and_the_epochs_that_are_added(tmp_path):
    config = tiny_runs.config()
    RunFolder(tmp_path / "run").create(config)
    run = TrainingRun.resumed(tmp_path / "run")
    assert (run.config, run.resume, run.more_epochs) == (config, True, 0)
    longer = TrainingRun.resumed(tmp_path / "run", more_epochs=3)
    assert longer.config.steps[-1].total_epochs == config.steps[-1].total_epochs + 3
    assert longer.config.steps[:-1] == config.steps[:-1]
    with pytest.raises(UserError, match="nothing to resume"):
        TrainingRun.resumed(tmp_path)
