"""What `bcnn eval` prints: scores, a row for each class with what it is most often taken for, JSON, thumbnails of mistakes."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from bcnn.base.files import replacing
from bcnn.base.progress import bars
from bcnn.cli.app import err, out
from bcnn.cli.tables import class_rows

if TYPE_CHECKING:
    from bcnn.verification.evaluation import Result


def show(
    model: str,
    data: str,
    split: str,
    strict: bool,
    only: tuple[str, ...],
    mistakes: Path | None,
    picture: Path | None,
    beside: str = "",
) -> None:
    """Measure and print; without a `picture`, as JSON. `beside` is another model, measured on the same images."""
    from bcnn.models.evaluate import measure
    from bcnn.verification import mistakes as thumbnails

    if mistakes is not None:
        thumbnails.check_folder(mistakes)
    results = {}
    with bars(err) as progress:
        for each in filter(None, (model, beside)):
            results[each] = measure(each, data, split, strict, progress, only)
    result = results[model]
    written = None if mistakes is None else thumbnails.write(result, mistakes)
    for note in result.notes:
        err.print(f"data: {escape(note)}", style="yellow", highlight=False, soft_wrap=True)
    if picture is None:
        more = {"beside": result.beside(results[beside])} if beside else {}
        print(json.dumps({**result.plain(), **more}, indent=2, allow_nan=False))
        return
    _print(result)
    if beside:
        _print_beside(model, result, beside, results[beside])
    if written is not None:
        out.print(f"{written} mistakes, the surest first: {escape(str(mistakes))}", highlight=False, soft_wrap=True)
    if find_spec("matplotlib") is None:  # an install for the engine alone
        err.print("no picture of the confusion matrix: that needs matplotlib", style="yellow", highlight=False)
        return
    from bcnn.training import plots

    with replacing(picture) as file:
        plots.confusion(result.scores.confusion, result.classes).savefig(file, dpi=110, format="png")
    out.print(f"confusion matrix: {escape(str(picture))}", highlight=False, soft_wrap=True)


def _print_beside(model: str, result: Result, beside: str, other: Result) -> None:
    found = result.beside(other)
    table = Table("model", "numbers", "top-1")
    for name, each in ((model, result), (beside, other)):
        table.add_row(escape(name), each.numbers, f"{each.scores.top1:.2%}")
    out.print(table)
    if found["same_first_choice"] is not None:
        out.print(f"The same first choice for {found['same_first_choice']:.2%} of the images.", highlight=False)
    if {result.numbers, other.numbers} == {"float32", "int16"}:
        out.print(
            "Less than all is normal: one flipped sign spreads, so the network bounds that share; a float network whose parameters "
            "change by a millionth disagrees with itself as well. Judge by top-1, and if that fell, by what bcnn convert says saturates.",
            highlight=False,
            soft_wrap=True,
        )


def _print(result: Result) -> None:
    scores, classes = result.scores, result.classes
    table = Table()
    for title in ("class", "images", "recognised", "most often taken for"):
        table.add_column(title, justify="right" if title in ("images", "recognised") else "left")
    partly = int((scores.confusion.sum(1) == 0).sum()) > 1  # some classes only
    for seen, cells in class_rows(classes, scores):
        if seen or not partly:
            table.add_row(*cells)
    out.print(table)
    out.print(
        f"top-1 {scores.top1:.2%}, top-5 {scores.top5:.2%} over {scores.count:,} images ({result.how})", highlight=False
    )
    if card := result.card:
        out.print(
            f"recorded in the file: top-1 {card.top1:.2%} over {card.images:,} images of {escape(card.data)} "
            f"({escape(card.engine)}, {escape(card.measured)})",
            highlight=False,
            soft_wrap=True,
        )
