"""`bcnn eval`: JSON, some classes only, thumbnails of mistakes; `bcnn info` and `audit` on a screen."""

import dataclasses
import json

import photos
import pytest
from command_line import run
from PIL import Image

import bcnn
from bcnn.base.errors import UserError
from bcnn.cli import count, deploy, learn, train  # noqa: F401  (importing them adds their verbs)
from bcnn.data import sources
from bcnn.learning.learn import Wishes
from bcnn.learning.learn import learn as learned
from bcnn.models.evaluate import measure
from bcnn.packed import packfile
from bcnn.verification import mistakes


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Learned with red and blue exchanged in the photos it is measured on: so that there are mistakes."""
    root = tmp_path_factory.mktemp("eval")
    program = learned(sources.find(str(photos.folder(root / "data"))), Wishes("cifar10", (32, 32)), "p").program
    packfile.save(program, root / "m.bcnn")
    photos.folder(root / "wrong", ("green",), 4, 50)
    for name, other in (("red", "blue"), ("blue", "red")):
        photos.folder(root / "wrong", (name,), 0)
        for seed in range(50, 54):
            photos.drawn(other, seed).save(root / "wrong" / name / f"{seed}.png")
    for split in ("train", "val"):
        (root / "swapped").mkdir(exist_ok=True)
        (root / "swapped" / split).symlink_to(root / "wrong")
    return root / "m.bcnn"


def test_json_has_all_scores_and_names_the_mistakes(model):
    scores = json.loads(run("eval", model, "--data", model.parent / "swapped", "--json").stdout)
    assert scores["images"] == sum(map(sum, scores["confusion"])) == 12
    assert scores["top1"] == sum(scores["confusion"][i][i] for i in range(3)) / 12 < 0.5
    assert len(scores["mistakes"]) == 12 - round(12 * scores["top1"])
    shares = [wrong["probability"] for wrong in scores["mistakes"]]
    assert shares == sorted(shares, reverse=True)
    assert all(wrong["class"] != wrong["said"] for wrong in scores["mistakes"])


def test_some_classes_are_measured_alone(model):
    scores = json.loads(
        run("eval", model, "--data", model.parent / "swapped", "--json", "--classes", "green, red").stdout
    )
    assert [sum(row) for row in scores["confusion"]] == [0, 4, 4]
    text = run(
        "eval", model, "--data", model.parent / "swapped", "--classes", "green", "--picture", model.parent / "c.png"
    ).stdout
    assert "red" not in text
    with pytest.raises(UserError, match=r"no class 'gren' in both .* did you mean 'green'"):
        run("eval", model, "--data", model.parent / "swapped", "--classes", "gren")


def test_the_data_may_lack_classes_and_have_them_in_another_order(model, tmp_path):
    photos.folder(tmp_path / "data", ("green", "red"), 8)
    result = measure(str(model), str(tmp_path / "data"))
    assert result.scores.top1 == 1
    assert (result.scores.confusion.sum(1) > 0).tolist() == [False, True, True]
    assert "2 of the network's 3 classes, no images of blue" in result.notes
    assert measure(str(model), str(tmp_path / "data"), only=("green",)).scores.top1 == 1
    program = bcnn.load(model).program
    labels = ("red", "blue", "green")  # as --add leaves them
    packfile.save(dataclasses.replace(program, labels=labels, provenance={}), tmp_path / "m.bcnn")
    result = measure(str(tmp_path / "m.bcnn"), str(tmp_path / "data"))
    assert (result.scores.confusion.sum(1) > 0).tolist() == [True, False, True]


def test_classes_that_the_network_does_not_know_are_a_sentence(model, tmp_path):
    photos.folder(tmp_path / "data", ("blue", "green", "red", "white"), 8)
    with pytest.raises(UserError, match=r"knows 3 classes .* the data has 4 .* --classes"):
        measure(str(model), str(tmp_path / "data"))


def test_mistakes_become_thumbnails_the_surest_first(model, tmp_path):
    result = measure(str(model), str(model.parent / "swapped"))
    wanted = result.mistakes()
    output = run(
        "eval",
        model,
        "--data",
        model.parent / "swapped",
        "--mistakes",
        tmp_path / "wrong",
        "--picture",
        tmp_path / "c.png",
    ).stdout
    files = sorted((tmp_path / "wrong").iterdir())
    assert len(files) == len(wanted) > 0
    assert f"{len(files)} mistakes, the surest first" in output
    assert files[0].name.startswith(f"001_{wanted[0].probability:.0%}".replace("%", "pct"))
    assert "_taken_for_" in files[0].name
    assert max(Image.open(files[0]).size) <= mistakes.SIDE
    with pytest.raises(UserError, match="is not an empty folder"):
        run("eval", model, "--data", model.parent / "swapped", "--mistakes", tmp_path / "wrong")


def test_most_often_taken_for_is_beside_each_class(model, tmp_path):
    text = run("eval", model, "--data", model.parent / "swapped", "--picture", tmp_path / "c.png").stdout
    row = next(line for line in text.splitlines() if line.startswith("│ red"))
    assert "blue (" in row


@pytest.mark.parametrize("name", ["imagenette", "cifar10", "digits"])
def test_info_fits_a_screen_and_all_shows_every_op(name, monkeypatch):
    monkeypatch.setattr("bcnn.cli.app.out._width", 100)
    short, everything = run("info", name).stdout, run("info", name, "--all").stdout
    assert len(short.splitlines()) <= 40
    assert "by the size of their maps" in short
    program = packfile.read(deploy_path(name))
    assert all(op in everything for op in program.names)
    assert '"recipe"' in everything


def deploy_path(name):
    from bcnn.packed import shipped

    return shipped.find(name)


def test_info_as_json_has_every_op_and_all_that_the_file_says(model):
    told, packed = json.loads(run("info", model, "--json").stdout), packfile.open_packed(model)
    assert [op["name"] for op in told["ops"]] == list(packed.program.names)
    assert told["sizes"]["total"] == model.stat().st_size
    assert told["labels"] == ["blue", "green", "red"]
    assert told["provenance"] == packed.program.provenance
    assert {isa["name"] for isa in json.loads(run("info", "--json").stdout)} >= {"scalar"}


def test_info_of_a_learned_file_says_how_it_came_about(model):
    text = run("info", model).stdout
    assert "3 classes of p" in text
    assert "Learned: " in text
    assert "torch" not in text


def test_audit_fits_a_screen_and_all_shows_every_product(monkeypatch):
    monkeypatch.setattr("bcnn.cli.app.out._width", 120)
    short = run("audit", "cifar10").stdout
    assert len(short.splitlines()) <= 40
    assert "more products are not shown; --all shows them" in short
    assert len(run("audit", "cifar10", "--all").stdout.splitlines()) > len(short.splitlines())
    failing = run("audit", "cifar10", "--weights", "real", code=1).stdout
    assert len(failing.splitlines()) <= 40
    assert "FAILS" in failing
