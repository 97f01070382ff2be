"""The verbs pack, info, verify, predict: what they print and the exit codes they give."""

import json
import subprocess
import sys

import fakes
import pytest
import samples
import torch
from command_line import run
from PIL import Image

from bcnn.base.errors import UserError
from bcnn.cli import deploy, predict  # noqa: F401  (importing them adds their verbs)
from bcnn.lowering.lower import lower
from bcnn.packed import packfile
from bcnn.program.program import Limits

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setattr("bcnn.cli.app.out._width", 200)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.bcnn"
    packfile.save(samples.every_op(("[red]", "dog", "bird"), {"recipe": "[b]none[/b]"}), path)
    return path


@pytest.fixture
def photo(tmp_path):
    Image.fromarray(samples.image(20, 16)).save(tmp_path / "photo.jpg")
    return tmp_path / "photo.jpg"


def test_pack_writes_what_the_checkpoint_holds_and_prints_its_size(tmp_path, monkeypatch):
    network = samples.network()
    fakes.use_checkpoint(monkeypatch, network)
    output = tmp_path / "m.bcnn"
    text = run("pack", "runs/tiny", "-o", output).output
    packed = packfile.open_packed(output)
    assert packed.program.labels == ("a", "b", "c")
    assert packed.program.crop == 0.875
    assert packed.program.provenance["recipe"] == "none"
    assert packed.program.provenance["packed_by"].startswith("bcnn ")
    assert f"{output.stat().st_size:,}" in text


def test_pack_does_not_overwrite_the_checkpoint(tmp_path, monkeypatch):
    fakes.use_checkpoint(monkeypatch, samples.network())
    (tmp_path / "weights").write_text("precious")
    with pytest.raises(UserError, match="is the checkpoint itself"):
        run("pack", tmp_path / "weights", "-o", tmp_path / "weights")
    assert (tmp_path / "weights").read_text() == "precious"


def test_pack_of_a_network_with_real_weights_says_what_to_do(tmp_path, monkeypatch):
    network = samples.network()
    network.weights = "real"
    fakes.use_checkpoint(monkeypatch, network)
    with pytest.raises(
        UserError, match="its weights are 'real', not 'binary'; finish step 2 of the training before you lower it"
    ):
        run("pack", "runs/tiny", "-o", tmp_path / "m.bcnn")


def test_info_shows_ops_sizes_and_provenance(model):
    text = run("info", model, "--all").output
    sizes = packfile.open_packed(model).sizes
    rows = [sizes.binary_weights, sizes.real_parameters, sizes.indices, sizes.test_logits]
    rows += [sizes.header - sizes.provenance, sizes.provenance]
    shown = [int(row.split("│")[2].replace(",", "")) for row in text.splitlines() if row.startswith("│")]
    assert shown == [*rows, sizes.total]
    assert sum(rows) == sizes.total == model.stat().st_size  # every byte is accounted for
    assert "layer4.binaryconv" in text
    assert "8,8,40" in text
    assert "9+10+13+11" in text  # the maps that the last Pointwise reads
    assert "[b]none[/b]" in text  # markup in a file is text
    assert "Hashes: all" in text


def test_info_of_a_damaged_file_is_one_sentence(model):
    model.write_bytes(model.read_bytes()[:-1])
    with pytest.raises(UserError, match="truncated or damaged"):
        run("info", model)


def test_info_without_a_file_lists_instruction_sets(monkeypatch):
    fakes.use_engine(monkeypatch)
    rows = [line.split() for line in run("info").output.splitlines()]
    cells = {row[1]: [word for word in row[2:] if word in ("yes", "no")] for row in rows if len(row) > 4}
    assert cells["fast"] == ["yes", "yes", "yes"]
    assert cells["slow"] == ["yes", "yes", "no"]
    assert cells["elsewhere"] == ["yes", "no", "no"]
    assert cells["neon"] == ["no", "no", "no"]


def test_verify_exits_with_0_when_all_pass_and_1_when_not(model, monkeypatch):
    fakes.use_engine(monkeypatch)
    text = run("verify", model).output
    assert text.count("pass") == 4
    raw = bytearray(model.read_bytes())
    raw[-1] ^= 1
    model.write_bytes(raw)
    assert "FAIL  file" in run("verify", model, code=1).output


def test_a_file_beyond_the_limits_says_how_to_open_it(model, monkeypatch):
    monkeypatch.setattr(packfile, "Limits", lambda: Limits(ops=5))
    with pytest.raises(UserError, match=r"18 ops; the limit is 5 .* set BCNN_LIMITS=off"):
        run("info", model)
    monkeypatch.setenv("BCNN_LIMITS", "off")
    assert "Hashes: all 21 are right" in run("info", model).output


def test_verify_with_a_checkpoint_and_data(model, photo, monkeypatch):
    fakes.use_engine(monkeypatch)
    fakes.use_checkpoint(monkeypatch, samples.network())
    packfile.save(lower(samples.network(), samples.MEAN, samples.STD, ("a", "b", "c")), model)
    text = run("verify", model, "--checkpoint", "runs/tiny", "--data", photo.parent).output
    assert "equal torch's up to rounding" in text
    assert "1 of 1 images" in text


def test_predict_prints_labels_with_probabilities(model, photo, monkeypatch):
    fakes.use_engine(monkeypatch)
    text = run("predict", photo, "--model", model).output
    assert "photo.jpg" in text
    assert "[red]" in text
    assert text.count("%") == 3


def test_predict_as_json_over_a_folder(model, photo, monkeypatch):
    fakes.use_engine(monkeypatch)
    Image.fromarray(samples.image(8, 8)).save(photo.with_name("other.png"))
    answers = json.loads(run("predict", photo.parent, "-m", model, "--json", "--top", 3).stdout)
    assert [answer["image"] for answer in answers] == [str(photo.with_name("other.png")), str(photo)]
    for answer in answers:
        assert sum(best["probability"] for best in answer["predictions"]) == pytest.approx(1)
        values = [best["probability"] for best in answer["predictions"]]
        assert values == sorted(values, reverse=True)


def test_predict_goes_on_after_an_image_that_cannot_be_read(model, photo, monkeypatch):
    fakes.use_engine(monkeypatch)
    bad = photo.with_name("bad.jpg")
    bad.write_bytes(b"not an image")
    result = run("predict", bad, photo, "-m", model, "--json", code=2)
    assert [answer["image"] for answer in json.loads(result.stdout)] == [str(photo)]
    assert "bad.jpg" in result.stderr


def test_predict_with_the_real_engine(model, photo):
    pytest.importorskip("bcnn.engine")
    (answer,) = json.loads(run("predict", photo, "-m", model, "--json").stdout)
    assert {best["label"] for best in answer["predictions"]} == {"[red]", "dog", "bird"}


def test_every_verb_has_help_with_an_example():
    for verb in ("pack", "info", "verify", "predict"):
        assert f"bcnn {verb}" in run(verb, "--help").output


def test_bad_file_is_one_sentence_and_exit_code_2(tmp_path):
    (tmp_path / "bad.bcnn").write_bytes(b"nonsense, and more of it")
    command = [sys.executable, "-m", "bcnn", "info", str(tmp_path / "bad.bcnn")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("bcnn: ")
    assert len(done.stderr.splitlines()) == 1


def test_logits_that_overflow_are_a_sentence_and_json_stays_json(tmp_path, photo):
    network = samples.network()
    with torch.no_grad():
        network.decoder.linear.weight.fill_(3e38)
    program = lower(network, samples.MEAN, samples.STD, ("a", "b", "c"), 1.0)
    packfile.save(program, tmp_path / "huge.bcnn")
    result = run("predict", photo, "-m", tmp_path / "huge.bcnn", code=2)
    assert "nan" not in result.stdout
    assert "the logits of" in result.stderr
    assert "are too large to be numbers" in result.stderr
    text = run("predict", photo, "-m", tmp_path / "huge.bcnn", "--json", code=2).stdout
    assert json.loads(text, parse_constant=pytest.fail) == []
