"""The verb `convert`: a packed file in other numbers. No torch."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from bcnn.base.errors import UserError
from bcnn.cli.app import app, check_output, err, out
from bcnn.cli.options import taken
from bcnn.cli.tables import size_table

if TYPE_CHECKING:
    from bcnn.integers.quantize import Fixed

ParametersOption = Annotated[
    str, typer.Option(help="Real parameters in a file of integers: int16, or int8 for the smallest file.")
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option(
        help="A folder of images of what the network is for, to calibrate on. Without one: synthetic pictures."
    ),
]
SHOWN = 5  # ops that saturate


@app.command()
def convert(
    model: Annotated[str, typer.Argument(help=taken("convert"))],
    output: Annotated[Path, typer.Option("-o", "--output", help="The packed file to write.")],
    numbers: Annotated[str, typer.Option(help="int16, or float32 for the way back.")] = "int16",
    parameters: ParametersOption = "int16",
    data: CalibrationOption = None,
) -> None:
    """Turn a packed file into one in integers: 16-bit maps, no float between image and logits; smaller, and faster but for tiny networks.

    An integer program is exact on every machine, and a network of its own: one sign that flips spreads, so the two do not choose
    the same class for every image. Compare their accuracy with bcnn eval, on images that were not used to calibrate. The way back,
    for what knows float32 only, keeps the parameters as they are: what was rounded stays so.

    \b
    Examples:
      bcnn convert model.bcnn -o small.bcnn --parameters int8 --data photos/train
      bcnn convert imagenette -o float.bcnn --numbers float32
    """
    from bcnn.integers.convert import in_floats, in_integers
    from bcnn.models import load
    from bcnn.models.resolve import resolve
    from bcnn.packed import packfile

    check_numbers(numbers, parameters, data)
    check_output(output)
    found = resolve(model, "convert")
    if output.exists() and output.samefile(found.path):
        raise UserError(f"{output} is the file to convert; give another one with -o")
    program = load.program(found)
    if numbers == "float32":
        sizes = packfile.save(in_floats(program), output)
    else:
        with calibrating() as progress:
            made = in_integers(program, parameters, data, progress)
        sizes = packfile.save(made.program, output)
    out.print(size_table(sizes))
    if numbers != "float32":
        report(made)
    command = shlex.join(["bcnn", "eval", str(output), "--beside", model, "--data", "FOLDER"])
    out.print(f"Wrote {escape(str(output))}. Next: {escape(command)}", soft_wrap=True)


def check_numbers(numbers: str, parameters: str, data: Path | None) -> None:
    """Options that go together, before anything takes time."""
    from bcnn.integers.convert import NUMBERS
    from bcnn.integers.quantize import PARAMETERS

    for option, given, known in (("--numbers", numbers, NUMBERS), ("--parameters", parameters, PARAMETERS)):
        if given not in known:
            raise UserError(f"{option} {given}: give {' or '.join(known)}")
    if numbers == "float32" and data is not None:
        raise UserError("--data calibrates integers; leave it out with --numbers float32, or give --numbers int16")
    if numbers == "float32" and parameters != PARAMETERS[0]:
        raise UserError(f"--parameters {parameters} is for a program in integers: give --numbers int16, too")


@contextmanager
def calibrating() -> Iterator[Callable[[], None]]:
    """A bar on the terminal; what to call after each half of an image."""
    from bcnn.integers.synthetic_images import COUNT

    with Progress(console=err, transient=True) as bar:
        task = bar.add_task("Calibrating", total=2 * COUNT)
        yield lambda: bar.advance(task)


def report(made: Fixed) -> None:
    """What saturates, the worst ops first."""
    if not made.saturated:
        err.print("Nothing saturates on the calibration images.")
        return
    err.print(f"{len(made.saturated)} of {len(made.program.ops)} ops saturate on the calibration images:")
    for row in made.saturated[:SHOWN]:
        err.print(f"  {escape(row.name)}: {row.share:.4%} of its values", highlight=False)
    if len(made.saturated) > SHOWN:
        err.print("  and less of the others", highlight=False)
