"""The names that `bcnn` offers: each can be imported, says what it is, and its example runs."""

import doctest
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import tiny_runs

import bcnn

PUBLIC = [name for name in bcnn.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported_and_has_a_docstring(name):
    found = getattr(bcnn, name)
    assert (found.__doc__ or "").strip()
    assert callable(found)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        _ = bcnn.tarin


def test_importing_bcnn_imports_no_torch():
    code = "import sys, bcnn; bcnn.preset; dir(bcnn); bcnn.train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_in_docstrings_do_what_they_show(name, tmp_path):
    """`folder` is an empty one."""
    found = getattr(bcnn, name)
    names = {"folder": str(tmp_path), "np": np}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    tests = [t for t in doctest.DocTestFinder(recurse=False).find(found, name, globs=names) if t.examples]
    assert tests, f"the docstring of bcnn.{name} has no example"
    for test in tests:
        runner.run(test)
    assert runner.failures == 0


def test_the_modules_own_example_runs():
    tests = [t for t in doctest.DocTestFinder(recurse=False).find(bcnn, "bcnn") if t.examples]
    assert [doctest.DocTestRunner().run(test).failed for test in tests] == [0]


def test_train_returns_a_run_that_packs_reports_and_predicts(tmp_path):
    images = np.zeros((40, 8, 8, 3), np.uint8)
    images[20:] = 200
    seen = []
    run = bcnn.train(
        (images, ["dark"] * 20 + ["light"] * 20),
        network=tiny_runs.NETWORK,
        recipe="digits",
        epochs=2,
        settings=["batch=16", "tensorboard=false", "threads=1"],
        out=tmp_path / "run",
        callbacks=[seen.append],
    )
    assert run.classes == ("dark", "light")
    assert 0 <= run.accuracy <= 1
    assert run.network.config == tiny_runs.NETWORK.replace(classes=2)
    assert {record["kind"] for record in seen} == {"epoch", "update"}
    assert run.pack(tmp_path / "x.bcnn").total == (tmp_path / "x.bcnn").stat().st_size
    assert bcnn.load(tmp_path / "x.bcnn").program.labels == ("dark", "light")
    page = run.report().read_text()
    for heading in ("Classes", "What is taken for what", "What augmentation does", "Curves"):
        assert f"<h2>{heading}</h2>" in page
    assert "dark" in page


def test_a_folder_cannot_be_given_other_classes(tmp_path):
    with pytest.raises(bcnn.UserError, match="own classes"):
        bcnn.train(tmp_path, classes=("a", "b"))


def test_a_run_of_half_a_minute_prints_its_plan_and_packs_itself(tmp_path, capsys, monkeypatch):
    from bcnn.training import plan

    monkeypatch.setattr(plan, "MIN_MINUTES", 0.0)
    monkeypatch.setattr(plan, "MEASURED_SECONDS", 0.1)
    monkeypatch.setattr("bcnn.training.report.write", lambda folder: None)
    base = plan.recipes.recipe("digits")
    monkeypatch.setitem(
        plan.recipes.RECIPES, "digits", lambda: replace(base, network=tiny_runs.NETWORK, tensorboard=False)
    )
    run = bcnn.train("digits", minutes=0.15, out=tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    assert "start: random weights, tiny with the steps of recipe digits" in said
    assert "images/s here" in said
    assert "passes over 1,438 training images fit" in said
    assert (tmp_path / "run" / "model.bcnn").is_file()
    assert run.info["config"]["minutes"] == 0.15
