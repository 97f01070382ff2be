"""The classes of ops -> the lists in docs/file_format.md, between its markers. For maintainers.

    python -m tools.pages.file_format

Fields, comments and meaning are those of the classes themselves, so that the page cannot tell of other ones. A test compares.
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

from bcnn.program import ops

PARTS = (ops.Branch, ops.FixedBranch, ops.Window)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "file_format.md"


def lists() -> dict[str, list[tuple[str, type[ops.Part]]]]:
    """By marker, in the order of the alphabet."""
    kinds = {"ops": ops.Op.KINDS, "endings": ops.Ending.KINDS, "parts": {cls.__name__: cls for cls in PARTS}}
    return {marker: [(name, known[name]) for name in sorted(known)] for marker, known in kinds.items()}


def section(kind: str, cls: type[ops.Part]) -> str:
    lines = [line[4:] for line in inspect.getsource(cls).splitlines()]
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    fields = [next(line for line in lines if line.startswith(f"{name}: ")).replace(" = field()", "") for name in names]
    meaning = inspect.getdoc(cls) or "" if (cls.__doc__ or "").split("(")[0] != cls.__name__ else ""
    listing = "\n".join(f"    {line}" for line in fields)
    return "\n\n".join(part for part in (f"### {kind}", meaning, listing) if part)


def put_into(page: str) -> str:
    for marker, classes in lists().items():
        before, rest = page.split(f"<!-- {marker} -->\n")
        after = rest.split(f"<!-- /{marker} -->\n")[1]
        text = "\n\n".join(section(*each) for each in classes)
        page = f"{before}<!-- {marker} -->\n{text}\n<!-- /{marker} -->\n{after}"
    return page


def main() -> None:
    PAGE.write_text(put_into(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
