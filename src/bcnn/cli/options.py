"""Options that several verbs have, and what their texts mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bcnn.base.errors import UserError
from bcnn.base.files import check_plain
from bcnn.models.verbs import VERBS

if TYPE_CHECKING:
    from bcnn.models.networks import Given

# What a network reads, where it does not say so itself.
SizeOption = Annotated[str, typer.Option(help="Of the image: 32, or height x width as in 180x240.")]
MeanOption = Annotated[
    str, typer.Option(help="Of red, green, blue in 0 ... 1, as in 0.5,0.5,0.5. Default: ImageNet's.")
]
StdOption = Annotated[str, typer.Option(help="Deviation of red, green, blue. Default: ImageNet's.")]
LabelsOption = Annotated[str, typer.Option(help="A text file with a class a line, or cat,dog.")]


def taken(verb: str) -> str:
    """The kinds of MODEL that a verb takes, for its help."""
    text = VERBS[verb].taken()
    return f"{text[0].upper()}{text[1:]}."


def given(size: str = "", mean: str = "", std: str = "", labels: str = "") -> Given:
    """What the user says of a network; an empty text is an option that was not given."""
    from bcnn.models.networks import Given

    return Given(
        parse_size(size) if size else None,
        _three(mean, "--mean") if mean else None,
        _three(std, "--std") if std else None,
        parse_labels(labels) if labels else None,
    )


def parse_size(text: str) -> tuple[int, int]:
    """32 or 180x240, height first."""
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() and 0 < int(side) < 1 << 16 for side in sides):
        raise UserError(f"--size {text}: give one number, or height x width such as 180x240")
    return int(sides[0]), int(sides[-1])


def _three(text: str, option: str) -> tuple[float, float, float]:
    try:
        values: Sequence[float] = [float(part) for part in text.split(",")]
    except ValueError:
        values = ()
    if len(values) not in (1, 3):
        raise UserError(f"{option} {text}: give three numbers for red, green and blue, such as 0.5,0.5,0.5, or one")
    return (values[0], values[len(values) // 2], values[-1])


def parse_labels(text: str) -> tuple[str, ...]:
    """A file with a label a line, or the labels themselves between commas."""
    path = Path(text)
    if "," not in text:
        try:
            check_plain(path)
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError):
            raise UserError(
                f"--labels {text}: give a text file with a label a line, or labels between commas"
            ) from None
        return tuple(line.strip() for line in lines if line.strip())
    return tuple(label.strip() for label in text.split(","))
