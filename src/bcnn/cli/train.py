"""`bcnn train` and `bcnn eval`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from bcnn.base.errors import UserError
from bcnn.cli.app import app, check_picture, err, out
from bcnn.cli.options import SizeOption

if TYPE_CHECKING:
    from bcnn.training.config import TrainConfig
    from bcnn.training.run import TrainingRun


@app.command()
def train(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="With --resume: the folder of the run.", show_default=False)
    ] = "",
    recipe: Annotated[
        str,
        typer.Option(
            help="A named run: digits, cifar10, tinyimagenet, imagenette, imagenet, imagenet-p2.",
            show_default="digits, or with --network the one for images of its size",
        ),
    ] = "",
    network: Annotated[
        str, typer.Option(help="Train this registered network, or config file, instead of the recipe's own.")
    ] = "",
    data: Annotated[str, typer.Option(help="Image folder with train/CLASS/*.jpg, CIFAR batches, or 'digits'.")] = "",
    init: Annotated[
        str,
        typer.Option(
            help="Start from a trained network: a shipped model, a .bcnn file, a run or a checkpoint. With --minutes 'none' starts from scratch."
        ),
    ] = "",
    minutes: Annotated[
        float, typer.Option(min=0, help="Choose start, image size, epochs and rate for this time, and keep to it.")
    ] = 0,
    epochs: Annotated[
        str, typer.Option(help="Epochs of all steps together, each scaled alike. With --resume: +10 for ten more.")
    ] = "",
    size: SizeOption = "",
    folder: Annotated[str, typer.Option("--out", help="Run folder; runs/NAME if not given.")] = "",
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Change any field: --set steps.step2.lr=1e-3. May be repeated.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run RUN with its own settings.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the settings and the exact schedule, train nothing.")
    ] = False,
    strict_data: Annotated[bool, typer.Option("--strict-data", help="Stop at the first unreadable image.")] = False,
    stop_after: Annotated[int, typer.Option(min=0, help="Save and stop after so many updates, as Ctrl-C would.")] = 0,
    trust: Annotated[
        bool, typer.Option("--trust", help="Load a teacher's .pt2, which can run any code that is in it.")
    ] = False,
) -> None:
    """Train a network with the paper's two steps, and leave a documented, resumable run behind.

    docs/training.md explains the settings and the columns of the table.

    \b
    Examples:
      bcnn train --data photos --minutes 20
      bcnn train --data photos --init imagenette --epochs 10
      bcnn train --recipe imagenette --data photos --set 'steps.*.lr=1e-3'
      bcnn train --network birealnet-20-cifar --data cifar --set network.width=0.5
      bcnn train --resume runs/photos
      bcnn train --resume runs/photos --epochs +10
      bcnn train --recipe imagenet --dry-run
      torchrun --nproc-per-node 4 -m bcnn train --recipe imagenet --data imagenet
    """
    from time import monotonic

    from bcnn.training.run import TrainingRun
    from bcnn.training.run_folder import RunFolder, free_folder

    began = monotonic()
    if run and not resume:
        raise UserError(
            f"what is {run!r} for? A run to continue is --resume {run}, images to train on are --data {run}"
        )
    folder = folder or run
    if resume:
        if assignments or data or strict_data or recipe or network or init or minutes or size:
            raise UserError(
                "--resume continues with the run's own settings: leave out --recipe, --network, --init, --minutes, --size, "
                "--set, --data and --strict-data"
            )
        if not folder:
            raise UserError("--resume needs the run's folder: --resume RUN")
        if run and folder != run:
            raise UserError(f"which run is to be resumed, {run} or {folder}?")
        if epochs and not epochs.startswith("+"):
            raise UserError(f"--resume goes on with the run's own epochs; for more of them say --epochs +{epochs}")
        asked = TrainingRun.resumed(folder, _whole(epochs[1:]) if epochs else 0)
    else:
        from bcnn.cli.options import parse_size
        from bcnn.models.resolve import resolve
        from bcnn.training.choose import Wanted, choose

        if network:
            resolve(network, "train --network")
        if init and init != "none":
            resolve(init, "train --init")
        wanted = Wanted(
            data=data,
            recipe=recipe,
            network=network,
            init=init,
            size=parse_size(size) if size else None,
            epochs=_whole(epochs) if epochs else 0,
            minutes=minutes,
            strict=strict_data,
            settings=tuple(assignments or ()),
        )
        choice = choose(wanted, began)
        for line in choice.lines:
            err.print(escape(line), style="dim" if not minutes else None, highlight=False, soft_wrap=True)
        target = Path(folder) if folder or dry_run else free_folder(_name(choice.config, data, bool(network)))
        asked = TrainingRun(choice.config, RunFolder(target), choice.source)
    if dry_run:
        print_schedule(asked.config)
        return
    _train(dataclasses.replace(asked, stop_after=stop_after, trust=trust, began=began))


def _train(run: TrainingRun) -> None:
    """Train, and say what there is now; a run that was stopped has said itself how to go on."""
    from bcnn.training.interrupt import Stopped
    from bcnn.training.run_training import train as start

    try:
        info = start(run)
    except Stopped as stopped:
        sys.exit(128 + stopped.signal_number if stopped.signal_number else 0)
    if not info:  # another process has the folder
        return
    for step, accuracy in info["accuracy"].items():
        out.print(f"{step}: {accuracy:.2%} top-1")
    page = escape(str(run.folder.path / "report.html"))
    out.print(f"{page} has the curves, the classes and the mistakes", highlight=False, soft_wrap=True)
    packed, minutes = run.folder.packed, run.config.minutes
    if packed.is_file():
        spent = f"; {(run.clock() - run.began) / 60:.1f} of {minutes:g} minutes" if minutes and not run.resume else ""
        out.print(
            f"packed: {escape(str(packed))}, {packed.stat().st_size:,} bytes{spent}", highlight=False, soft_wrap=True
        )
        then = f"bcnn predict PHOTO --model {escape(str(packed))}"
    else:
        then = f"bcnn pack {escape(str(run.folder.path))}"
    out.print(f"next: {then}", highlight=False, soft_wrap=True)


def _whole(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 20:
        raise UserError(f"--epochs {text}: give a whole number above 0, or +N with --resume")
    return int(text)


def _name(config: TrainConfig, data: str, network: bool) -> str:
    """Of the run's folder: of a run that is about somebody's images, theirs, as they call them: what a link leads to they need not know."""
    if config.recipe == "tune" or config.minutes:
        named = Path(data).name
        return (named if named not in ("", "..") else Path(data).resolve().name) or config.recipe
    return config.network.name if network else config.recipe


def print_schedule(config: TrainConfig) -> None:
    """The settings, and the learning rate at every epoch boundary of every step."""
    import json

    from rich.table import Table

    from bcnn.training import schedule, settings

    plain = settings.to_dict(config)
    plain.pop("steps")
    out.print_json(json.dumps(plain))
    for step in config.steps:
        out.print(f"{step.name}: {step.weights} weights, {step.warmup} + {step.epochs} epochs", style="italic")
        table = Table()
        table.add_column("epoch", justify="right")
        table.add_column("learning rate", justify="right")
        for epoch, rate in schedule.boundaries(step):
            table.add_row(str(epoch), f"{rate:.6e}")
        out.print(table)
        fields = dataclasses.asdict(step)
        out.print(", ".join(f"{key} {value}" for key, value in fields.items()), highlight=False, soft_wrap=True)


@app.command(name="eval")
def evaluate(
    model: Annotated[str, typer.Argument(help="A shipped model, a packed file, a run folder or a checkpoint.")],
    data: Annotated[str, typer.Option(help="The data set, as for train; a network of the digits needs none.")] = "",
    split: Annotated[
        str, typer.Option(help="val, test or train folder to measure on; the usual one if not given.")
    ] = "",
    picture: Annotated[Path, typer.Option(help="Where the confusion matrix goes.")] = Path("confusion.png"),
    classes: Annotated[str, typer.Option(help="Measure on images of these only: 'cat,dog'.")] = "",
    mistakes: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write thumbnails of the mistakes there, the surest first.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON: all scores and the confusion matrix; no picture.")
    ] = False,
    beside: Annotated[
        str,
        typer.Option(
            metavar="MODEL", help="Another model on the same images, such as the float file of an integer one."
        ),
    ] = "",
    strict_data: Annotated[bool, typer.Option("--strict-data", help="Stop at the first unreadable image.")] = False,
) -> None:
    """Measure a trained network: top-1, top-5, accuracy per class, confusion matrix. A packed file needs no torch.

    \b
    Examples:
      bcnn eval imagenette --data PATH     the shipped model, on the data set's own split
      bcnn eval runs/digits --data digits
      bcnn eval photos.bcnn --data 'my photos' --split test --mistakes wrong
      bcnn eval photos.bcnn --data photos --classes 'cat,dog' --json
      bcnn eval small.bcnn --beside photos.bcnn --data photos
    """
    from bcnn.cli.evaluation import show

    check_picture(picture, (".png",))
    only = tuple(name.strip() for name in classes.split(",") if name.strip())
    show(model, data, split, strict_data, only, mistakes, None if as_json else picture, beside)
