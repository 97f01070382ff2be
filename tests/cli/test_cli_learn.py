"""`bcnn learn`: what it says before, while and after it learns, and what it refuses."""

import photos
import pytest
from command_line import run
from PIL import Image

from bcnn.base.errors import UserError
from bcnn.cli import deploy, learn, models, predict, train  # noqa: F401  (importing them adds their verbs)
from bcnn.packed import card, packfile


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    for console in ("out", "err"):
        monkeypatch.setattr(f"bcnn.cli.app.{console}._width", 200)


@pytest.fixture
def data(tmp_path):
    return photos.folder(tmp_path / "my photos")


def learned(data, *more):
    output = data.parent / "mine.bcnn"
    result = run("learn", data, "-o", output, "--from", "cifar10", "--size", 32, *more)
    return output, result


def test_classes_are_listed_before_and_judged_after(data):
    output, result = learned(data)
    rows = [line.split() for line in result.stderr.splitlines()]
    assert ["blue", "10", "2"] in rows
    assert result.stderr.index("blue") < result.stderr.index("reading at 32 x 32")
    assert "% of 6 held-out photos are right, measured in the engine" in result.stdout
    assert f"{output.stat().st_size:,} bytes" in result.stdout
    assert card.of(packfile.read(output)).images == 6


def test_the_report_names_the_next_stage_and_what_it_is_for(data):
    _, result = learned(data)
    assert f"bcnn train --data {data} --minutes 20" in result.stdout
    assert "tunes the binary layers to your photos" in result.stdout


def test_a_learned_file_predicts_evaluates_and_verifies(data):
    output, _ = learned(data)
    assert "red" in run("predict", data / "red" / "000.png", "-m", output, "--top", 1).stdout
    assert "recorded in the file" in run("eval", output, "--data", data, "--picture", data.parent / "c.png").stdout


def test_unreadable_files_are_named_once_and_counted(data):
    (data / "red" / "broken.jpg").write_bytes(b"no image")
    _, result = learned(data)
    assert result.stderr.count("skipped: cannot read image") == 1
    assert "1 unreadable file skipped, named above" in result.stderr
    with pytest.raises(UserError, match="--strict-data stops here"):
        learned(data, "--strict-data")


def test_an_empty_class_is_left_out_with_a_sentence(data):
    (data / "empty").mkdir()
    output, result = learned(data)
    assert "class 'empty' has no image" in result.stderr
    assert packfile.read(output).labels == ("blue", "green", "red")


def test_none_of_these_is_said_in_words(data, tmp_path):
    output, result = learned(data, "--others", photos.checks(tmp_path / "others"))
    assert "of held-out photos of other things are called none of these" in result.stdout
    answer = run("predict", tmp_path / "others" / "0.png", "-m", output, "--top", 1)
    assert "none of the 3 classes" in answer.stdout
    assert '"none": true' in run("predict", tmp_path / "others" / "0.png", "-m", output, "--json").stdout
    assert '"none": false' in run("predict", data / "red" / "000.png", "-m", output, "--json").stdout
    told = run("eval", output, "--data", data, "--picture", tmp_path / "c.png").stdout
    assert "none of these" in told


def test_a_class_is_added_with_and_without_the_photos_of_the_others(data):
    output, _ = learned(data)
    new = photos.folder(data.parent / "new", ("white",)) / "white"
    more = data.parent / "more.bcnn"
    result = run("learn", "--from", output, "--add", f"mug={new}", "-o", more)
    assert "held-out photos of mug are recognised" in result.stdout
    assert packfile.read(more).labels == ("blue", "green", "red", "mug")
    assert card.of(packfile.read(more)) is None  # what was measured before is not true of it
    result = run("learn", data, "--from", output, "--add", f"mug={new}", "-o", more)
    assert packfile.read(more).labels == ("blue", "green", "red", "mug")
    assert card.of(packfile.read(more)).images == 8


def test_what_cannot_be_done_is_one_sentence(data, tmp_path):
    for words, sentence in (
        ((), "no photos; give a folder"),
        (("--add", "mug=here"), "--add needs the file that gets the class"),
        (("--add", "mug", "--from", "digits"), "--add takes NAME=FOLDER"),
        (("--add", "mug=/nowhere", "--from", "digits"), "no folder at /nowhere"),
        ((data, "-o", tmp_path / "no" / "m.bcnn"), "there is no folder"),
        ((tmp_path / "nothing",), "no data set at"),
        ((data, "--from", "digit"), "did you mean 'digits'"),
        ((data, "--size", "big"), "give one number"),
    ):
        with pytest.raises(UserError, match=sentence):
            run("learn", *words)


def test_the_name_of_a_new_class_must_be_new(data):
    output, _ = learned(data)
    for words in ((), (data,)):
        with pytest.raises(UserError, match=r"a class 'red'.* already"):
            run("learn", *words, "--from", output, "--add", f"red={data / 'red'}", "-o", output)


def test_photos_of_other_kinds_are_read_too(data):
    Image.open(data / "red" / "000.png").convert("L").save(data / "red" / "GREY.JPG")
    _, result = learned(data)
    assert ["red", "10", "3"] in [line.split() for line in result.stderr.splitlines()]


def test_help_has_examples_that_every_shell_takes():
    for verb in ("learn", "predict", "eval", "pack", "info", "verify", "models"):
        text = run(verb, "--help").output
        for line in (line for line in text.splitlines() if line.strip().startswith("bcnn ")):
            bare = "".join(part for index, part in enumerate(line.split("'")) if index % 2 == 0)
            assert not set(bare) & set("*?[]"), line
