"""`bcnn approximate`: figures, pictures, packed files, and one sentence for bad input."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import bcnn.cli.theory  # noqa: F401  (adds the verb)
from bcnn.base.errors import UserError
from bcnn.cli.app import app
from bcnn.packed import packfile
from bcnn.program.interpret import interpret
from bcnn.theory import levels


def run(*arguments: str) -> str:
    """What `bcnn approximate` prints; a `UserError` comes through, as in `main`."""
    result = CliRunner().invoke(app, ["approximate", *arguments], catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def row(output: str, name: str) -> str:
    return next(line for line in output.splitlines() if name in line).split("│")[2].split()[0]


def test_the_numbers_of_the_issue_example() -> None:
    output = run("sin(6*x)", "--d", "0.01", "--q", "64")
    assert row(output, "input branches") == "202"
    assert row(output, "binary weights") == "682,790"
    assert float(row(output, "largest error")) <= float(row(output, "error bound")) < 0.038
    assert "estimated" in output


def test_a_known_lipschitz_constant_is_used() -> None:
    output = run("x", "--d", "0.1", "--q", "10", "--lipschitz", "2")
    assert float(row(output, "error bound")) == pytest.approx(2 * 0.05 + 0.05, abs=1e-4)
    assert "estimated" not in output


@pytest.mark.parametrize(
    "arguments",
    [
        ("x, 3", "--d", "0.25", "--q", "4", "--no-ends"),
        ("x*y + z", "--d", "0.5", "--q", "2"),
        ("x, y, x*y", "--d", "0.5", "--q", "2", "--domain", "-1,1", "--domain", "0,1"),
    ],
)
def test_a_picture_is_drawn(arguments: tuple[str, ...], tmp_path) -> None:
    path = tmp_path / "out.png"
    run(*arguments, "--plot", str(path))
    with Image.open(path) as image:
        assert image.size == (1100, 726)
        assert len(np.unique(np.asarray(image.convert("L")))) > 20


def test_the_implications_are_drawn(tmp_path) -> None:
    path = tmp_path / "out.svg"
    run("sin(1/(x + 0.1))", "--d", "0.1", "--q", "4", "--implications", str(path))
    assert path.read_bytes().count(b"<path") > 100


def test_the_anatomy_is_drawn(tmp_path) -> None:
    path = tmp_path / "out.svg"
    run("sin(6*x)", "--d", "0.1", "--q", "4", "--anatomy", str(path))
    assert path.read_bytes().count(b"<path") > 50


def test_an_adaptive_tiling_is_asked_for_by_an_option() -> None:
    chirp = ("sin(1/(x + 0.1))", "--d", "0.05", "--q", "16")
    assert float(row(run(*chirp, "--adaptive"), "largest error")) < float(row(run(*chirp), "largest error"))


def test_the_default_d_divides_every_domain() -> None:
    output = run("x*y", "--domain", "-1,1", "--domain", "0,0.3", "--q", "2")
    assert row(output, "rectangles") == "441"  # 21 x 21


def test_jumps_and_domains_may_be_formulas() -> None:
    output = run("step(x - pi/2)", "--domain", "0,pi", "--d", "0.31415926535", "--q", "4", "--jumps", "pi/2")
    assert float(row(output, "largest error")) == 0


def test_a_packed_file_computes_the_function(tmp_path) -> None:
    path = tmp_path / "sine.bcnn"
    assert "8 bits a coordinate" in run("sin(6*x)", "--d", "0.05", "--q", "32", "--pack", str(path))
    program = packfile.read(path)
    made = interpret(program, np.full((1, 1, 3), 100, np.uint8))
    assert abs(made[0] - np.sin(6 * levels(program)[0, 100])) < 6 * 0.025 + 1 / 64 + 1e-3


@pytest.mark.parametrize("name", ["step", "sinc"])
def test_an_example_stays_within_its_bound(name: str) -> None:
    output = run(name)
    assert float(row(output, "largest error")) <= 1.05 * float(
        row(output, "error bound")
    )  # the bound's slopes are estimates


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("sin(6*",), "found the end at character 7"),
        (("sine(x)",), "did you mean 'sin'?"),
        (("x", "--d", "0.3"), "does not divide the interval [0, 1]"),
        (("x", "--q", "0"), "Q is the number of sub branches"),
        (("1/x", "--jumps", "0"), "f is not finite at (0)"),
        (("x", "--domain", "0"), "--domain takes 2 numbers separated by commas, got '0'"),
        (("x", "--domain", "0,x"), "--domain takes 2 numbers"),
        (("x*y", "--domain", "0,1", "--domain", "0,1", "--domain", "0,1", "--jumps", "1"), "--jumps was given 1 times"),
        (("sinc", "--domain", "0,1", "--domain", "0,1"), "has 1 coordinates, but --domain was given 2 times"),
        (("x", "--lipschitz", "-1"), "a Lipschitz constant must be a finite number >= 0, got -1.0"),
        (("x", "--lipschitz", "nan"), "a Lipschitz constant must be a finite number >= 0, got nan"),
        (("x", "--plot", "out.doc"), "ends in .png, .svg, .pdf"),
        (("x", "--plot", "no/such/folder/out.png"), "there is no folder no/such/folder"),
        (("x", "--d", "1e-6"), "more than the limit of 1,024 MiB"),
        (("x*y", "--implications", "out.png"), "'x*y' has 2 coordinates"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError) as caught:
        run(*arguments)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
