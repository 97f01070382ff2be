"""Verbs that look at a network: `tables` and, for the paper's family, `summary` from its config alone; `audit` and other summaries by
running it once.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from bcnn.base.console import visible
from bcnn.base.errors import UserError
from bcnn.cli.app import app, err, out, say
from bcnn.cli.options import SizeOption, given
from bcnn.counting.conventions import CONVENTIONS
from bcnn.counting.conventions import convention as convention_rule
from bcnn.counting.summary import short
from bcnn.counting.tables import TextTable, tables, to_csv, to_markdown, to_rich
from bcnn.nets import config as configs

CONVENTION_HELP = "\n\n".join(f"[bold]{name}[/bold]: {rule.__doc__}" for name, rule in CONVENTIONS.items())

NetworkArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE|RUN|FILE.py:FUNCTION",
        help=f"{', '.join(configs.PRESETS)} or any registered network, a config file (.toml, .json), a run folder or checkpoint, "
        "or your own: a function without arguments that returns a torch module.",
        show_default=True,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON: exact values, down to every module.")]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="A markdown table.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Comma separated values.")]

AUDITED = 20  # products that audit shows unless asked for all


@app.command(epilog=f"Conventions, in MACs:\n\n{CONVENTION_HELP}")
def summary(
    network: NetworkArgument = "imagenet",
    convention: Annotated[
        str, typer.Option(metavar="|".join(CONVENTIONS), help="What the column 'ops' means; explained below.")
    ] = "paper",
    branches: Annotated[int | None, typer.Option("--branches", "-P", help="P parallel branches a module.")] = None,
    width: Annotated[float | None, typer.Option(help="Channels times this, through the stem's R.")] = None,
    size: SizeOption = "",
    depth: Annotated[
        int | None, typer.Option(min=1, help="Levels of modules to show.", show_default="what fits a screen")
    ] = None,
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
      bcnn summary birealnet-18 --depth 2   a rival, from one recorded pass
      bcnn summary mine.py:make --size 32   a network of your own

    [bold]weight bytes[/bold]: as packed, one bit a binary weight (in 32-bit words per output channel), float32 for the rest.

    [bold]map bytes[/bold]: feature maps written, one module after the other: float32 maps and the bits of every sign.
    It adds up over blocks, so it is traffic; the line below the table names the most that is alive at once.
    """
    from bcnn.models.counts import summarize

    _one_format(as_json, markdown, csv)
    convention_rule(convention)
    choices = {name: value for name, value in (("branches", branches), ("width", width)) if value is not None}
    with err.status("running the network"):
        made, notes = summarize(network, given(size), choices, depth)
    say(notes)
    if as_json:
        print(json.dumps(made.plain(convention), indent=2))
    elif csv:
        print(visible(to_csv(made.table(convention, exact=True))), end="")
    elif markdown:
        print(visible(to_markdown(made.table(convention), labels=1 + made.shapes)), end="")
    else:
        table = made.table(convention)
        if made.shapes and out.width < 104:  # a narrow terminal: the numbers matter more than the shapes
            table = TextTable(table.title, _without(table.header), tuple(map(_without, table.rows)), table.note)
        rich = to_rich(table, labels=len(table.header) - len(made.columns) - 1)
        rich.box, rich.padding, rich.pad_edge, rich.header_style = None, (0, 1, 0, 0), False, "bold"
        for column in rich.columns[1:]:
            column.header = str(column.header).replace(" ", "\n")
        rich.rows[-1].style = "bold"
        out.print(rich)


def _without(row: tuple[str, ...]) -> tuple[str, ...]:
    return row[:1] + row[2:]


def _one_format(*formats: bool) -> None:
    if sum(formats) > 1:
        raise UserError("choose one output format: --json, --markdown or --csv")


@app.command()
def networks() -> None:
    """List the registered networks: what train, pack, audit, summary and bench take by name.

    \b
    Examples:
      bcnn networks
      bcnn networks | grep cifar
    """
    from bcnn.nets.registry import ARCHITECTURES

    wide = max(map(len, ARCHITECTURES))
    for each in ARCHITECTURES.values():
        size = "x".join(map(str, each.size))
        print(f"{each.name:{wide}}  {size:>7}  {each.description}")


@app.command("tables")
def show_tables(markdown: MarkdownOption = False, csv: CsvOption = False) -> None:
    """Tables 2 to 5 of the paper: our counts beside the printed values, of its rivals too, and the networks that sec. 6.3 only names.

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
            metavar="NAME|FILE|RUN|FILE.py:FUNCTION",
            help=f"{', '.join(configs.PRESETS)} or any registered network, a config file (.toml, .json), a trained network: a checkpoint "
            "or the folder of a run, or your own: a function without arguments that returns a torch module.",
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
    size: SizeOption = "",
    everything: Annotated[bool, typer.Option("--all", help="Every product, however many.")] = False,
) -> None:
    """Check that every matrix-matrix product of a network is 1 bit x 1 bit; exit code 1 if one is not.

    Runs the network on one random image and looks at the values that reach each product, whatever code made them.

    \b
    Examples:
      bcnn audit
      bcnn audit mine.toml
      bcnn audit runs/digits                with the parameters that were trained
      bcnn audit cifar10 --weights real     step 1: real weights, exit code 1
      bcnn audit birealnet-18               a rival: its first layer and its shortcuts are real, exit code 1
      bcnn audit mine.py:make --size 32     a network of your own
    """
    from bcnn.models.counts import audited

    with err.status("running the network"):
        found, report = audited(network, given(size), weights)
    say(note for note in found.notes if "size" in note)
    shown = list(report.matrix)
    if not everything and len(shown) > AUDITED:  # what fails is always there, and the first of the rest
        failing = {id(op) for op in report.failures[:AUDITED]}
        passing = {id(op) for op in [op for op in shown if op.passes][: AUDITED - len(failing)]}
        shown = [op for op in shown if id(op) in failing | passing]
    rows = [
        (
            op.module,
            f"{op.m}x{op.k} . {op.k}x{op.n}",
            f"{op.bits[0]} x {op.bits[1]}",
            short(op.macs),
            "ok" if op.passes else "FAILS",
        )
        for op in shown
    ]
    vector = f"{len(report.vector)} products with a vector (depth wise, fully connected on one image) may be real"
    table = TextTable(
        f"{found.name}: matrix-matrix products", ("module", "product", "bits", "MACs", ""), tuple(rows), vector
    )
    rich = to_rich(table)
    for row, op in zip(rich.rows, shown, strict=True):
        row.style = None if op.passes else "bold red"
    out.print(rich)
    if len(shown) < len(report.matrix):
        out.print(f"{len(report.matrix) - len(shown)} more products are not shown; --all shows them")
    for operator in report.unknown:
        out.print(f"cannot certify: nothing is known of {operator}")
    if report.unknown and not report.failures:
        raise typer.Exit(1)
    if not report.passes:
        worst = report.failures[0]
        out.print(
            f"{len(report.failures)} of {len(report.matrix)} products are not 1 x 1 bit, the first in {worst.module}: {worst.bits[0]} x {worst.bits[1]}"
        )
        raise typer.Exit(1)
    out.print(f"all {len(report.matrix)} matrix-matrix products are 1 x 1 bit")
