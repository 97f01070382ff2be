"""What pages that a program writes are made of: results, tables, and a part between two markers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def put_between(page: str, begin: str, made: str, end: str) -> str:
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"the page has lost its markers {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{made}{end}{after}"


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def table(header: str, lines: list[tuple[str, ...]], words: int = 1) -> str:
    names = header.split(" | ")
    rule = ["---" if index < words else "---:" for index in range(len(names))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [tuple(names), tuple(rule), *lines]) + "\n"
