"""CONTRIBUTING.md names only files that exist, and what it says about an op is true of MaxPool."""

from __future__ import annotations

import re

from paths import ROOT

from bcnn.program import ops

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
AN_OP = PAGE.split("**an op.**")[1].split("**an instruction set.**")[0]
FILES = re.findall(r"`((?:src|native|tests|tools)/[\w/.]+\.\w+)`", AN_OP.split("\nAnd its name")[0])


def test_every_file_of_an_op_exists() -> None:
    assert FILES
    assert [path for path in FILES if not (ROOT / path).is_file()] == []


def test_an_op_is_in_no_more_than_twelve_files() -> None:
    assert len(FILES) == len(set(FILES)) <= 12


def test_the_files_named_are_those_that_say_max_pool() -> None:
    """Where somebody uses it is no place of the op: features of pictures, and what torch calls its own."""
    users = {"src/bcnn/learning/features.py"}
    word = re.compile(r"\bMaxPool\b|\bMAX_POOL\b|\bmax_pool\(")
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src/bcnn", "native")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".js", ".c", ".h", ".cpp", ".inl") and path.name != "__init__.py"
        if word.search(path.read_text(encoding="utf-8").replace("nn.MaxPool", ""))
    }
    assert found - users - set(FILES) == set()
    assert ops.MaxPool.__module__.replace(".", "/") in " ".join(FILES)
