"""What a person sees on a terminal, made harmless: names and cards come from files, and a file can hold anything.

A terminal obeys control characters: an escape sequence in a file's name can rewrite what was printed before it, and marks
of writing direction can show a name other than it is. `visible` writes them out (\\x1b), `Console` does so for all it prints.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from rich import console
from rich.segment import Segment
from rich.text import Text

# Control characters, formats such as writing direction, halves of surrogate pairs (bytes of a file name that are no text),
# characters for private use, line and paragraph separators.
HARMFUL = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
HARMLESS = frozenset("\n\t\u200d")  # the last one joins emoji


def visible(text: str) -> str:
    """The text with every character that a terminal would obey, or could not print, written out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if _shown(character) else _written_out(character) for character in text)


def _shown(character: str) -> bool:
    return character in HARMLESS or unicodedata.category(character) not in HARMFUL


def _written_out(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode() if character > "\x7f" else f"\\x{ord(character):02x}"


class Console(console.Console):
    """Rich's console; what it is given to print, however it is wrapped in tables and styles, passes `visible`."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Text of cells and sentences: before it is measured, so that columns are as wide as what is shown."""
        return super().render_str(visible(text), **how)

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            # Segments of control are rich's own: they move the cursor of a progress bar.
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
