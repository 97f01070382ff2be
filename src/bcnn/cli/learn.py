"""`bcnn learn`: your photos, your classes, in seconds and without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bcnn.base.errors import UserError
from bcnn.cli.app import app, check_output, err, out, say
from bcnn.cli.options import parse_size
from bcnn.cli.tables import class_rows, plain

if TYPE_CHECKING:
    from bcnn.data.sources import Source
    from bcnn.learning.learn import Learned

ROWS = 30  # of a class table, so that it fits a screen


@app.command()
def learn(
    photos: Annotated[
        str,
        typer.Argument(help="A folder with a folder of photos for each class; train and val beside them if you like."),
    ] = "",
    output: Annotated[Path, typer.Option("-o", "--output", help="The packed file to write.")] = Path("learned.bcnn"),
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="A shipped model or a packed file to learn from; the best shipped one if not given.",
        ),
    ] = "",
    size: Annotated[
        str,
        typer.Option(
            help="At which photos are read: 128, or 96x128. Half, once or twice the network's own, by held-out photos, if not given."
        ),
    ] = "",
    add: Annotated[
        str,
        typer.Option(metavar="NAME=FOLDER", help="Keep the classes of --from and add this one, from some 20 photos."),
    ] = "",
    none: Annotated[
        bool, typer.Option("--none", help="Also answer 'none of these'; one held-out photo in twenty is lost to it.")
    ] = False,
    others: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Photos of other things, for 'none of these'. The more like what you will meet, the better.",
        ),
    ] = "",
    strict_data: Annotated[bool, typer.Option("--strict-data", help="Stop at the first unreadable photo.")] = False,
) -> None:
    """Learn your classes from a folder of photos, in seconds and without torch: a packed file with a new decoder.

    The binary layers stay those of the model it starts from. A fifth of the photos, or those in val, is held out; the accuracy is theirs.

    \b
    Examples:
      bcnn learn photos -o mine.bcnn
      bcnn predict 'new photos/' -m mine.bcnn
      bcnn learn photos -o mine.bcnn --others 'some/other photos'
      bcnn learn --from mine.bcnn --add mug=photos/mug -o more.bcnn
    """
    from bcnn.data import sources
    from bcnn.learning import learn as learning
    from bcnn.learning.photos import folder

    if not photos and not add:
        raise UserError("no photos; give a folder with a folder for each class: bcnn learn photos -o mine.bcnn")
    if add and not start:
        raise UserError("--add needs the file that gets the class: --from mine.bcnn")
    check_output(output)
    wishes = learning.Wishes(start, _size(size, start, add), none, others, strict_data)
    name, _, where = add.partition("=")
    if add and not (name and where and name.isprintable()):
        raise UserError(f"--add takes NAME=FOLDER, as in --add mug=photos/mug, got {add!r}")
    if photos:
        source = sources.find(photos, strict=strict_data)
        if add:
            source = learning.with_class(source, name, folder(where, 0))
        _announce(source)
        with _bar() as bar:
            learned = learning.learn(source, wishes, learning.data_name(photos), Shown(bar))
    else:
        if none or others or size:
            raise UserError(
                "a class is added to a file as it is; --none, --others and --size need the photos of all classes, too"
            )
        new = folder(where, 0)
        err.print(f"{len(new)} photos of {escape(name)}, of which a fifth is held out", highlight=False)
        with _bar() as bar:
            learned = learning.add(start, name, new, strict_data, Shown(bar))
    _report(learned, photos, name if add and not photos else "")
    _write(learned, output, photos)


def _size(text: str, start: str, add: str) -> tuple[int, int] | None:
    """As asked for; a file that gets a class more stays at its size."""
    from bcnn.models.load import program
    from bcnn.models.resolve import resolve

    if start:
        found = resolve(start, "learn --from")
    if text:
        return parse_size(text)
    return program(found).shapes[0][:2] if add else None


def _announce(source: Source) -> None:
    """The classes found, before anything is read."""
    from bcnn.learning.photos import counts, warnings

    table = plain("class", "learn from", "held out")
    listed = counts(source)
    for name, train, held_out in listed[:ROWS]:
        table.add_row(escape(name), f"{train:,}", f"{held_out:,}")
    if len(listed) > ROWS:
        table.add_row(f"... {len(listed) - ROWS} more", "", "")
    err.print(table)
    say((*source.notes, *warnings(source)))


def _bar() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


class Shown:
    """Progress for `learn`: a bar for each thing it does; without a terminal a line when one begins."""

    def __init__(self, bar: Progress) -> None:
        self.bar, self.doing = bar, ""

    def __call__(self, doing: str, count: int, total: int) -> None:
        if doing != self.doing:
            self.doing = doing
            if not err.is_terminal:
                err.print(f"{doing}: {total:,} photos", highlight=False)
            self.task = self.bar.add_task(doing, total=total)
        self.bar.update(self.task, advance=count)


def _report(learned: Learned, photos: str, added: str) -> None:
    scores, program = learned.scores, learned.program
    if learned.sizes:
        table = plain("photos read at", "right", "ms a photo")
        for size in learned.sizes:
            mark = " *" if program.shapes[0][:2] == (size.height, size.width) else ""
            table.add_row(f"{size.height} x {size.width}{mark}", f"{size.accuracy:.1%}", f"{1000 * size.seconds:.1f}")
        err.print(table)
        err.print(
            "* chosen: a larger size must bring a point; photos left out of each fit, not those held out", style="dim"
        )
    if added:
        index = program.labels.index(added)
        right = int(scores.confusion[index, index])
        out.print(f"{right} of {scores.count} held-out photos of {escape(added)} are recognised", highlight=False)
        out.print(
            "The other classes were kept; measure them with: bcnn eval FILE --data PHOTOS",
            highlight=False,
            soft_wrap=True,
        )
    else:
        table = plain("class", "held out", "recognised", "most often taken for")
        for cells in [cells for seen, cells in class_rows(program.labels, scores) if seen][:ROWS]:
            table.add_row(*cells)
        out.print(table)
        out.print(
            f"{scores.top1:.2%} of {scores.count:,} held-out photos are right, measured in the engine", highlight=False
        )
    if learned.refused is not None:
        out.print(f"{learned.refused:.1%} of them are called none of these", highlight=False)
    if learned.others_refused is not None:
        out.print(
            f"{learned.others_refused:.1%} of held-out photos of other things are called none of these", highlight=False
        )
    if learned.unreadable:
        count = len(learned.unreadable)
        say((f"{count} unreadable file{'s' if count > 1 else ''} skipped, named above",))


def _write(learned: Learned, output: Path, photos: str) -> None:
    from bcnn.packed import packfile

    sizes = packfile.save(learned.program, output)
    file, folder = escape(str(output)), escape(photos or "PHOTOS")
    out.print(
        f"Wrote {file}: {sizes.total:,} bytes, after {learned.seconds:.0f} s. Try: bcnn predict PHOTO -m {file}",
        highlight=False,
        soft_wrap=True,
    )
    out.print(
        f"Next, minutes: bcnn train --data {folder} --minutes 20   (needs torch). It tunes the binary layers to your photos, "
        "which this did not touch: worth it where they look unlike those of the start. Measure both with bcnn eval and keep the better.",
        highlight=False,
        soft_wrap=True,
    )
