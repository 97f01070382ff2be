"""Dataclasses become plain data and come back equal; what does not fit is a sentence that names the place."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from bcnn.base.dataclass_io import build, to_plain
from bcnn.base.errors import UserError


@dataclass(frozen=True)
class Inner:
    size: tuple[int, int] = (1, 2)
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    name: str
    share: float = 0.5
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    table: dict[str, float] = field(default_factory=dict)
    rows: list[list[int]] = field(default_factory=list)
    on: bool = False
    anything: Any = None


FULL = Outer("x", 1.0, Inner((3, 4), "b"), (Inner(), Inner((5, 6))), {"a": 1.5}, [[1], []], True, {"k": [None, "é"]})


def test_plain_data_is_json_and_comes_back_equal():
    assert build(Outer, json.loads(json.dumps(to_plain(FULL)))) == FULL


def test_what_is_left_out_takes_its_default():
    assert build(Outer, {"name": "x", "inner": {"kind": "b"}}) == Outer("x", inner=Inner(kind="b"))


def test_a_whole_number_is_a_number():
    assert build(Outer, {"name": "x", "share": 1, "table": {"a": 2}}).table == {"a": 2.0}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], r"config must be a table of keys and values, got \[\]"),
        ({}, "config lacks 'name'"),
        ({"name": "x", "shore": 1}, "config: unknown key 'shore'; did you mean 'share'"),
        ({"name": 1}, "name must be text, got 1"),
        ({"name": "x", "share": "much"}, "share must be a number, got 'much'"),
        ({"name": "x", "share": True}, "share must be a number"),
        ({"name": "x", "share": 10**400}, "share must be a number"),
        ({"name": "x", "on": 1}, "on must be true or false, got 1"),
        ({"name": "x", "inner": 3}, "inner must be a table"),
        ({"name": "x", "inner": {"size": [1]}}, r"inner.size must be a list of 2, got \[1\]"),
        ({"name": "x", "inner": {"size": [1, 2.5]}}, "inner.size.1 must be a whole number, got 2.5"),
        ({"name": "x", "inner": {"kind": "c"}}, "inner.kind must be one of a, b, got 'c'"),
        ({"name": "x", "many": [{}, {"kind": 0}]}, "many.1.kind must be one of a, b"),
        ({"name": "x", "many": {}}, "many must be a list"),
        ({"name": "x", "table": {"a": "b"}}, "table.a must be a number"),
        ({"name": "x", "rows": [[1], 2]}, "rows.1 must be a list, got 2"),
        ({"name": "x", "rows": [[True]]}, "rows.0.0 must be a whole number"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(data, sentence):
    with pytest.raises(UserError, match=sentence):
        build(Outer, data)


def test_errors_are_short_and_printable_whatever_the_value():
    with pytest.raises(UserError) as raised:
        build(Outer, {"name": ["\x1b[2J" * 1000]})
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


def test_a_reader_stands_for_a_type():
    def read(data: Any, where: str) -> Inner:
        if data != "large":
            raise UserError(f"{where}: only large is known")
        return Inner((9, 9))

    assert build(Outer, {"name": "x", "many": ["large"]}, readers={Inner: read}).many == (Inner((9, 9)),)
    with pytest.raises(UserError, match=r"many\.0: only large"):
        build(Outer, {"name": "x", "many": ["small"]}, readers={Inner: read})
