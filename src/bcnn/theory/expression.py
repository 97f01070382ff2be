"""A line of maths -> a function of arrays: "sin(6*x)" becomes f(x). Never `eval`: a tokenizer and a grammar of our own.

    outputs  = sum { "," sum }                      several outputs make a vector function
    sum      = product { ("+" | "-") product }
    product  = signed { ("*" | "/" | "%") signed }
    signed   = ("+" | "-") signed | power           so that -x^2 = -(x^2), as on paper
    power    = atom [ ("^" | "**") signed ]         right to left: 2^3^2 = 2^9
    atom     = number | name | function "(" sum { "," sum } ")" | "(" sum ")"

Numbers are float64 from the first digit on, so no text can ask for a huge integer; length and depth are limited.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError, nearest

Array = NDArray[np.float64]
MAX_LENGTH, MAX_DEPTH = 2000, 50  # depth: each level is at most six Python frames, far from the recursion limit

VARIABLES = ("x", "y", "z")
CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}


def _sinc(x: Array) -> Array:
    """sin(x) / x, 1 at 0: NumPy's sinc has a pi in it."""
    return np.asarray(np.sinc(x / np.pi))


def _step(x: Array) -> Array:
    """0 below 0, 1 from 0 on: the same side as sign(0) = +1."""
    return np.where(x >= 0, 1.0, 0.0)


# name: (how many arguments, what it computes)
FUNCTIONS: dict[str, tuple[int, Callable[..., Array]]] = {
    **{name: (1, getattr(np, name)) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "sqrt", "floor", "ceil")},
    **{"asin": (1, np.arcsin), "acos": (1, np.arccos), "atan": (1, np.arctan), "atan2": (2, np.arctan2)},
    **{"log": (1, np.log), "log2": (1, np.log2), "log10": (1, np.log10), "abs": (1, np.abs), "hypot": (2, np.hypot)},
    **{"min": (2, np.minimum), "max": (2, np.maximum), "sinc": (1, _sinc), "step": (1, _step)},
}  # fmt: skip

_OPERATORS: dict[str, Callable[..., Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.mod,
}  # fmt: skip

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<mark>\*\*|[-+*/%^(),]))",
    re.ASCII,
)


@dataclass(frozen=True)
class _Token:
    kind: str  # "number", "name", "mark", "end"
    text: str
    at: int  # character, counted from 1 as people do


# One step of a formula in postfix order: push a constant, push a variable, or replace the top n values by a function of them. A list and
# not a tree, so that a sum of a thousand terms needs no deep recursion.
_Step = float | str | tuple[int, Callable[..., Array]]


def _run(steps: list[_Step], values: dict[str, Array]) -> Array | float:
    stack: list[Array | float] = []
    for step in steps:
        if isinstance(step, str):
            stack.append(values[step])
        elif isinstance(step, float):
            stack.append(step)
        else:
            count, function = step
            stack[-count:] = [function(*stack[-count:])]
    return stack[0]


@dataclass(frozen=True)
class Expression:
    """A parsed text. Calling it with one array per coordinate gives outputs x points, in float64.

    Division by zero and the like give inf or nan without a warning: whoever samples the function says where.
    """

    text: str
    outputs: tuple[list[_Step], ...]
    variables: tuple[str, ...]  # that occur, in the order x, y, z

    @property
    def inputs(self) -> int:
        """K: y without x is still a function of two coordinates."""
        return max((VARIABLES.index(name) + 1 for name in self.variables), default=1)

    def __call__(self, *coordinates: Array) -> Array:
        arrays = [np.asarray(coordinate, dtype=np.float64) for coordinate in coordinates]
        if len(arrays) < self.inputs:
            raise UserError(f"{self.text!r} is a function of {self.inputs} coordinates, got {len(arrays)}")
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        values = dict(zip(VARIABLES, arrays, strict=False))
        with np.errstate(all="ignore"):
            return np.stack(
                [np.broadcast_to(np.asarray(_run(steps, values), np.float64), shape) for steps in self.outputs]
            )


def parse(text: str) -> Expression:
    """The function a text stands for, or a `UserError` that says what is wrong at which character."""
    if len(text) > MAX_LENGTH:
        raise UserError(f"the expression has {len(text)} characters; at most {MAX_LENGTH} are read")
    parser = _Parser(text)
    outputs = [parser.output()]
    while parser.take(","):
        outputs.append(parser.output())
    if parser.token.kind != "end":
        parser.fail("expected an operator")
    return Expression(text, tuple(outputs), tuple(name for name in VARIABLES if name in parser.variables))


class _Parser:
    """Recursive descent, one method a rule of the grammar above; each appends its steps to `steps`."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.index, self.depth = text, _tokens(text), 0, 0
        self.variables: set[str] = set()
        self.steps: list[_Step] = []

    def output(self) -> list[_Step]:
        self.steps = []
        self.sum()
        return self.steps

    @property
    def token(self) -> _Token:
        return self.tokens[self.index]

    def take(self, *marks: str) -> str | None:
        """The next token's text if it is one of these marks, and go past it."""
        token = self.token
        if token.kind != "mark" or token.text not in marks:
            return None
        self.index += 1
        return token.text

    def fail(self, what: str) -> None:
        token = self.token
        found = "the end" if token.kind == "end" else f"{token.text!r}"
        raise UserError(f"{what} but found {found} at character {token.at} of the expression {self.text!r}")

    def sum(self) -> None:
        self.product()
        while mark := self.take("+", "-"):
            self.product()
            self.steps.append((2, _OPERATORS[mark]))

    def product(self) -> None:
        self.signed()
        while mark := self.take("*", "/", "%"):
            self.signed()
            self.steps.append((2, _OPERATORS[mark]))

    def signed(self) -> None:
        # Every way to nest passes through here: brackets, arguments, chains of signs and of powers.
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UserError(
                f"the expression is nested deeper than {MAX_DEPTH} at character {self.token.at}; write it flatter"
            )
        mark = self.take("+", "-")
        if mark is None:
            self.power()
        else:
            self.signed()
            if mark == "-":
                self.steps.append((1, np.negative))
        self.depth -= 1

    def power(self) -> None:
        self.atom()
        if self.take("^", "**"):
            self.signed()
            self.steps.append((2, np.power))

    def atom(self) -> None:
        token = self.token
        if token.kind == "number":
            self.index += 1
            self.steps.append(float(token.text))
        elif token.kind == "name":
            self.index += 1
            self.name(token)
        elif self.take("("):
            self.sum()
            self.close()
        else:
            self.fail("expected a number, a name or '('")

    def name(self, token: _Token) -> None:
        if token.text in VARIABLES:
            self.variables.add(token.text)
            self.steps.append(token.text)
        elif token.text in CONSTANTS:
            self.steps.append(CONSTANTS[token.text])
        elif token.text in FUNCTIONS:
            self.call(token, *FUNCTIONS[token.text])
        else:
            known = nearest(token.text, [*VARIABLES, *CONSTANTS, *FUNCTIONS])
            raise UserError(f"unknown name {token.text!r} at character {token.at} of the expression; {known}")

    def call(self, token: _Token, wanted: int, function: Callable[..., Array]) -> None:
        if not self.take("("):
            self.fail(f"expected '(' after the function {token.text!r}")
        self.sum()
        count = 1
        while self.take(","):
            self.sum()
            count += 1
        self.close()
        if count != wanted:
            raise UserError(
                f"{token.text!r} at character {token.at} of the expression takes {wanted} "
                f"argument{'s' * (wanted > 1)}, got {count}"
            )
        self.steps.append((wanted, function))

    def close(self) -> None:
        if not self.take(")"):
            self.fail("expected ')'")


def _tokens(text: str) -> list[_Token]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise UserError(f"cannot read {text[at]!r} at character {at + 1} of the expression {text!r}")
        tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup) + 1))
        at = match.end()
    return [*tokens, _Token("end", "", end + 1)]
