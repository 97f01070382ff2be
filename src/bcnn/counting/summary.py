"""What `bcnn summary` says of a network: its counts, block by block or module by module, as a table and as plain data. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bcnn.counting.conventions import convention as convention_rule
from bcnn.counting.conventions import operations
from bcnn.counting.counts import CountNode, count, peak_map_bytes
from bcnn.counting.tables import TextTable
from bcnn.nets import config as configs
from bcnn.nets.config import NetworkConfig
from bcnn.program.counts import Counts

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


@dataclass(frozen=True)
class Summary:
    """A network's counts, and how to show them."""

    tree: CountNode
    parts: tuple[CountNode, ...]  # the rows of the table
    what: dict[str, Any]  # for JSON: which network
    more: dict[str, Any]  # for JSON: what else is known
    note: str
    columns: dict[str, str]
    shapes: bool

    def table(self, convention: str, exact: bool = False) -> TextTable:
        """A row for each part, and their sum."""
        number = _exact if exact else short

        def row(node: CountNode, name: str) -> tuple[str, ...]:
            cells = [number(getattr(node.counts, field)) for field in self.columns.values()]
            shape = ("x".join(map(str, node.shape or ())),) if self.shapes else ()
            return (name, *shape, *cells, number(operations(node, convention)))

        note = f"ops: convention '{convention}', {convention_rule(convention).__doc__}\n{self.note}"
        rows = (*(row(part, part.name) for part in self.parts), row(self.tree, "total"))
        labels = ("block", "out CxHxW") if self.shapes else ("module",)
        return TextTable(self.tree.name, (*labels, *self.columns, "ops"), rows, note)

    def plain(self, convention: str) -> dict[str, Any]:
        """For JSON, down to every module, without what is not known."""

        def known(data: Any) -> Any:
            if isinstance(data, list):
                return [known(item) for item in data]
            if not isinstance(data, dict):
                return data
            return {
                key: known(value) for key, value in data.items() if key not in BYTES or key in self.columns.values()
            }

        total = {"convention": convention, "operations": operations(self.tree, convention)}
        return {**self.what, **total, **self.more, "counts": known(self.tree.to_dict())}


def of_config(config: NetworkConfig, depth: int | None) -> Summary:
    """Of the paper's family, from the config alone; without a `depth` by blocks."""
    tree, peak = count(config), peak_map_bytes(config)
    blocks = (
        block for part in tree.children for block in ((part,) if part.name in ("input", "decoder") else part.children)
    )
    note = f"Most map memory alive at once, module by module: {short(peak)}B in float32."
    parts = tuple(blocks) if depth is None else tuple(_parts(tree, depth))
    return Summary(tree, parts, {"config": configs.to_dict(config)}, {"peak_map_bytes": peak}, note, COLUMNS, True)


def of_pass(tree: CountNode, network: Any, size: tuple[int, int], depth: int | None) -> Summary:
    """From one recorded pass, which knows neither how weights will be packed nor where maps will lie; `network` is for JSON."""
    parts = tuple(_parts(tree, _fitting(tree) if depth is None else depth))
    columns = {header: name for header, name in COLUMNS.items() if name not in BYTES}
    note = f"One image of {size[0]} x {size[1]}, from a recorded pass; --depth shows more or fewer modules."
    return Summary(tree, parts, {"network": network, "size": list(size)}, {}, note, columns, False)


def _fitting(tree: CountNode) -> int:
    """The most levels of modules that fit a screen."""
    depth, rows = 1, len(tuple(_parts(tree, 1)))
    while rows < (deeper := len(tuple(_parts(tree, depth + 1)))) <= SCREEN:
        depth, rows = depth + 1, deeper
    return depth


def _parts(node: CountNode, depth: int) -> Iterator[CountNode]:
    """The modules `depth` levels down, which together are all of it."""
    if not depth or not node.children:
        yield node
        return
    if node.own != Counts():
        yield CountNode(f"{node.name} itself", node.own)
    for child in node.children:
        yield from _parts(child, depth - 1)


def _exact(value: float) -> str:
    return f"{value:.15g}"


def short(value: float) -> str:
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
