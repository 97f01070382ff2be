"""The whole walk of `bcnn quickstart` with the smallest network, and the page it leaves."""

from __future__ import annotations

import html.parser
import re

import numpy as np
import pytest
import tiny_runs
from typer.testing import CliRunner

from bcnn.cli import quickstart  # noqa: F401  (adds its verb)
from bcnn.cli.app import app
from bcnn.models.quickstart import Sample
from bcnn.models.quickstart_page import shown


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickstart") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcnn.training.recipes.recipe", lambda name: tiny_runs.config())
        patch.setattr("bcnn.training.report.write", lambda folder: None)  # pictures have a test of their own
        patch.setattr("bcnn.models.quickstart.ROUNDS", 2)
        result = CliRunner().invoke(app, ["quickstart", "--out", str(folder)], catch_exceptions=False)
    assert "Content-Security-Policy" in (folder / "digits.html").read_text(encoding="utf-8")  # what the page links to
    return result, (folder / "index.html").read_text(encoding="utf-8")


def test_the_walk_prints_every_stage_and_names_the_page(walk):
    result, _ = walk
    assert result.exit_code == 0
    assert re.findall(r"─ (\d)\. ", result.stdout) == list("12345678")
    assert "index.html in a browser" in result.stdout


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.addresses = [], []

    def handle_starttag(self, tag, attributes):
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_nobody_for_anything(walk):
    _, page = walk
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert len(reader.addresses) >= 12  # curves, approximator, ten digits
    assert reader.addresses[0] == "digits.html"
    assert all(
        address.startswith(("data:image/png;base64,", "data:image/jpeg;base64,")) for address in reader.addresses[1:]
    )
    assert not re.search(r"https?://|@import|url\(|<script", page)


def test_the_page_and_the_terminal_say_the_same(walk):
    result, page = walk
    right, total = re.search(r"(\d+) of (\d+) test images right", result.stdout).groups()
    assert f"<b>{int(right) / int(total):.2%}</b>of {total} test images right" in page
    binary, macs = re.search(r"([\d,]+) binary and .*\n([\d,]+) binary", result.stdout).groups()
    assert re.search(rf"<td>total</td><td></td><td>{binary}</td><td>[\d,]+</td><td>{macs}</td>", page)
    fast, slow = (float(x) for x in re.search(r"engine (\S+) .* torch (\S+) ", result.stdout).groups())
    shown_slow, shown_fast = (float(x) for x in re.findall(r"</span><span>(\S+) ms</span></div>", page))
    # The terminal prints thousandths, the page three digits.
    assert shown_fast == pytest.approx(fast, rel=1e-2, abs=1e-3)
    assert shown_slow == pytest.approx(slow, rel=1e-2, abs=1e-3)


def test_shown_are_the_first_of_each_class_then_the_misses_each_once():
    pixels = np.zeros((8, 8, 3), np.uint8)
    answers = [("b", "b"), ("a", "b"), ("a", "a"), ("b", "a"), ("b", "b")]  # what it is, what is said
    made = [Sample(pixels, label, [(says, 0.9)]) for label, says in answers]
    assert [made.index(sample) for sample in shown(made)] == [1, 0, 3]
    assert [made.index(sample) for sample in shown(made, misses=0)] == [1, 0]
