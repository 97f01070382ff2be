"""`bcnn export`: a packed file as what other machines run. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from bcnn.cli.app import app, err, out
from bcnn.cli.options import taken


@app.command()
def export(
    model: Annotated[str, typer.Argument(help=taken("export"))],
    to: Annotated[str | None, typer.Option(help="What to make. Left out: a list of what there is.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write it. Default: the model's name, here.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="onnx: bits, as small as the packed file, or int8, faster. Default: bits.")
    ] = None,
    ram: Annotated[
        str | None, typer.Option(help="c: the bytes that the device has; a model that needs more is refused.")
    ] = None,
) -> None:
    """Write a model for other runtimes. It is checked against the test vectors in the packed file before it is written.

    \b
    Examples:
      bcnn export imagenette --to onnx -o imagenette.onnx
      bcnn export model.bcnn --to onnx --weights int8
      bcnn export model.bcnn --to qonnx         for FINN and hls4ml
      bcnn export digits --to c                 for microcontrollers
      bcnn export digits --to web               a page for the browser
    """
    from bcnn.exports import targets
    from bcnn.models.load import packed_file
    from bcnn.models.resolve import resolve

    if to is None:
        for name, target in targets.TARGETS.items():
            out.print(escape(f"--to {name:<6} {target.about}"), highlight=False, soft_wrap=True)
        raise typer.Exit(2)  # nothing was exported
    given = {"weights": weights, "ram": ram}
    chosen = {name: value for name, value in given.items() if value is not None}
    with err.status("Exporting ..."), packed_file(resolve(model, "export")) as file:
        targets.export(
            file, to, output, lambda line: out.print(escape(line), highlight=False, soft_wrap=True), **chosen
        )
