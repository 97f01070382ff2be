"""Nothing that stands in a file or in its name reaches a terminal as a command to it."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import bcnn
from bcnn.base.console import Console, visible
from bcnn.packed import card, packfile, shipped

ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b2J\r\x08\x7f"


def printed(*things: object) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200, force_terminal=False).print(*things)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [text], naïve 猫 🐈 👩‍🔬", "plain [text], naïve 猫 🐈 👩‍🔬"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb\x00", "a\\x0db\\x00"),
        ("exe\u202egnp.txt", "exe\\u202egnp.txt"),
        ("bytes\udcff", "bytes\\udcff"),
        ("\U000e0041", "\\U000e0041"),
        ("line\u2028end", "line\\u2028end"),
    ],
)
def test_visible_writes_out_what_a_terminal_would_obey(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


def test_every_control_character_is_written_out() -> None:
    for code in (*range(32), *range(127, 160)):
        if chr(code) not in "\n\t":
            assert visible(chr(code)).isascii()
            assert visible(chr(code)).isprintable()


def test_the_console_shows_no_escapes_wherever_they_come_in() -> None:
    table = Table(ESCAPES, title=ESCAPES)
    table.add_row(escape(ESCAPES))
    for text in (printed(ESCAPES), printed(table), printed(Text(ESCAPES))):
        assert not set(text) & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
        assert "\\x1b" in text


def test_the_console_keeps_its_own_colours() -> None:
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, color_system="standard", _environ={}).print("[red]a\x1b[0m[/red]")
    assert stream.getvalue().startswith("\x1b[31ma\\x1b")


def command(*words: object, folder: Path) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200", "TERM": "dumb"}
    words = tuple(map(str, words))
    return subprocess.run([sys.executable, "-m", "bcnn", *words], capture_output=True, cwd=folder, env=env, check=False)


def harmless(output: bytes) -> bool:
    return not any((byte < 32 and byte not in b"\n\t") or byte == 127 for byte in output)


def test_a_file_name_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    name = "\x1b[2Jphoto\udcff.png"  # with a byte that is no text
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "a.png").rename(tmp_path / name)
    (tmp_path / ("broken" + name)).write_text("no image")
    done = command("predict", ".", "--model", "digits", folder=tmp_path)
    assert done.returncode == 2
    assert harmless(done.stdout + done.stderr), done
    assert rb"\x1b[2Jphoto\udcff.png" in done.stdout
    assert b"cannot read image" in done.stderr
    done = command("predict", ".", "--model", "no\x1b[2J\nmodel.bcnn", folder=tmp_path)
    assert done.returncode == 2
    assert harmless(done.stdout + done.stderr), done
    assert done.stderr.count(b"\n") == 1


def test_a_card_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    program = packfile.read(shipped.find("digits"))
    found = card.of(program)
    assert found is not None
    hostile = dataclasses.replace(found, title=ESCAPES, limits=ESCAPES, data=ESCAPES, hardware=ESCAPES)
    provenance = {**program.provenance, "note": ESCAPES, card.KEY: hostile.plain()}
    bcnn.packed.packfile.save(dataclasses.replace(program, provenance=provenance), tmp_path / "a.bcnn")
    for more in ((), ("--all",)):
        done = command("info", "a.bcnn", *more, folder=tmp_path)
        assert done.returncode == 0, done
        assert harmless(done.stdout + done.stderr), done
    assert rb"\u001b[31mred" in done.stdout  # a card of unprintable text is none; the rest is shown as JSON
