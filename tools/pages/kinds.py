"""The table of verbs and kinds of MODEL -> docs/model.md, between its markers. For maintainers.

python -m tools.pages.kinds
"""

from __future__ import annotations

from pathlib import Path

from bcnn.models.verbs import HOW, VERBS, Kind

PAGE = Path(__file__).resolve().parents[2] / "docs" / "model.md"
MARKERS = "<!-- table -->\n", "<!-- /table -->\n"


def table() -> str:
    """The kinds, then a row for each verb."""
    kinds = [f"| {kind} | {HOW[kind]} |" for kind in Kind]
    rows = []
    for verb, row in VERBS.items():
        cells = [row.takes.get(kind, "-") for kind in Kind]
        first = "the trained network" if row.trained else "the architecture"
        rows.append(f"| `{verb}` | {first} | {' | '.join(cells)} | {'yes' if Kind.CODE in row.takes else 'no'} |")
    head = ("verb", "a bare name is", *Kind, "runs your code")
    lines = (
        "| kind | how it is given |",
        "|---|---|",
        *kinds,
        "",
        f"| {' | '.join(head)} |",
        "|---" * len(head) + "|",
        *rows,
    )
    return "\n".join(lines) + "\n"


def put_into(page: str) -> str:
    before, rest = page.split(MARKERS[0])
    return before + MARKERS[0] + table() + MARKERS[1] + rest.split(MARKERS[1])[1]


def main() -> None:
    PAGE.write_text(put_into(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
