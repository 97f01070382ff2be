"""`bcnn predict`: where images come from, and the forms its answers take. Its other tests are in test_cli_deploy.py."""

import csv
import io
import json

import numpy as np
import photos
import pytest
import samples
from PIL import Image, features
from typer.testing import CliRunner

import bcnn
from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.cli import predict  # noqa: F401  (importing it adds its verb)
from bcnn.cli.app import app


@pytest.fixture
def data(tmp_path):
    return photos.folder(tmp_path / "data", ("blue", "red"), 2)


def run(*words, code=0, given=None):
    result = CliRunner().invoke(app, [str(word) for word in words], input=given)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def test_an_image_comes_from_stdin(data):
    file = data / "red" / "000.png"
    (answer,) = json.loads(run("predict", "-", "-m", "cifar10", "--json", given=file.read_bytes()).stdout)
    (other,) = json.loads(run("predict", file, "-m", "cifar10", "--json").stdout)
    assert answer["image"] == "-"
    assert answer["predictions"] == other["predictions"]
    assert "cannot read image of 3 bytes" in run("predict", "-", code=2, given=b"abc").stderr


def test_csv_has_a_line_for_each_label(data):
    text = run("predict", data, "-m", "cifar10", "--top", 2, "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 8
    assert [row["rank"] for row in rows[:2]] == ["1", "2"]
    assert float(rows[0]["probability"]) >= float(rows[1]["probability"])
    with pytest.raises(UserError, match="one output format"):
        run("predict", data, "--json", "--csv")


def test_a_pattern_that_no_shell_expanded_is_expanded(data):
    answers = json.loads(run("predict", f"{data}/**/00*.png", "-m", "cifar10", "--json").stdout)
    assert [answer["image"] for answer in answers] == sorted(str(file) for file in data.rglob("*.png"))
    with pytest.raises(UserError, match="no image matches"):
        run("predict", f"{data}/*.nothing")


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(data):
    odd = data / "photo[1].png"
    odd.write_bytes((data / "red" / "000.png").read_bytes())
    (answer,) = json.loads(run("predict", odd, "-m", "cifar10", "--json").stdout)
    assert answer["image"] == str(odd)


def test_suffixes_count_in_any_case_and_other_files_are_counted_and_named(data):
    (data / "red" / "000.png").rename(data / "red" / "000.PNG")
    for name in ("notes.txt", "a.pdf", "b.pdf", "c.pdf", ".hidden"):
        (data / name).write_text("no image")
    result = run("predict", data, "-m", "cifar10", "--json")
    assert len(json.loads(result.stdout)) == 4
    assert "4 files skipped that are no image by name: " in result.stderr
    assert "a.pdf" in result.stderr
    assert ", ..." in result.stderr


def test_unread_images_are_counted(data):
    (data / "bad.jpg").write_bytes(b"no image")
    assert "1 of 5 images have no answer, named above" in run("predict", data, "-m", "cifar10", code=2).stderr


@pytest.mark.skipif("avif" not in features.modules or not features.check("avif"), reason="this Pillow has no AVIF")
def test_avif_is_read_where_pillow_has_it(data):
    Image.open(data / "red" / "000.png").save(data / "photo.AVIF")
    assert data / "photo.AVIF" in images.files(data)
    assert json.loads(run("predict", data / "photo.AVIF", "-m", "cifar10", "--json").stdout)


def test_a_run_folder_is_a_model(data, tmp_path, monkeypatch):
    import fakes

    fakes.use_checkpoint(monkeypatch, samples.network())
    (tmp_path / "run").mkdir()
    (answer, *_) = json.loads(run("predict", data, "-m", tmp_path / "run", "--json").stdout)
    assert {best["label"] for best in answer["predictions"]} == {"a", "b", "c"}


def test_an_engine_takes_the_bytes_of_a_file_and_says_what_it_is(data):
    engine = bcnn.load("cifar10")
    file = data / "red" / "000.png"
    assert np.array_equal(engine(file.read_bytes()), engine(file))
    assert np.array_equal(engine([file.read_bytes(), file]), engine([file, file]))
    assert engine.classes == engine.program.labels
    assert repr(engine).startswith("<Engine: 32 x 32 image -> 10 classes (airplane, automobile, bird, ...); ")
    assert repr(engine).endswith(f" ops, {engine.isa}, threads {engine.threads}>")
    assert "a map of (4, 4, 3)" in repr(bcnn.engine.Engine(samples.program()))
    with pytest.raises(UserError, match="cannot read image of 5 bytes"):
        engine(b"bytes")
