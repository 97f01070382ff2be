"""Counts -> Tables 2 to 5 of the paper (sec. 6.2, 6.3), ours beside the printed values, as text, markdown or csv. No torch.

Our values are computed from the `imagenet` and `imagenet-p2` presets and, for the rivals, from our own networks (`rival_rows`), rounded
as printed. Accuracies are the paper's.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table as RichTable

from bcnn.counting import rival_rows
from bcnn.counting.counts import CountNode, count
from bcnn.counting.rival_rows import Values
from bcnn.counting.rivals import rivals
from bcnn.nets.config import preset


@dataclass(frozen=True)
class TextTable:
    """A table as strings."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


# An item of Tables 2 and 3: unit, how it is computed, what is printed for P = 1 and P = 2.
Item = tuple[str, float, Callable[[CountNode], float], tuple[str, str]]


def _adds(network: CountNode) -> float:
    # Reading: 109.64 is printed for P = 2. The rules of `counts` give 109.63456; with an add for each of the 1000 biases of the
    # fully connected layer it is 109.63556 and every printed value of Table 2 is a plain rounding.
    return network.counts.adds + _classes(network)


def _classes(network: CountNode) -> int:
    return network.shape[0] if network.shape else 0


BINARY_PARAMS: Item = ("Binary parameters", 1e6, lambda n: n.counts.binary_params, ("9.04 e6", "18.09 e6"))
BINARY_MACS: Item = ("Binary MACs", 1e9, lambda n: n.counts.binary_macs, ("2.41 e9", "4.83 e9"))
REAL_PARAMS: Item = ("Real parameters", 1e6, lambda n: n.counts.real_params, ("1.15 e6", "1.19 e6"))
TABLE_2: tuple[Item, ...] = (
    BINARY_PARAMS,
    BINARY_MACS,
    REAL_PARAMS,
    ("Real MACs", 1e9, lambda n: n.counts.real_macs, ("0.04 e9", "0.04 e9")),
    ("Real adds", 1e6, _adds, ("62.67 e6", "109.64 e6")),
    ("Real mults", 1e6, lambda n: n.counts.mults, ("19.57 e6", "35.22 e6")),
    ("Sign", 1e6, lambda n: n.counts.signs, ("15.65 e6", "31.31 e6")),
    ("PReLU", 1e6, lambda n: n.counts.prelus, ("16.41 e6", "16.41 e6")),
)
TABLE_3: tuple[Item, ...] = (
    BINARY_PARAMS,
    BINARY_MACS,
    REAL_PARAMS,
    ("Real OPs/2", 1e9, lambda n: n.counts.real_ops, ("0.09 e9", "0.13 e9")),
)

# Tables 4 and 5 as printed: network, accuracy, then the columns. A blank cell is blank in the paper.
OURS, PRINTED_RULE = "ours", "ours, printed rule"
COLUMNS_4 = ("Mb", "BGM", "MB", "RGO")
TABLE_4 = (
    ("MeliusNet42", "69.2", ("", "9.69", "", "0.17")),
    ("ReActNetA", "69.4", ("28.25", "4.82", "1.08", "0.03")),
    ("BCNN P=1", "69.0", ("9.04", "2.41", "1.15", "0.09")),
    ("MeliusNet59", "71.0", ("", "18.3", "", "0.25")),
    ("ReActNetC", "71.4", ("27.55", "4.69", "1.77", "0.16")),
    ("BCNN P=2", "71.2", ("18.09", "4.83", "1.19", "0.13")),
)
COLUMNS_5 = ("Param MB", "Norm MOPs/2")
TABLE_5 = (
    ("MeliusNet42", "69.2", ("10.1", "325")),
    ("ReActNetA", "69.4", ("4.61", "108.40")),
    ("BCNN P=1", "69.0", ("2.28", "131.28")),
    ("MeliusNet59", "71.0", ("17.4", "532")),
    ("ReActNetC", "71.4", ("5.22", "232.51")),
    ("BCNN P=2", "71.2", ("3.45", "208.15")),
)


def tables() -> list[TextTable]:
    """Tables 2, 3, 4 and 5, and the networks that section 6.3 only names."""
    networks = {"BCNN P=1": count(preset("imagenet")), "BCNN P=2": count(preset("imagenet-p2"))}
    both = tuple(networks.values())
    return [
        _items(
            "Table 2: parameter and operation counts",
            TABLE_2,
            both,
            "The adds hold one per bias of the fully connected layer: only so does 109.64 come out.",
        ),
        _items("Table 3: parameters and aggregated operations", TABLE_3, both, "Real OPs/2: MACs + element-wise / 2."),
        _comparison(
            "Table 4: comparisons to other binary networks",
            COLUMNS_4,
            TABLE_4,
            {name: rival_rows.values(network.counts) for name, network in networks.items()},
            "Mb: million binary parameters, BGM: binary GMACs, MB: million real parameters, RGO: real GOPs/2. MeliusNet's printed RGO "
            "are MACs of its convolutions alone, without the fully connected layer and element-wise work. ReActNet's printed MB leave out "
            "the biases of RSign, and 1.77 is 1.7789 cut, not rounded.",
        ),
        _comparison(
            "Table 5: normalised comparisons",
            COLUMNS_5,
            TABLE_5,
            {name: rival_rows.values(network.counts) for name, network in networks.items()},
            "Param MB: int8 real and 1-bit binary parameters. Norm MOPs/2: binary / 64 + real, convention `paper`. MeliusNet's printed "
            "values are MiB with float32 real parameters, and operations of convolutions alone (convention `bireal`). ReActNet's come out "
            "with bias and sign on both copies where channels double, and two more operations a value of the first convolution.",
        ),
        _named(),
    ]


def _mark(ours: str, printed: str) -> str:
    return "yes" if ours == printed else "NO"


def _items(title: str, items: Iterable[Item], networks: tuple[CountNode, ...], note: str) -> TextTable:
    rows = []
    for name, unit, value, printed in items:
        ours = [f"{value(network) / unit:.2f} e{'6' if unit == 1e6 else '9'}" for network in networks]
        cells = [cell for pair in zip(ours, printed, strict=True) for cell in pair]
        rows.append((name, *cells, _mark("".join(ours), "".join(printed))))
    return TextTable(title, ("Item", "P=1 ours", "P=1 paper", "P=2 ours", "P=2 paper", "equal"), tuple(rows), note)


def _comparison(
    title: str,
    columns: tuple[str, ...],
    printed: Iterable[tuple[str, str, tuple[str, ...]]],
    paper_networks: dict[str, Values],
    note: str,
) -> TextTable:
    rows = []
    for name, accuracy, cells in printed:
        if name in paper_networks:
            sources = {OURS: paper_networks[name]}
        else:
            sources = {OURS: rival_rows.ours(name), PRINTED_RULE: rival_rows.printed_rule(name)}
        for source, values in sources.items():
            numbers = values.table4 if columns == COLUMNS_4 else values.table5
            other_rule = source == OURS and name not in paper_networks  # not meant to be equal
            equal = "" if other_rule else _same(numbers, cells)
            rows.append((name, source, accuracy, *_rounded(numbers, cells), equal))
        rows.append((name, "paper", accuracy, *cells, ""))
    note += f" Rows marked `{PRINTED_RULE}` follow the rule that the printed figures follow, rows marked `{OURS}` the one that the tables state."
    note += " Rows marked `paper` and the accuracies are the paper's printed values, not ours."
    return TextTable(title, ("Network", "source", "Acc %", *columns, "equal"), tuple(rows), note)


def _rounded(values: Sequence[float], printed: Iterable[str]) -> tuple[str, ...]:
    """To the places that are printed, two where nothing is."""
    places = (len(cell.partition(".")[2]) if cell else 2 for cell in printed)
    return tuple(f"{value:.{some}f}" for value, some in zip(values, places, strict=True))


def _same(values: Sequence[float], printed: Sequence[str]) -> str:
    """yes; cut, if a printed cell has the digits and was not rounded; else NO. Cells that are not printed equal anything."""
    marks = set()
    for value, mine, cell in zip(values, _rounded(values, printed), printed, strict=True):
        if cell and mine != cell:
            marks.add("cut" if repr(value).startswith(cell) else "NO")
    return "NO" if "NO" in marks else "cut" if marks else "yes"


def _named() -> TextTable:
    rows = []
    for name, accuracy, network in rival_rows.NAMED:
        values = rival_rows.values(rivals()[network].folded)
        rows.append((name, network, accuracy, *(f"{value:.2f}" for value in (*values.table4, *values.table5))))
    note = "The paper prints nothing but their accuracies; the counts are ours, by the rules of Tables 4 and 5."
    header = ("Network", "ours", "Acc %", *COLUMNS_4, *COLUMNS_5)
    return TextTable("Section 6.3, last paragraph: networks that the paper only names", header, tuple(rows), note)


# --- three ways to write rows; `bcnn summary` writes its own with them --------------------------------------------------


def to_rich(table: TextTable, labels: int = 1) -> RichTable:
    """For a terminal; the first `labels` columns are words, the others numbers."""
    title, note = escape(table.title), escape(table.note)  # a network may be called [x]
    rich = RichTable(title=title, title_justify="left", title_style="bold", caption=note or None)
    rich.caption_justify = "left"
    for index, name in enumerate(table.header):
        rich.add_column(name, justify="left" if index < labels else "right")
    for row in table.rows:
        rich.add_row(*map(escape, row))
    return rich


def to_markdown(table: TextTable, labels: int = 1) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rule = ["---" if index < labels else "---:" for index in range(len(table.header))]
    text = "\n".join([f"**{table.title}**", "", line(table.header), line(rule), *map(line, table.rows)])
    return text + (f"\n\n{table.note}\n" if table.note else "\n")


def to_csv(table: TextTable) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.header, *table.rows])
    return text.getvalue()
