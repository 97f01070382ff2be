"""`bcnn convert`: a packed file in other numbers, and back."""

import numpy as np
import pytest
import samples
from typer.testing import CliRunner

from bcnn.base.errors import UserError
from bcnn.cli import convert, deploy  # noqa: F401  (importing them adds their verbs)
from bcnn.cli.app import app
from bcnn.engine import Engine
from bcnn.packed import packfile, shipped
from bcnn.verification.verify import verify


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_a_file_goes_to_float32_and_to_integers_again(tmp_path):
    floats, again = tmp_path / "float.bcnn", tmp_path / "again.bcnn"
    run("convert", "digits", "-o", floats, "--numbers", "float32")
    made = packfile.read(floats)
    assert made.numbers == made.provenance["numbers"] == "float32"
    assert made.provenance["from_parameters"] == "int8"
    assert not {"card", "calibrated_on", "parameters"} & made.provenance.keys()  # they tell of the file before
    run("convert", floats, "-o", again)
    one, other = packfile.read(shipped.find("digits")), packfile.read(again)
    assert one.fractions == other.fractions
    for before, after in zip(one.ops, other.ops, strict=True):
        for a, b in zip(before.arrays(), after.arrays(), strict=True):
            assert np.array_equal(a, b)
    assert all(check.passed for path in (floats, again) for check in verify(path))


def test_the_two_are_near_each_other():
    image = samples.image(8, 8)[None]
    one, other = (
        Engine(program).run(image)[0]
        for program in (samples.in_floats("digits"), packfile.read(shipped.find("digits")))
    )
    assert np.corrcoef(one, other)[0, 1] > 0.9


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--numbers", "int4"], "--numbers int4: give float32 or int16"),
        (["--numbers", "int16"], r"in integers already; .* bcnn convert MODEL -o float.bcnn --numbers float32"),
        (["--numbers", "float32", "--data", "."], "--data calibrates integers"),
        (["--parameters", "int4"], "--parameters int4: give int16 or int8"),
        (["--numbers", "float32", "--parameters", "int8"], "--parameters int8 is for a program in integers"),
    ],
)
def test_what_cannot_be_converted_is_one_sentence(tmp_path, words, says):
    with pytest.raises(UserError, match=says):
        run("convert", "digits", "-o", tmp_path / "x.bcnn", *words)
    assert not (tmp_path / "x.bcnn").exists()


def test_a_folder_that_is_not_there_is_said_before_the_work(tmp_path):
    with pytest.raises(UserError, match=r"there is no folder .*missing to write m\.bcnn in"):
        run("convert", "digits", "-o", tmp_path / "missing" / "m.bcnn", "--numbers", "float32")


def test_a_file_is_not_converted_onto_itself(tmp_path):
    path = tmp_path / "m.bcnn"
    path.write_bytes(shipped.find("digits").read_bytes())
    with pytest.raises(UserError, match="is the file to convert"):
        run("convert", path, "-o", path, "--numbers", "float32")


def test_info_counts_the_real_parameters_of_integers_and_has_both_accuracies(monkeypatch):
    monkeypatch.setattr("bcnn.cli.app.out._width", 200)
    said = run("info", "cifar10").stdout
    rows = [line.split() for line in said.splitlines() if "level" in line and line.strip()[0].isdigit()]
    assert rows
    assert all(int(row[-1].replace(",", "")) > 0 for row in rows)
    assert "Top-1: 85.21% of 10,000 images" in said
    assert "84.78% in float32, the same class for 92.8" in said
    sizes = packfile.open_packed(shipped.find("cifar10")).sizes
    assert f"{sizes.total:,}" in said
    assert sizes.total <= 235_000
    assert packfile.open_packed(shipped.find("digits")).sizes.total <= 30_000
