"""`bcnn models`: the trained networks inside the package, and what each reaches."""

from __future__ import annotations

from functools import partial

from rich import box
from rich.markup import escape
from rich.table import Table

from bcnn.cli.app import app, out

ROUNDS = 20  # of a few milliseconds each


@app.command()
def models() -> None:
    """List the trained models in the package: what they tell apart, their size, accuracy and speed on this machine.

    \b
    Examples:
      bcnn models
      bcnn info imagenette                      all about one of them
      bcnn predict photo.jpg --model imagenette
    """
    from bcnn.bench.sample import sample_image
    from bcnn.bench.timing import interleave
    from bcnn.engine import Engine
    from bcnn.packed import card, shipped
    from bcnn.packed.packfile import open_packed

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))  # 80 columns
    for heading in ("name", "what", "input", "binary\nMACs", "bytes", "top-1", "ms"):
        table.add_column(heading, justify="left" if heading in ("name", "what") else "right")
    for name in shipped.names():
        packed = open_packed(shipped.find(name))
        program, found = packed.program, card.of(packed.program)
        height, width, _ = program.shapes[0]
        engine, image = Engine(program, threads=1), sample_image(height, width)[None]
        times = interleave({name: partial(engine.run, image)}, ROUNDS)[name]
        table.add_row(
            name,
            escape(found.title) if found else "",
            f"{height} x {width}",
            f"{sum(counts.binary_macs for counts in program.counts()) / 1e6:,.1f} M",
            f"{packed.sizes.total:,}",
            f"{found.top1:.2%}" if found else "",
            f"{times.min:.2g}",
        )
    out.print(table)
    out.print("top-1: the packed file, in the engine, on the whole evaluation split of its data", style="dim")
    out.print(f"ms: one image, the fastest of {ROUNDS} runs on one thread here; more: bcnn info NAME", style="dim")
