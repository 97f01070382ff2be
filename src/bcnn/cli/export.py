"""`bcnn export`: a packed file as what other machines run. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from bcnn.cli.app import app, err, out


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="A shipped model or a packed file.")],
    to: Annotated[str, typer.Option(help="What to make: onnx or qonnx.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write it. Default: the model's name, here.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="onnx: bits, as small as the packed file, or int8, faster. Default: bits.")
    ] = None,
) -> None:
    """Write a model for other runtimes. It is checked against the test vectors in the packed file before it is written.

    \b
    Examples:
      bcnn export imagenette --to onnx -o imagenette.onnx
      bcnn export model.bcnn --to onnx --weights int8
      bcnn export model.bcnn --to qonnx         for FINN and hls4ml
    """
    from bcnn.export import targets

    given = {"weights": weights}
    with err.status("Exporting ..."):
        lines = targets.export(model, to, output, **{name: value for name, value in given.items() if value is not None})
    for line in lines:
        out.print(escape(line), highlight=False, soft_wrap=True)
