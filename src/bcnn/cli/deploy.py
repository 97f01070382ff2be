"""Verbs about a packed file: `pack`, `info`, `verify`. Only `pack` and `verify --checkpoint` need torch."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from bcnn.base.errors import UserError
from bcnn.cli.app import app, check_output, err, out, say
from bcnn.cli.options import LabelsOption, MeanOption, SizeOption, StdOption, given, taken
from bcnn.cli.tables import isa_table, level_table, op_table, size_table

if TYPE_CHECKING:
    from bcnn.models.networks import Found
    from bcnn.packed.card import Card
    from bcnn.packed.packfile import Packed, Sizes
    from bcnn.program.program import Program

FEW = 12  # ops that fit a screen beside all the rest


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
    random: Annotated[
        bool, typer.Option("--random", help="Pack a registered network or a config file with random weights.")
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
    from bcnn.cli.convert import check_numbers
    from bcnn.models import networks
    from bcnn.models import pack as packing
    from bcnn.models.load import is_trained

    check_numbers(numbers, parameters, data)
    check_output(output)
    if output.exists() and Path(network).exists() and output.samefile(network):
        raise UserError(f"{output} is the checkpoint itself; give another file with -o")
    if best:
        from bcnn.training.checkpoint import best_of

        network = str(best_of(network))
    with err.status("Lowering and packing ..."):
        chosen = packing.chosen(network, random)
        if is_trained(chosen):
            from bcnn.training.checkpoint import described

            say([f"packing {described(chosen.path)}"])
        found = networks.network(chosen, given(size, mean, std, labels))
        say(found.notes)
        if numbers == "float32":
            sizes = packing.write(found, output)
    if numbers == "int16":
        sizes = _pack_integers(found, output, parameters, data)
    out.print(size_table(sizes))
    if not sizes.binary_weights:
        err.print("No layer of this network is binary: it was trained with real weights, and runs with them.")
    command = shlex.join(["bcnn", "verify", str(output), "--checkpoint", network])
    out.print(f"Wrote {escape(str(output))}. Next: {escape(command)}", soft_wrap=True)  # a command to copy


def _pack_integers(found: Found, output: Path, parameters: str, data: Path | None) -> Sizes:
    from bcnn.cli.convert import calibrating, report
    from bcnn.integers.convert import in_integers
    from bcnn.models.pack import write

    def convert(program: Program) -> Program:
        with calibrating() as progress:
            made = in_integers(program, parameters, data, progress)
        report(made)
        return made.program

    return write(found, output, convert)


@app.command()
def info(
    model: Annotated[
        str | None,
        typer.Argument(help=f"{taken('info')} Without one: this machine's instruction sets."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every op, and the whole provenance.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON: all of it.")] = False,
) -> None:
    """Show what a packed file holds, to the byte; or which instruction sets the engine has here.

    \b
    Examples:
      bcnn info                instruction sets of this machine
      bcnn info imagenette
      bcnn info model.bcnn --all
      bcnn info 'my model.bcnn' --json
    """
    if model is None:
        _print_isas(as_json)
        return
    from bcnn.models.load import packed_file
    from bcnn.models.resolve import resolve
    from bcnn.packed import card
    from bcnn.packed.packfile import open_packed

    with packed_file(resolve(model, "info")) as file:
        packed = open_packed(file)
    program, found = packed.program, card.of(packed.program)
    if as_json:
        print(json.dumps(_info_data(packed), indent=2))
        return
    out.print(op_table(program) if everything or len(program.ops) <= FEW else level_table(program))
    out.print(size_table(packed.sizes))
    labels = card.classes(program)
    if labels:
        shown = labels if everything else labels[:5]
        more = ", ..." if len(shown) < len(labels) else ""
        none = "; or none of these" if program.rejects else ""
        out.print(f"Classes: {len(labels)} ({escape(', '.join(shown))}{more}){none}")
    if found:
        out.print(_card_text(found), highlight=False)
    provenance = {key: value for key, value in program.provenance.items() if not found or key != card.KEY}
    if everything:
        out.print("Provenance:", escape(json.dumps(provenance, indent=2)))
    elif provenance:
        out.print(f"Provenance: {escape(_short(provenance))}", highlight=False)
    out.print(
        f"Hashes: all {len(packed.hashes)} are right. Test vectors: {len(packed.test_seeds)}. More: --all, --json"
    )


@app.command()
def verify(
    model: Annotated[str, typer.Argument(help=taken("verify"))],
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
      bcnn verify model.bcnn --checkpoint runs/cifar10 --data 'my photos/'
      bcnn verify mine.bcnn --checkpoint mine.py:make
    """
    raise typer.Exit(int(not print_checks(model, checkpoint, data, limit)))


def print_checks(
    model: str | Path, checkpoint: str | Path | None = None, data: Path | None = None, limit: int = 1000
) -> bool:
    """A line per check as it is done; whether all passed."""
    from bcnn.base.progress import sentences
    from bcnn.models.verify import verify as checks

    failed = False
    with err.status("Checking ...") as status:
        progress = sentences(lambda text: status.update(f"{text} ..."))
        for check in checks(model, checkpoint, data, limit, progress):
            status.stop()  # else its line and that of the result would mix on a terminal
            failed |= not check.passed
            word = "[green]pass[/]" if check.passed else "[red]FAIL[/]"
            out.print(f"{word}  {check.name:<14}{escape(check.detail)}", highlight=False, soft_wrap=True)
            status.start()
    return not failed


def _print_isas(as_json: bool) -> None:
    from bcnn.engine import isas

    if as_json:
        print(json.dumps([dataclasses.asdict(isa) for isa in isas()], indent=2))
    else:
        out.print(isa_table(isas()))


def _info_data(packed: Packed) -> dict[str, Any]:
    """Everything that a file says, but its numbers."""
    program = packed.program
    rows = zip(program.ops, program.names, program.shapes, program.counts(), strict=True)
    ops = [
        {
            "kind": type(op).__name__,
            "name": name,
            "shape": shape,
            "binary_params": counts.binary_params,
            "binary_macs": counts.binary_macs,
        }
        for op, name, shape, counts in rows
    ]
    about = {"labels": program.labels, "rejects": program.rejects, "crop": program.crop}
    sizes = {**dataclasses.asdict(packed.sizes), "total": packed.sizes.total}
    return {**about, "sizes": sizes, "hashes": packed.hashes, "provenance": program.provenance, "ops": ops}


def _short(provenance: dict[str, Any]) -> str:
    """Texts and numbers as they are, of the rest only the name."""
    parts = []
    for key, value in provenance.items():
        plain = isinstance(value, str | int | float) and len(str(value)) <= 60
        parts.append(f"{key} {value}" if plain else f"{key} (...)")
    text = ", ".join(parts)
    return text if len(text) <= 240 else text[:237] + "..."


def _card_text(card: Card) -> str:
    steps = ", ".join(f"{share:.2%} after {step}" for step, share in card.steps.items())
    same = "" if card.agreement is None else f"; torch chooses the same class for {card.agreement:.2%}"
    if card.float_top1 is not None:
        same = f"; {card.float_top1:.2%} in float32, the same class for {card.float_same or 0:.2%}"
    how = f"Trained: {steps}; {card.minutes:.1f} minutes" if steps else f"Learned: {card.minutes * 60:.0f} seconds"
    lines = (
        card.title,
        f"Top-1: {card.top1:.2%} of {card.images:,} images of {card.data} in the engine ({card.measured}){same}",
        f"{how} on {card.hardware}, {card.trained}",
        f"Cannot: {card.limits}",
    )
    return escape("\n".join(lines))
