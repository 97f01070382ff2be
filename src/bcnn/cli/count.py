"""Verbs that look at a network: `tables` and, for the paper's family, `summary` from its config alone; `audit` and other summaries by
running it once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bcnn.base.console import visible
from bcnn.base.errors import UserError
from bcnn.cli.app import app, err, out, say
from bcnn.cli.options import SizeOption, given, parse_size
from bcnn.counting.conventions import CONVENTIONS, operations
from bcnn.counting.conventions import convention as convention_rule
from bcnn.counting.counts import Node, count, peak_map_bytes
from bcnn.counting.tables import Table, tables, to_csv, to_markdown, to_rich
from bcnn.nets import config as configs
from bcnn.program.counts import Counts

if TYPE_CHECKING:
    from bcnn.nets.config import NetworkConfig

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

BYTES = ("weight_bytes", "map_bytes")  # of packed files and of the paper's layers: a recorded pass does not know them
SCREEN = 40  # rows
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
    _one_format(as_json, markdown, csv)
    convention_rule(convention)
    if network in configs.PRESETS or network.endswith((".toml", ".json")):  # no torch
        cfg = configs.resolve(network)
        cfg = cfg if branches is None else cfg.replace(branches=branches)
        cfg = cfg.replace(image_size=parse_size(size)) if size else cfg
        summed = _of_config(cfg if width is None else cfg.scaled(width), depth)
    else:
        choices = {name: value for name, value in (("branches", branches), ("width", width)) if value is not None}
        with err.status("running the network"):
            summed = _of_network(network, size, choices, depth)
    if as_json:
        total = {"convention": convention, "operations": operations(summed.tree, convention)}
        print(json.dumps({**summed.what, **total, **summed.more, "counts": _listed(summed)}, indent=2))
    elif csv:
        print(visible(to_csv(_summary_table(summed, convention, exact=True))), end="")
    elif markdown:
        print(visible(to_markdown(_summary_table(summed, convention), labels=1 + summed.shapes)), end="")
    else:
        table = _summary_table(summed, convention)
        if summed.shapes and out.width < 104:  # a narrow terminal: the numbers matter more than the shapes
            table = Table(table.title, _without(table.header), tuple(map(_without, table.rows)), table.note)
        rich = to_rich(table, labels=len(table.header) - len(summed.columns) - 1)
        rich.box, rich.padding, rich.pad_edge, rich.header_style = None, (0, 1, 0, 0), False, "bold"
        for column in rich.columns[1:]:
            column.header = str(column.header).replace(" ", "\n")
        rich.rows[-1].style = "bold"
        out.print(rich)


@dataclass(frozen=True)
class Summed:
    """A network's counts, and how to show them."""

    tree: Node
    parts: tuple[Node, ...]  # the rows of the table
    what: dict[str, Any]  # for JSON: which network
    more: dict[str, Any]  # for JSON: what else is known
    note: str
    columns: dict[str, str]
    shapes: bool


def _of_config(config: NetworkConfig, depth: int | None) -> Summed:
    tree, peak = count(config), peak_map_bytes(config)
    blocks = (
        block for part in tree.children for block in ((part,) if part.name in ("input", "decoder") else part.children)
    )
    note = f"Most map memory alive at once, module by module: {_short(peak)}B in float32."
    parts = tuple(blocks) if depth is None else tuple(_parts(tree, depth))
    return Summed(tree, parts, {"config": configs.to_dict(config)}, {"peak_map_bytes": peak}, note, COLUMNS, True)


def _of_network(network: str, size: str, choices: dict[str, Any], depth: int | None) -> Summed:
    """From one recorded pass, which knows neither how weights will be packed nor where maps will lie."""
    from bcnn.counting.captured import count_network
    from bcnn.models.networks import network as network_of
    from bcnn.models.resolve import resolve
    from bcnn.nets import network_spec

    found = network_of(resolve(network, "summary"), given(size), **choices)
    config = network_spec.config_of(found.module)
    if isinstance(config, configs.NetworkConfig):
        return _of_config(config.replace(image_size=found.size), depth)
    say(note for note in found.notes if "size" in note)
    tree = count_network(found.module, found.size, found.name)
    if depth is None:
        depth = _fitting(tree)
    what = {"network": found.name if config is None else network_spec.to_plain(config), "size": list(found.size)}
    columns = {header: name for header, name in COLUMNS.items() if name not in BYTES}
    note = f"One image of {found.size[0]} x {found.size[1]}, from a recorded pass; --depth shows more or fewer modules."
    return Summed(tree, tuple(_parts(tree, depth)), what, {}, note, columns, False)


def _fitting(tree: Node) -> int:
    """The most levels of modules that fit a screen."""
    depth, rows = 1, len(tuple(_parts(tree, 1)))
    while rows < (deeper := len(tuple(_parts(tree, depth + 1)))) <= SCREEN:
        depth, rows = depth + 1, deeper
    return depth


def _parts(node: Node, depth: int) -> Iterator[Node]:
    """The modules `depth` levels down, which together are all of it."""
    if not depth or not node.children:
        yield node
        return
    if node.own != Counts():
        yield Node(f"{node.name} itself", node.own)
    for child in node.children:
        yield from _parts(child, depth - 1)


def _listed(summed: Summed) -> Any:
    """The tree as plain data, without what is not known."""

    def known(data: Any) -> Any:
        if isinstance(data, list):
            return [known(item) for item in data]
        if not isinstance(data, dict):
            return data
        return {key: known(value) for key, value in data.items() if key not in BYTES or key in summed.columns.values()}

    return known(summed.tree.to_dict())


def _without(row: tuple[str, ...]) -> tuple[str, ...]:
    return row[:1] + row[2:]


def _summary_table(summed: Summed, convention: str, exact: bool = False) -> Table:
    number = _exact if exact else _short

    def row(node: Node, name: str) -> tuple[str, ...]:
        cells = [number(getattr(node.counts, field)) for field in summed.columns.values()]
        shape = ("x".join(map(str, node.shape or ())),) if summed.shapes else ()
        return (name, *shape, *cells, number(operations(node, convention)))

    note = f"ops: convention '{convention}', {convention_rule(convention).__doc__}\n{summed.note}"
    rows = (*(row(part, part.name) for part in summed.parts), row(summed.tree, "total"))
    labels = ("block", "out CxHxW") if summed.shapes else ("module",)
    return Table(summed.tree.name, (*labels, *summed.columns, "ops"), rows, note)


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
    with err.status("running the network"):
        import torch

        from bcnn.counting.audit import audit as run
        from bcnn.models.networks import network as network_of
        from bcnn.models.resolve import resolve
        from bcnn.nets.latent import set_weights

        found = network_of(resolve(network, "audit"), given(size))
        if weights is not None:
            set_weights(found.module, weights)
        generator = torch.Generator().manual_seed(0)
        report = run(found.module, torch.randn(1, 3, *found.size, generator=generator))
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
            _short(op.macs),
            "ok" if op.passes else "FAILS",
        )
        for op in shown
    ]
    vector = f"{len(report.vector)} products with a vector (depth wise, fully connected on one image) may be real"
    table = Table(
        f"{found.name}: matrix-matrix products", ("module", "product", "bits", "MACs", ""), tuple(rows), vector
    )
    rich = to_rich(table)
    for row, op in zip(rich.rows, shown, strict=True):
        row.style = None if op.passes else "bold red"
    out.print(rich)
    if len(shown) < len(report.matrix):
        out.print(f"{len(report.matrix) - len(shown)} more products are not shown; --all shows them")
    if not report.passes:
        worst = report.failures[0]
        out.print(
            f"{len(report.failures)} of {len(report.matrix)} products are not 1 x 1 bit, the first in {worst.module}: {worst.bits[0]} x {worst.bits[1]}"
        )
        raise typer.Exit(1)
    out.print(f"all {len(report.matrix)} matrix-matrix products are 1 x 1 bit")
