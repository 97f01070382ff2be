"""What `bcnn eval` prints: scores, a row for each class with what it is most often taken for, JSON, thumbnails of mistakes."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from bcnn.cli.app import err, out

if TYPE_CHECKING:
    from bcnn.deploy.measure import Result


def show(
    model: str, data: str, split: str, strict: bool, only: tuple[str, ...], mistakes: Path | None, picture: Path | None
) -> None:
    """Measure and print; without a `picture`, as JSON."""
    from bcnn.deploy import measure
    from bcnn.deploy import mistakes as thumbnails

    if mistakes is not None:
        thumbnails.check_folder(mistakes)
    with Progress(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("measuring", total=None)
        result = measure.measure(
            model, data, split, strict, lambda count, total: bar.update(task, advance=count, total=total), only
        )
    written = None if mistakes is None else thumbnails.write(result, mistakes)
    for note in result.notes:
        err.print(f"data: {escape(note)}", style="yellow", highlight=False, soft_wrap=True)
    if picture is None:
        print(json.dumps(_data(result), indent=2, allow_nan=False))
        return
    _print(result)
    if written is not None:
        out.print(f"{written} mistakes, the surest first: {escape(str(mistakes))}", highlight=False, soft_wrap=True)
    if find_spec("matplotlib") is None:  # an install for the engine alone
        err.print("no picture of the confusion matrix: that needs matplotlib", style="yellow", highlight=False)
        return
    from bcnn.train import plots

    plots.confusion(result.scores.confusion, result.classes).savefig(picture, dpi=110)
    out.print(f"confusion matrix: {escape(str(picture))}", highlight=False, soft_wrap=True)


def _data(result: Result) -> dict[str, Any]:
    scores = result.scores
    return {
        "images": scores.count,
        "top1": scores.top1,
        "top5": scores.top5,
        "loss": scores.loss,
        "how": result.how,
        "classes": list(result.classes),
        "per_class": scores.per_class(),
        "confusion": scores.confusion.tolist(),  # [true][said]
        "mistakes": [
            {
                "image": str(answer.image),
                "class": result.classes[answer.truth],
                "said": result.classes[answer.said],
                "probability": answer.probability,
            }
            for answer in sorted(result.answers, key=lambda answer: -answer.probability)
            if answer.said != answer.truth
        ],
        "recorded_top1": result.card.top1 if result.card else None,
        "notes": list(result.notes),
    }


def _print(result: Result) -> None:
    scores, classes = result.scores, result.classes
    table = Table()
    for title in ("class", "images", "recognised", "most often taken for"):
        table.add_column(title, justify="right" if title in ("images", "recognised") else "left")
    partly = int((scores.confusion.sum(1) == 0).sum()) > 1  # some classes only
    for index, (name, row, share) in enumerate(zip(classes, scores.confusion, scores.per_class(), strict=True)):
        if share is None and partly:
            continue
        wrong = row.copy()
        wrong[index] = 0
        other = f"{classes[int(wrong.argmax())]} ({wrong.max()})" if wrong.any() else ""
        table.add_row(escape(name), str(row.sum()), "-" if share is None else f"{share:.1%}", escape(other))
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
