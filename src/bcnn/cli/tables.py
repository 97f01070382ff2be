"""The tables that verbs print, of what they are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from bcnn.base.scores import Scores
    from bcnn.engine import Isa
    from bcnn.packed.packfile import Sizes
    from bcnn.program.program import Program

# All that the engine's source has; a build holds those of its processor family.
ISAS = ("avx512", "avx2", "neon", "scalar")


def plain(*headings: str) -> Table:
    """A table without lines but one below its headings."""
    return Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)


def isa_table(built: Sequence[Isa]) -> Table:
    table, known = Table("instruction set", "built", "supported", "active", title="Engine"), {i.name: i for i in built}
    for name in dict.fromkeys((*known, *ISAS)):
        isa = known.get(name)
        facts = (isa is not None, isa is not None and isa.supported, isa is not None and isa.active)
        table.add_row(name, *("yes" if fact else "no" for fact in facts))
    return table


def class_rows(classes: Sequence[str], scores: Scores) -> Iterator[tuple[bool, tuple[str, str, str, str]]]:
    """Of each class whether it has images, and its cells: name, images, the share that is recognised, what the others are taken for."""
    for index, (name, row, share) in enumerate(zip(classes, scores.confusion, scores.per_class(), strict=True)):
        wrong = row.copy()
        wrong[index] = 0
        other = f"{classes[int(wrong.argmax())]} ({wrong.max()})" if wrong.any() else ""
        recognised = "-" if share is None else f"{share:.1%}"
        yield share is not None, (escape(name), str(row.sum()), recognised, escape(other))


def answer_table(answers: Sequence[dict[str, Any]], program: Program) -> Table:
    table = plain("image", "label", "probability")
    for answer in answers:
        for row, best in enumerate(answer["predictions"]):
            name = "" if row else escape(answer["image"])
            label = best["label"]
            if program.rejects and label == program.labels[-1]:
                label = f"none of the {len(program.labels) - 1} classes"
            table.add_row(name, escape(label), f"{best['probability']:.1%}")
    return table


def size_table(sizes: Sizes) -> Table:
    table = Table("part", "bytes", title="Size")
    table.columns[1].justify = "right"
    table.add_row("binary weights, one bit each", f"{sizes.binary_weights:,}")
    table.add_row("real parameters", f"{sizes.real_parameters:,}")
    if sizes.indices:
        table.add_row("indices and offsets, int32", f"{sizes.indices:,}")
    table.add_row("logits of the test vectors", f"{sizes.test_logits:,}")
    table.add_row("header: ops, names, labels, hashes", f"{sizes.header - sizes.provenance:,}")
    table.add_row("header: provenance", f"{sizes.provenance:,}", end_section=True)
    table.add_row("file", f"{sizes.total:,}")
    return table


def op_table(program: Program) -> Table:
    table = Table(title="Ops", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("op", "kind", "layer", "reads", "makes H,W,C"):
        table.add_column(heading, no_wrap=True)
    for heading in ("bits", "reals"):
        table.add_column(heading, no_wrap=True, justify="right")
    rows = zip(program.ops, program.names, program.shapes, program.counts(), strict=True)
    for index, (op, name, shape, counts) in enumerate(rows):
        reads = "+".join(str(read) for read in dict.fromkeys(op.maps_read()))
        reals = sum(array.size for array in op.arrays() if array.dtype in ("float32", "int16"))
        made = ",".join(map(str, shape))
        table.add_row(
            str(index), type(op).__name__, escape(name), reads, made, f"{counts.binary_params:,}", f"{reals:,}"
        )
    return table


def level_table(program: Program) -> Table:
    """A row for all ops in a row that make maps of one height and width: a level of the network."""
    table = Table(
        title=f"{len(program.ops)} ops, by the size of their maps", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1)
    )
    for heading in ("ops", "first layer", "H,W", "channels"):
        table.add_column(heading, no_wrap=True)
    for heading in ("bits", "reals"):
        table.add_column(heading, no_wrap=True, justify="right")
    counts, first = program.counts(), 0
    while first < len(program.ops):
        end = first
        while end < len(program.ops) and program.shapes[end][:2] == program.shapes[first][:2]:
            end += 1
        bits = sum(count.binary_params for count in counts[first:end])
        reals = sum(
            array.size for op in program.ops[first:end] for array in op.arrays() if array.dtype in ("float32", "int16")
        )
        height, width, channels = program.shapes[end - 1]
        number = f"{first}-{end - 1}" if end - first > 1 else str(first)
        table.add_row(
            number, escape(program.names[first]), f"{height},{width}", str(channels), f"{bits:,}", f"{reals:,}"
        )
        first = end
    return table
