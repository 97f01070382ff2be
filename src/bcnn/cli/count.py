"""Verbs that look at a network: `summary` and `tables` from its config alone, `audit` by running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bcnn.cli.app import app, err, out
from bcnn.console import visible
from bcnn.count.conventions import CONVENTIONS, operations
from bcnn.count.conventions import convention as convention_rule
from bcnn.count.counts import Node, count, peak_map_bytes
from bcnn.count.tables import Table, tables, to_csv, to_markdown, to_rich
from bcnn.errors import UserError
from bcnn.nets import config as configs

CONVENTION_HELP = "\n\n".join(f"[bold]{name}[/bold]: {rule.__doc__}" for name, rule in CONVENTIONS.items())

NetworkArgument = Annotated[
    str,
    typer.Argument(
        metavar="PRESET|FILE", help=f"{', '.join(configs.PRESETS)}, or a config file (.toml, .json).", show_default=True
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON: exact values, down to every module.")]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="A markdown table.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Comma separated values.")]

COLUMNS = {  # header of the table -> field of Counts
    "binary params": "binary_params",
    "real params": "real_params",
    "binary MACs": "binary_macs",
    "real MACs": "real_macs",
    "adds": "adds",
    "mults": "mults",
    "signs": "signs",
    "PReLUs": "prelus",
    "weight bytes": "weight_bytes",
    "map bytes": "map_bytes",
}


@app.command(epilog=f"Conventions, in MACs:\n\n{CONVENTION_HELP}")
def summary(
    network: NetworkArgument = "imagenet",
    convention: Annotated[
        str, typer.Option(metavar="|".join(CONVENTIONS), help="What the column 'ops' means; explained below.")
    ] = "paper",
    branches: Annotated[int | None, typer.Option("--branches", "-P", help="P parallel branches a module.")] = None,
    width: Annotated[float | None, typer.Option(help="Channels times this, through the stem's R.")] = None,
    size: Annotated[int | None, typer.Option(help="Height and width of the image.")] = None,
    as_json: JsonOption = False,
    markdown: MarkdownOption = False,
    csv: CsvOption = False,
) -> None:
    """Parameters, operations and memory of a network, per block and in total, for one image.

    \b
    Examples:
      bcnn summary                          the paper's network, P = 1
      bcnn summary imagenet-p2 --markdown   with two branches, for a report
      bcnn summary cifar10 --width 0.5 --convention reactnet
      bcnn summary mine.toml --json         every module, exact

    [bold]weight bytes[/bold]: as packed, one bit a binary weight (in 32-bit words per output channel), float32 for the rest.

    [bold]map bytes[/bold]: feature maps written, one module after the other: float32 maps and the bits of every sign.
    It adds up over blocks, so it is traffic; the line below the table names the most that is alive at once.
    """
    cfg = configs.resolve(network)
    if branches is not None:
        cfg = cfg.replace(branches=branches)
    if size is not None:
        cfg = cfg.replace(image_size=size)
    if width is not None:
        cfg = cfg.scaled(width)
    _one_format(as_json, markdown, csv)
    tree = count(cfg)
    peak = peak_map_bytes(cfg)
    if as_json:
        total = {"convention": convention, "operations": operations(tree, convention), "peak_map_bytes": peak}
        print(json.dumps({"config": configs.to_dict(cfg), **total, "counts": tree.to_dict()}, indent=2))
    elif csv:
        print(visible(to_csv(_summary_table(tree, convention, peak, exact=True))), end="")
    elif markdown:
        print(visible(to_markdown(_summary_table(tree, convention, peak), labels=2)), end="")
    else:
        table = _summary_table(tree, convention, peak)
        if out.width < 104:  # a narrow terminal: the numbers matter more than the shapes
            table = Table(table.title, _without(table.header), tuple(map(_without, table.rows)), table.note)
        rich = to_rich(table, labels=len(table.header) - len(COLUMNS) - 1)
        rich.box, rich.padding, rich.pad_edge, rich.header_style = None, (0, 1, 0, 0), False, "bold"
        for column in rich.columns[1:]:
            column.header = str(column.header).replace(" ", "\n")
        rich.rows[-1].style = "bold"
        out.print(rich)


def _without(row: tuple[str, ...]) -> tuple[str, ...]:
    return row[:1] + row[2:]


def _summary_table(tree: Node, convention: str, peak: int, exact: bool = False) -> Table:
    number = _exact if exact else _short

    def row(node: Node, name: str) -> tuple[str, ...]:
        cells = [number(getattr(node.counts, field)) for field in COLUMNS.values()]
        shape = "x".join(map(str, node.shape or ()))
        return (name, shape, *cells, number(operations(node, convention)))

    blocks = [
        block for part in tree.children for block in ((part,) if part.name in ("input", "decoder") else part.children)
    ]
    note = (
        f"ops: convention '{convention}', {convention_rule(convention).__doc__}\n"
        f"Most map memory alive at once, module by module: {_short(peak)}B in float32."
    )
    rows = (*(row(block, block.name) for block in blocks), row(tree, "total"))
    return Table(tree.name, ("block", "out CxHxW", *COLUMNS, "ops"), rows, note)


def _exact(value: float) -> str:
    return f"{value:.15g}"


def _short(value: float) -> str:
    """Three digits and a unit: 2.41G."""
    for unit in ("", "k", "M", "G"):
        if value < 999.5 or unit == "G":
            break
        value /= 1000
    return (
        f"{value:.0f}{unit}"
        if unit == "" or value >= 99.95
        else f"{value:.1f}{unit}"
        if value >= 9.995
        else f"{value:.2f}{unit}"
    )


def _one_format(*formats: bool) -> None:
    if sum(formats) > 1:
        raise UserError("choose one output format: --json, --markdown or --csv")


@app.command("tables")
def show_tables(markdown: MarkdownOption = False, csv: CsvOption = False) -> None:
    """Tables 2 to 5 of the paper: our counts beside the printed values.

    \b
    Examples:
      bcnn tables
      bcnn tables --markdown > tables.md
    """
    _one_format(markdown, csv)
    for index, table in enumerate(tables()):
        labels = 1 if "Item" in table.header else 2
        if index:
            print()
        if markdown:
            print(to_markdown(table, labels), end="")
        elif csv:
            print(f"# {table.title}\n{to_csv(table)}", end="")
        else:
            out.print(to_rich(table, labels))


@app.command()
def audit(
    network: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|FILE|RUN",
            help=f"{', '.join(configs.PRESETS)}, a config file (.toml, .json), or a trained network: a checkpoint or the folder of a run.",
            show_default=True,
        ),
    ] = "imagenet",
    weights: Annotated[
        str | None,
        typer.Option(
            help="'binary', or 'real': step 1 of the training, which must fail.",
            show_default="as trained, else binary",
        ),
    ] = None,
) -> None:
    """Check that every matrix-matrix product of a network is 1 bit x 1 bit; exit code 1 if one is not.

    Runs the network on one random image and looks at the values that reach each product. For a network of your own, call
    [bold]bcnn.count.audit.audit(module, image)[/bold]: it takes any torch module.

    \b
    Examples:
      bcnn audit
      bcnn audit mine.toml
      bcnn audit runs/digits                with the parameters that were trained
      bcnn audit cifar10 --weights real     step 1: real weights, exit code 1
    """
    # A preset's name stays a preset's, whatever folders there are.
    trained = network not in configs.PRESETS and (Path(network).is_dir() or network.endswith(".safetensors"))
    cfg = None if trained else configs.resolve(network)
    with err.status("running the network"):
        import torch

        from bcnn.count.audit import audit as run
        from bcnn.nets.bcnn import Network
        from bcnn.train import checkpoint

        module = Network(cfg) if cfg else checkpoint.load(network)[0]
        module.weights = weights or module.weights
        generator = torch.Generator().manual_seed(0)
        report = run(module, torch.randn(1, 3, *module.config.image_size, generator=generator))
    rows = [
        (
            op.module,
            f"{op.m}x{op.k} . {op.k}x{op.n}",
            f"{op.bits[0]} x {op.bits[1]}",
            _short(op.macs),
            "ok" if op.passes else "FAILS",
        )
        for op in report.matrix
    ]
    vector = f"{len(report.vector)} products with a vector (depth wise, fully connected on one image) may be real"
    table = Table(
        f"{module.config.name}: matrix-matrix products", ("module", "product", "bits", "MACs", ""), tuple(rows), vector
    )
    rich = to_rich(table)
    for row, op in zip(rich.rows, report.matrix, strict=True):
        row.style = None if op.passes else "bold red"
    out.print(rich)
    if not report.passes:
        worst = report.failures[0]
        out.print(
            f"{len(report.failures)} of {len(rows)} products are not 1 x 1 bit, the first in {worst.module}: {worst.bits[0]} x {worst.bits[1]}"
        )
        raise typer.Exit(1)
    out.print(f"all {len(rows)} matrix-matrix products are 1 x 1 bit")
