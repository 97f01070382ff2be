"""docs/paper_map.md names only symbols that exist, and lists every reading of the code."""

from __future__ import annotations

import importlib
import re

import pytest
from paths import ROOT

MAP = (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "src" / "bcnn").rglob("*.py"))}
SYMBOLS = sorted(set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", MAP)))


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_symbol_exists(symbol: str) -> None:
    parts = symbol.split(".")
    depth = 2 if (ROOT / "src" / "bcnn" / parts[0]).is_dir() else 1
    found: object = importlib.import_module("bcnn." + ".".join(parts[:depth]))
    for part in parts[depth:]:
        fields = getattr(found, "__dataclass_fields__", {})
        assert hasattr(found, part) or part in fields, symbol
        found = getattr(found, part, None)


def test_every_section_equation_figure_and_table_is_in_the_map() -> None:
    sections = [
        "1",
        "2.1",
        "2.2",
        "2.3",
        "2.4",
        "2.5",
        "2.6",
        "3.1",
        "3.2",
        "4.1",
        "4.2",
        "4.2.1",
        "4.2.2",
        "4.2.3",
        "4.2.4",
        "5",
        "5.1",
        "5.2",
        "5.3",
    ]
    numbered = (
        [f"Eq. {n}" for n in range(1, 5)] + [f"Fig. {n}" for n in range(1, 6)] + [f"Table {n}" for n in range(1, 6)]
    )
    for name in [*sections, "6.1", "6.2", "6.3", "7", *numbered]:
        assert re.search(rf"^\| {re.escape(name)}( top)? \|", MAP, re.M), name


def test_every_reading_of_a_module_is_listed() -> None:
    """As many rows for a module as it has readings: a new one must be written down here too."""
    rows = re.findall(r"^\| `(.+?)`", MAP.partition("## Readings")[2], re.M)
    for path, text in SOURCES.items():
        module = ".".join(path.relative_to(ROOT / "src" / "bcnn").with_suffix("").parts)
        listed = [row for row in rows if row.rpartition(".")[0] == module or row.startswith(f"{module}.")]
        assert len(listed) == text.count("Reading:"), (
            f"{module}: {text.count('Reading:')} readings, {listed} in the map"
        )
