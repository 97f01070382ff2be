"""Text -> function: what is accepted means what it means on paper, everything else is one sentence with a position."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bcnn.base.errors import UserError
from bcnn.theory.expression import MAX_DEPTH, MAX_LENGTH, parse


def value(text: str, *point: float) -> float:
    return float(parse(text)(*[np.array([c]) for c in point or (0.0,)])[0, 0])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 + 2*3", 7),
        ("(1 + 2)*3", 9),
        ("2 - 3 - 4", -5),
        ("8 / 4 / 2", 1),
        ("-2^2", -4),
        ("2^-1", 0.5),
        ("2^3^2", 512),
        ("2**3", 8),
        ("7 % 4", 3),
        ("--+3", 3),
        ("1.5e3 + .5 + 2.", 1502.5),
        ("pi + e", math.pi + math.e),
        ("max(1, min(5, 3))", 3),
        ("sinc(0) + step(0) + step(-1e-9)", 2),
        ("atan2(1, 1) * 4", math.pi),
        ("2e3", 2000),
        ("+".join(["1"] * 1000), 1000),
    ],
)
def test_a_constant_text_has_the_value_it_has_on_paper(text: str, wanted: float) -> None:
    assert value(text) == pytest.approx(wanted, rel=1e-15)


def test_variables_are_the_coordinates_in_order() -> None:
    assert value("x + 10*y + 100*z", 1, 2, 3) == 321
    assert parse("y").inputs == 2
    assert parse("1").inputs == 1


def test_commas_at_the_top_make_several_outputs() -> None:
    made = parse("x, 2*x, 7")(np.array([1.0, 2.0]))
    assert made.tolist() == [[1, 2], [2, 4], [7, 7]]


def test_a_text_agrees_with_the_same_formula_in_numpy() -> None:
    x = np.linspace(0.1, 3, 50)
    wanted = np.sin(6 * x) / x + np.sqrt(np.abs(np.cos(x))) - np.exp(-(x**2)) * np.log(x)
    assert np.array_equal(parse("sin(6*x)/x + sqrt(abs(cos(x))) - exp(-x^2)*log(x)")(x)[0], wanted)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a number, a name or '(' but found the end at character 1"),
        ("sin(6*)", "found ')' at character 7"),
        ("sin 6", "expected '(' after the function 'sin' but found '6' at character 5"),
        ("(x + 1", "expected ')' but found the end at character 7"),
        ("x x", "expected an operator but found 'x' at character 3"),
        ("2 x", "expected an operator but found 'x' at character 3"),
        ("sine(x)", "unknown name 'sine' at character 1 of the expression; did you mean 'sin'?"),
        ("x + $", "cannot read '$' at character 5"),
        ("hypot(x)", "'hypot' at character 1 of the expression takes 2 arguments, got 1"),
        ("sin(x, x)", "takes 1 argument, got 2"),
        ("x,", "found the end at character 3"),
        ("__import__(x)", "unknown name '__import__'"),
        ("x.real", "cannot read '.' at character 2"),
        ("x[0]", "cannot read '[' at character 2"),
        ("lambda x", "unknown name 'lambda'"),
        ("٣", "cannot read"),
        ("1" * (MAX_LENGTH + 1), f"at most {MAX_LENGTH} are read"),
        ("(" * 200 + "x" + ")" * 200, f"nested deeper than {MAX_DEPTH}"),
        ("-" * 200 + "x", f"nested deeper than {MAX_DEPTH}"),
        ("2^" * 200 + "x", f"nested deeper than {MAX_DEPTH}"),
    ],
)
def test_what_is_not_maths_is_refused_with_its_position(text: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_few_coordinates_are_named() -> None:
    with pytest.raises(UserError, match="function of 2 coordinates, got 1"):
        parse("x*y")(np.zeros(3))


def test_huge_powers_are_infinite_and_not_slow() -> None:
    assert value("9^9^9^9") == math.inf


@settings(max_examples=200, deadline=None)
@example("+-" * 30)
@given(st.text(alphabet="xyz0123456789.+-*/^%(), esincopa_'\"[]\\\n\0é", max_size=60))
def test_any_text_is_a_function_or_a_user_error(text: str) -> None:
    try:
        f = parse(text)
    except UserError:
        return
    assert f(np.zeros(2), np.zeros(2), np.zeros(2)).shape == (len(f.outputs), 2)
