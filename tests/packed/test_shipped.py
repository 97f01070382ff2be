"""The models inside the package, whichever are there: that they load, answer, and say of themselves what is true. No data set."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from command_line import run
from PIL import Image, ImageDraw

import bcnn
from bcnn.base.errors import UserError
from bcnn.cli import bench, deploy, models, predict, train  # noqa: F401  (importing them adds their verbs)
from bcnn.counting.counts import count
from bcnn.nets.config import from_dict
from bcnn.packed import card, packfile, shipped
from bcnn.program.program import Program

NAMES = shipped.names()
every_model = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setattr("bcnn.cli.app.out._width", 200)


def drawn() -> Image.Image:
    """A golf ball on grass, more or less: not to be recognised, only to be a picture of another size."""
    image = Image.new("RGB", (200, 150), (40, 120, 30))
    ImageDraw.Draw(image).ellipse((60, 30, 150, 120), fill="white", outline=(180, 180, 180), width=3)
    return image


def test_the_digits_are_among_the_models():
    assert "digits" in NAMES


@every_model
def test_a_drawn_image_gets_labels_and_probabilities(name):
    engine = bcnn.load(name)
    labels = engine.program.labels
    assert engine(drawn()).shape == (1, len(labels))
    ((*answers,),) = engine.predict(drawn(), top=len(labels))
    assert sorted(label for label, _ in answers) == sorted(labels)
    assert sum(share for _, share in answers) == pytest.approx(1)
    assert [share for _, share in answers] == sorted((share for _, share in answers), reverse=True)


@every_model
def test_labels_are_words_for_people(name):
    assert not [label for label in packfile.read(shipped.find(name)).labels if re.fullmatch(r"n\d{8}", label)]


@every_model
def test_a_file_is_small_and_its_size_is_accounted_for(name):
    path = shipped.find(name)
    sizes = packfile.open_packed(path).sizes
    assert path.stat().st_size == sizes.total < 2_000_000


@every_model
def test_a_card_agrees_with_itself_and_with_the_network(name):
    packed = packfile.open_packed(shipped.find(name))
    found = card.of(packed.program)
    assert found is not None
    confusion = np.array(found.confusion)
    assert confusion.sum() == found.images
    assert np.trace(confusion) / found.images == found.top1
    config = packed.program.provenance["config"]
    assert list(found.steps) == [step["name"] for step in config["steps"]]
    assert {row["step"] for row in found.epochs()} <= set(found.steps)
    assert count(from_dict(config["network"])).counts.binary_params == sum(
        counts.binary_params for counts in packed.program.counts()
    )


@every_model
def test_the_header_is_a_few_kilobytes(name):
    sizes = packfile.open_packed(shipped.find(name)).sizes
    assert sizes.header - sizes.provenance < 7000
    assert packfile.read(shipped.find(name)).numbers == "int16"
    labels = len(packfile.read(shipped.find(name)).labels)
    assert sizes.provenance < 8000 + 150 * max(0, labels - 10)  # the card has a matrix of them


@every_model
def test_a_card_says_nothing_of_the_machine_it_was_made_on(name):
    assert b"/work" not in shipped.find(name).read_bytes()


def test_a_card_that_is_not_whole_counts_as_none():
    program = packfile.read(shipped.find("digits"))
    plain = program.provenance[card.KEY]
    unprintable = [{**plain, "title": "\x1b[2J"}, {**plain, "folders": ["\n", *plain["folders"][1:]]}]
    short = {**plain, "log": [[1, 2]]}
    wrong = [{**plain, "top1": "high"}, {**plain, "folders": ["a"]}, {**plain, "more": 1}, short, *unprintable]
    for damaged in (None, [], {}, *wrong):
        other = Program(program.ops, program.names, program.labels, 1.0, {card.KEY: damaged})
        assert card.of(other) is None
        assert card.folders(other) == program.labels


def test_models_load_and_answer_without_torch():
    code = "import sys, numpy as np, bcnn; from bcnn.packed import shipped; from bcnn.verification import evaluation\n"
    code += "for name in shipped.names(): bcnn.load(name).predict(np.zeros((40, 50, 3), np.uint8))\n"
    code += "assert not {'torch', 'matplotlib', 'sklearn'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_packed_file_is_evaluated_without_torch():
    code = "import sys; from bcnn.models.evaluate import measure; result = measure('digits')\n"
    code += "assert result.scores.top1 == result.card.top1, (result.scores.top1, result.card.top1)\n"
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_models_are_listed_with_size_and_accuracy():
    output = run("models").output
    for name in NAMES:
        packed = packfile.open_packed(shipped.find(name))
        row = next(line for line in output.splitlines() if line.strip().startswith(name))
        assert f"{packed.sizes.total:,}" in row
        assert f"{card.of(packed.program).top1:.2%}" in row


def test_verbs_take_a_name_for_a_file(tmp_path):
    drawn().save(tmp_path / "drawn.png")
    assert '"label"' in run("predict", tmp_path / "drawn.png", "-m", "digits", "--json").output
    assert "Top-1: 9" in run("info", "digits").output
    assert "FAIL" not in run("verify", "digits").output
    assert "this engine" in run("bench", "digits", "--rounds", 1).output


def test_eval_prints_the_recorded_figure_beside_the_measured_one(tmp_path):
    output = run("eval", "digits", "--picture", tmp_path / "confusion.png").output
    measured, recorded = re.findall(r"top-1 (\d+\.\d+%)", output)
    assert measured == recorded
    assert (tmp_path / "confusion.png").stat().st_size > 1000


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(
        UserError, match=r"^no shipped model and no file is called 'digit'; did you mean 'digits'\? known: "
    ):
        bcnn.load("digit")


def test_a_bare_name_is_the_shipped_model_and_anything_else_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    (tmp_path / "mine").touch()
    assert shipped.find("digits").parent == shipped.FOLDER
    for path in ("./digits", "digits.bcnn", "mine", str(tmp_path / "nothing")):
        assert str(shipped.find(path)) == str(type(tmp_path)(path))


def test_class_folders_may_have_other_names_than_the_labels(tmp_path):
    """Imagenette's folders are WordNet numbers; people read words."""
    program = packfile.read(shipped.find("digits"))
    plain = {**program.provenance[card.KEY], "folders": [f"n{i:08}" for i in range(10)]}
    words = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    packfile.save(Program(program.ops, program.names, words, 1.0, {card.KEY: plain}), tmp_path / "words.bcnn")
    for split in ("train", "val"):
        for i in range(10):
            (tmp_path / split / f"n{i:08}").mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / split / f"n{i:08}" / "black.png")
    (tmp_path / "val" / "n00000003" / "broken.png").write_bytes(b"no image")
    output = run("eval", tmp_path / "words.bcnn", "--data", tmp_path, "--picture", tmp_path / "c.png").stdout
    assert "three" in output
    assert "n00000003" not in output
    assert "top-1 10.00%, top-5 50.00% over 10 images" in output  # all black: one answer for all
