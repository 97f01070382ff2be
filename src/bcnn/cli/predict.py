"""`bcnn predict`: what is on a photo. No torch, unless the model is a run that was not packed."""

from __future__ import annotations

import csv
import json
import math
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from bcnn.base.errors import UserError
from bcnn.cli.app import app, err, out, say
from bcnn.cli.options import taken
from bcnn.cli.tables import answer_table
from bcnn.packed.shipped import DEFAULT

NAMED = 3  # skipped files


@app.command()
def predict(
    photos: Annotated[
        list[str],
        typer.Argument(
            help="Images, folders of images, patterns such as 'photos/*.jpg', or - for one image from stdin."
        ),
    ],
    model: Annotated[str, typer.Option("--model", "-m", help=taken("predict"))] = DEFAULT,
    top: Annotated[int, typer.Option(min=1, help="How many labels to show for an image.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma separated values, a line for each label.")] = False,
) -> None:
    """Say what is on a photo. An image without an answer is reported, the others are predicted; exit code 2 tells.

    \b
    Examples:
      bcnn predict photo.jpg                    ten classes of photos: bcnn models
      bcnn predict digit.png --model digits
      bcnn predict 'photos/**/*.jpg' -m model.bcnn --top 1 --csv > answers.csv
      bcnn predict - -m runs/photos --json < photo.jpg
    """
    from rich.progress import track

    from bcnn.engine import Engine
    from bcnn.models.load import is_trained, program
    from bcnn.models.resolve import resolve

    if as_json and as_csv:
        raise UserError("choose one output format: --json or --csv")
    files, skipped = _chosen(photos)
    found = resolve(model, "predict")
    with err.status("Lowering the network ...") if is_trained(found) else nullcontext():
        engine = Engine(program(found))
    rejects, labels = engine.program.rejects, engine.program.labels
    answers: list[dict[str, Any]] = []
    unread = 0
    for file in track(files, "Predicting", console=err, transient=True, disable=len(files) < 50):
        try:
            photo = _stdin() if file == "-" else file
            pixels = engine.fit(photo)
        except UserError as error:
            unread += 1
            err.print(f"bcnn: {escape(str(error))}", highlight=False, soft_wrap=True)
            continue
        likeliest = engine.predict(pixels, top)[0]
        if not all(math.isfinite(value) for _, value in likeliest):
            unread += 1
            sentence = f"{file}: the logits of {model} are too large to be numbers; train or pack it again"
            err.print(f"bcnn: {escape(sentence)}", highlight=False, soft_wrap=True)
            continue
        none = {"none": likeliest[0][0] == labels[-1]} if rejects else {}
        best = [{"label": label, "probability": value} for label, value in likeliest]
        answers.append({"image": str(file), **none, "predictions": best})
    if as_json:
        print(json.dumps(answers, indent=2, allow_nan=False))
    elif as_csv:
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerow(("image", "rank", "label", "probability"))
        for answer in answers:
            for rank, best_one in enumerate(answer["predictions"], 1):
                lines.writerow((answer["image"], rank, best_one["label"], f"{best_one['probability']:.6f}"))
    elif answers:
        out.print(answer_table(answers, engine.program))
        if model == DEFAULT:  # perhaps not chosen, so say what it can answer at all
            known = f"{model} knows {len(labels)} classes and nothing else: {', '.join(labels)}"
            err.print(escape(known), style="dim", highlight=False, soft_wrap=True)
    if skipped:
        named = ", ".join(str(file) for file in skipped[:NAMED]) + (", ..." if len(skipped) > NAMED else "")
        say(
            (
                f"{len(skipped)} file{'s' if len(skipped) > 1 else ''} skipped that {'are' if len(skipped) > 1 else 'is'} no image by name: {named}",
            )
        )
    if unread and len(files) > 1:
        say((f"{unread} of {len(files)} images have no answer, named above",))
    raise typer.Exit(2 if unread else 0)


def _stdin() -> bytes:
    if sys.stdin is None:
        raise UserError("there is no stdin to read an image from: it is closed")
    return sys.stdin.buffer.read()


def _chosen(photos: list[str]) -> tuple[list[str | Path], list[Path]]:
    from bcnn.base import images

    files: list[str | Path] = []
    skipped: list[Path] = []
    for photo in photos:
        if photo == "-":
            files.append("-")
            continue
        found, others = images.chosen(photo)
        files += found
        skipped += others
    if files.count("-") > 1:
        raise UserError("- stands for one image from stdin; give it once")
    return files, skipped
