"""Verbs from a checkpoint to a label: `pack`, `info`, `verify`, `predict`. Only `pack` and `verify --checkpoint` need torch."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from bcnn.cli.app import LabelsOption, MeanOption, SizeOption, StdOption, app, err, out, say
from bcnn.deploy.shipped import DEFAULT
from bcnn.errors import UserError

if TYPE_CHECKING:
    from bcnn.deploy.card import Card
    from bcnn.deploy.packfile import Sizes
    from bcnn.nets.find import Found
    from bcnn.program.program import Program

# All that the engine's source has; a build holds those of its processor family.
ISAS = ("avx512", "avx2", "neon", "scalar")


@app.command()
def pack(
    network: Annotated[
        str,
        typer.Argument(
            metavar="RUN|FILE.py:FUNCTION|NAME",
            help="The folder of a run, a checkpoint, a function without arguments that returns your torch module, "
            "or a registered network.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The packed file to write.")] = Path("model.bcnn"),
    size: SizeOption = "",
    mean: MeanOption = "",
    std: StdOption = "",
    labels: LabelsOption = "",
    numbers: Annotated[str, typer.Option(help="float32, or int16 for a program in integers.")] = "float32",
    parameters: Annotated[str, typer.Option(help="Real parameters of a program in integers: int16 or int8.")] = "int16",
    data: Annotated[Path | None, typer.Option(help="With --numbers int16: a folder of images to calibrate on.")] = None,
    best: Annotated[
        bool,
        typer.Option("--best", help="Of a run: its best epoch instead of its last. Chosen by the evaluation images."),
    ] = False,
) -> None:
    """Turn a network into a packed file: one bit a binary weight, everything folded, complete for the engine.

    A trained run brings all that is needed. For a network of your own, written in plain PyTorch, say what it reads: the size of its
    images, mean and deviation that they are normalised with, and the names of its classes.

    \b
    Examples:
      bcnn pack runs/cifar10 -o cifar10.bcnn
      bcnn pack runs/cifar10 --best -o cifar10.bcnn
      bcnn pack mine.py:make -o mine.bcnn --size 32 --mean 0.5 --std 0.5 --labels names.txt
      bcnn pack mine.py:make --size 180x240 --labels cat,dog
      bcnn pack runs/cifar10 -o small.bcnn --numbers int16 --parameters int8 --data photos/train
    """
    from bcnn.deploy.convert import NUMBERS
    from bcnn.nets import find

    if numbers not in NUMBERS:
        raise UserError(f"--numbers {numbers}: give {' or '.join(NUMBERS)}")

    if output.exists() and Path(network).exists() and output.samefile(network):
        raise UserError(f"{output} is the checkpoint itself; give another file with -o")
    if best:
        from bcnn.train.checkpoint import best_of

        network = str(best_of(network))
    with err.status("Lowering and packing ..."):
        if find.is_trained(network):
            from bcnn.train.checkpoint import described

            say([f"packing {described(network)}"])
        found = find.find(network, find.given(size, mean, std, labels))
        say(found.notes)
        if numbers == "float32":
            sizes = find.pack_found(found, output)
    if numbers == "int16":
        sizes = _pack_integers(found, output, parameters, data)
    out.print(size_table(sizes))
    if not sizes.binary_weights:
        err.print("No layer of this network is binary: it was trained with real weights, and runs with them.")
    out.print(
        f"Wrote {escape(str(output))}. Next: bcnn verify {escape(str(output))} --checkpoint {escape(network)}",
        soft_wrap=True,  # a command to copy
    )


def _pack_integers(found: Found, output: Path, parameters: str, data: Path | None) -> Sizes:
    from bcnn.cli.convert import calibrating, report
    from bcnn.deploy.convert import in_integers
    from bcnn.nets.find import pack_found

    def convert(program: Program) -> Program:
        with calibrating() as progress:
            made = in_integers(program, parameters, data, progress)
        report(made)
        return made.program

    return pack_found(found, output, convert)


@app.command()
def info(
    model: Annotated[
        str | None,
        typer.Argument(help="A shipped model or a packed file. Without one: this machine's instruction sets."),
    ] = None,
) -> None:
    """Show what a packed file holds, to the byte; or which instruction sets the engine has here.

    \b
    Examples:
      bcnn info                instruction sets of this machine
      bcnn info imagenette
      bcnn info model.bcnn
    """
    if model is None:
        out.print(_isa_table())
        return
    from bcnn.deploy import card, shipped
    from bcnn.deploy.packfile import open_packed

    packed = open_packed(shipped.find(model))
    out.print(_op_table(packed.program))
    out.print(size_table(packed.sizes))
    labels = packed.program.labels
    if labels:
        out.print(f"Classes: {len(labels)} ({escape(', '.join(labels[:5]))}{', ...' if len(labels) > 5 else ''})")
    provenance = packed.program.provenance
    if found := card.of(packed.program):
        out.print(_card_text(found), highlight=False)
        provenance = {key: value for key, value in provenance.items() if key != card.KEY}
    out.print("Provenance:", escape(json.dumps(provenance, indent=2)))
    out.print(f"Hashes: all {len(packed.hashes)} are right. Test vectors: {len(packed.test_seeds)}.")


@app.command()
def verify(
    model: Annotated[str, typer.Argument(help="A shipped model or a packed file.")],
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="RUN|FILE.py:FUNCTION", help="What it was packed from, as for pack: compare with torch, too."
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="A folder of images: compare first choices over it.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Use at most so many images of --data, evenly spread.")] = 1000,
) -> None:
    """Prove that what was trained is what runs. Exit code 0 if every check passes, 1 if one fails.

    \b
    Examples:
      bcnn verify imagenette
      bcnn verify model.bcnn --checkpoint runs/cifar10 --data photos/
      bcnn verify mine.bcnn --checkpoint mine.py:make
    """
    from bcnn.deploy.shipped import find

    raise typer.Exit(int(not print_checks(find(model), checkpoint, data, limit)))


def print_checks(
    model: Path, checkpoint: str | Path | None = None, data: Path | None = None, limit: int = 1000
) -> bool:
    """A line per check as it is done; whether all passed."""
    from bcnn.deploy.verify import verify as checks

    failed = False
    with err.status("Checking ...") as status:
        for check in checks(model, checkpoint, data, limit, lambda doing: status.update(f"{doing} ...")):
            status.stop()  # else its line and that of the result would mix on a terminal
            failed |= not check.passed
            word = "[green]pass[/]" if check.passed else "[red]FAIL[/]"
            out.print(f"{word}  {check.name:<14}{escape(check.detail)}", highlight=False, soft_wrap=True)
            status.start()
    return not failed


@app.command()
def predict(
    photos: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    model: Annotated[str, typer.Option("--model", "-m", help="A shipped model or a packed file.")] = DEFAULT,
    top: Annotated[int, typer.Option(min=1, help="How many labels to show for an image.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what is on a photo. An image without an answer is reported, the others are predicted; exit code 2 tells.

    \b
    Examples:
      bcnn predict photo.jpg                    ten classes of photos: bcnn models
      bcnn predict digit.png --model digits
      bcnn predict photos/ -m model.bcnn --top 1 --json
    """
    from rich.progress import track

    from bcnn import images
    from bcnn.deploy.engine import Engine
    from bcnn.deploy.packfile import read
    from bcnn.deploy.shipped import find

    program = read(find(model))
    engine = Engine(program)
    answers: list[dict[str, Any]] = []
    unread = 0
    files = [file for photo in photos for file in images.files(photo)]
    for file in track(files, "Predicting", console=err, transient=True, disable=len(files) < 50):
        try:
            pixels = images.fit(images.open_rgb(file), program.shapes[0][:2], program.crop)
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
        best = [{"label": label, "probability": value} for label, value in likeliest]
        answers.append({"image": str(file), "predictions": best})
    if as_json:
        print(json.dumps(answers, indent=2, allow_nan=False))
    elif answers:
        table = Table("image", "label", "probability", box=box.SIMPLE_HEAD, pad_edge=False)
        for answer in answers:
            for row, best in enumerate(answer["predictions"]):
                name = "" if row else escape(answer["image"])
                table.add_row(name, escape(best["label"]), f"{best['probability']:.1%}")
        out.print(table)
        if model == DEFAULT:  # perhaps not chosen, so say what it can answer at all
            known = f"{model} knows {len(program.labels)} classes and nothing else: {', '.join(program.labels)}"
            err.print(escape(known), style="dim", highlight=False, soft_wrap=True)
    raise typer.Exit(2 if unread else 0)


def _isa_table() -> Table:
    from bcnn.deploy.engine import isas

    table = Table("instruction set", "built", "supported", "active", title="Engine")
    built = {isa.name: isa for isa in isas()}
    for name in dict.fromkeys((*built, *ISAS)):
        isa = built.get(name)
        facts = (isa is not None, isa is not None and isa.supported, isa is not None and isa.active)
        table.add_row(name, *("yes" if fact else "no" for fact in facts))
    return table


def size_table(sizes: Sizes) -> Table:
    table = Table("part", "bytes", title="Size")
    table.columns[1].justify = "right"
    table.add_row("binary weights, one bit each", f"{sizes.binary_weights:,}")
    table.add_row("real parameters", f"{sizes.real_parameters:,}")
    if sizes.indices:
        table.add_row("indices and offsets, int32", f"{sizes.indices:,}")
    table.add_row("logits of the test vectors", f"{sizes.test_logits:,}")
    table.add_row("header: ops, names, labels, hashes", f"{sizes.header - sizes.provenance:,}")
    table.add_row("header: provenance", f"{sizes.provenance:,}", end_section=True)
    table.add_row("file", f"{sizes.total:,}")
    return table


def _card_text(card: Card) -> str:
    steps = ", ".join(f"{share:.2%} after {step}" for step, share in card.steps.items())
    lines = (
        card.title,
        f"Top-1: {card.top1:.2%} of {card.images:,} images of {card.data} in the engine ({card.measured}); torch chooses the same class for {card.agreement:.2%}",
        f"Trained: {steps}; {card.minutes:.1f} minutes on {card.hardware}, {card.trained}",
        f"Cannot: {card.limits}",
    )
    return escape("\n".join(lines))


def _op_table(program: Program) -> Table:
    table = Table(title="Ops", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("op", "kind", "layer", "reads", "makes H,W,C"):
        table.add_column(heading, no_wrap=True)
    for heading in ("bits", "reals"):
        table.add_column(heading, no_wrap=True, justify="right")
    rows = zip(program.ops, program.names, program.shapes, program.counts(), strict=True)
    for index, (op, name, shape, counts) in enumerate(rows):
        reads = "+".join(str(read) for read in dict.fromkeys(op.maps_read()))
        reals = sum(array.size for array in op.arrays() if array.dtype in ("float32", "int16"))
        made = ",".join(map(str, shape))
        table.add_row(
            str(index), type(op).__name__, escape(name), reads, made, f"{counts.binary_params:,}", f"{reals:,}"
        )
    return table
