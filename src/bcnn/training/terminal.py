"""What a person sees of a run: one bar with the time left over a table with a row per epoch. On stderr; only from one process.

Where there is no terminal, a line every half a minute takes the bar's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich import progress
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn

from bcnn.base.console import Console
from bcnn.base.progress import Progress, sentences
from bcnn.base.progress_log import ProgressLog
from bcnn.training.time_estimate import duration

# (title, width, format) of each column, and the key of the epoch's record it shows; together 80 wide.
COLUMNS = [
    ("epoch", 7, "{}", "epoch"),
    ("lr", 9, "{:.2e}", "lr"),
    ("loss", 8, "{:.4f}", "loss"),
    ("train", 7, "{:.1%}", "train_accuracy"),
    ("top-1", 8, "{:.2%}", "accuracy"),
    ("flips", 7, "{:.3%}", "flips"),
    ("outside", 8, "{:.1%}", "outside"),
    ("balance", 10, "{}", "balance_range"),
    ("surviving", 10, "{:.0%}", "surviving_mean"),
    ("img/s", 6, "{:.0f}", "images_per_second"),
]


# What stands in the columns, said once where they are printed; docs/training.md says more.
LEGEND = (
    "train, top-1: right answers on crops of training images, and on evaluation images; flips: signs that changed in an update;\n"
    "outside: latent weights beyond [-1, 1], stuck there; balance: least and most +1 of a layer's signs; surviving: activations\n"
    "with a gradient. docs/training.md has more."
)


class Terminal:
    """`quiet` shows nothing: for all processes but the first."""

    def __init__(self, total: int, done: int, quiet: bool = False) -> None:
        self.quiet = quiet
        self.explained = False
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.bar = progress.Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),  # the time left must fit in 80 columns
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self.task = self.bar.add_task("train", total=total, completed=done, left="")
        self.log = ProgressLog(quiet)

    def __enter__(self) -> Terminal:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def say(self, text: str, style: str = "") -> None:
        self.console.print(text, style=style or None, soft_wrap=True, markup=False)  # names may hold brackets

    def start_step(self, name: str, sentence: str, transfer: str) -> None:
        self.say(f"\n{name}: {sentence}", "bold")
        if transfer:
            self.say(transfer, "dim")
        if not self.explained:
            self.say(LEGEND, style="dim")
            self.explained = True
        self.say("".join(f"{title:>{width}}" for title, width, _, _ in COLUMNS), style="dim")

    def advance(self, what: str, left: float | None = None) -> None:
        text = "" if left is None else f"{duration(left)} left"
        self.bar.update(self.task, advance=1, description=what, left=text)
        if not self.quiet:
            task = self.bar.tasks[0]
            self.log.line(
                lambda: f"{what}: {task.completed:.0f} of {task.total:.0f} updates, {text or 'no estimate yet'}"
            )

    def resize(self, total: int) -> None:
        """The run has become longer or shorter."""
        self.bar.update(self.task, total=total)

    @contextmanager
    def side_tasks(self) -> Iterator[Progress]:
        """Bars below the first while something else goes on."""
        tasks: dict[str, TaskID] = {}
        log = sentences(lambda text: self.log.line(lambda: text))

        def show(what: str, count: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = self.bar.add_task(what, total=total, left="")
            self.bar.update(tasks[what], advance=count)
            log(what, count, total)

        yield show
        for task in tasks.values():
            self.bar.remove_task(task)

    def row(self, record: dict[str, Any]) -> None:
        balance, surviving = record["balance"].values(), record["surviving"].values()  # none in a network that is real
        cells = {
            **record,
            "epoch": f"{record['epoch']}/{record['epochs']}",
            "balance_range": f"{min(balance):.2f}-{max(balance):.2f}" if balance else None,
            "surviving_mean": sum(surviving) / len(surviving) if surviving else None,
        }
        texts = ((form.format(cells[key]) if cells[key] is not None else "", width) for _, width, form, key in COLUMNS)
        self.say("".join(f"{text:>{width}}" for text, width in texts))
