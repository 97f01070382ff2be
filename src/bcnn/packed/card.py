"""A model card: what a packed file says about itself, as plain data in its provenance. No torch.

Written by `python -m tools.release.ship` and `bcnn learn`, read by `bcnn models`, `bcnn info`, `bcnn eval` and `python -m tools.pages.cards`, which makes
docs/models.md of it. Files of other people may hold anything there: a card that is not whole counts as none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bcnn.base.dataclass_io import build, to_plain
from bcnn.base.errors import UserError
from bcnn.program.program import Program

KEY = "card"
LOG = (
    "step",
    "epoch",
    "epochs_done",
    "updates",
    "lr",
    "loss",
    "train_accuracy",
    "val_loss",
    "accuracy",
    "flips",
    "outside",
)


@dataclass(frozen=True)
class Card:
    title: str
    about: str  # what it can do
    limits: str  # what it cannot
    data: str  # the data set's name
    licence: str  # remarks on the data set
    folders: list[str]  # the data set's names of the classes, in the order of the labels
    train_images: int
    images: int  # of the evaluation split
    steps: dict[str, float]  # top-1 in torch after each step of the training
    minutes: float  # of training
    hardware: str  # that it was trained on
    trained: str  # the date it was started
    top1: float  # of the packed file in the engine, on the whole evaluation split
    # Share of those images on which the engine in float32 and torch choose the same class; None: learned without torch.
    agreement: float | None
    confusion: list[list[int]]  # [true][predicted], by the engine
    engine: str  # instruction set of that measurement
    measured: str  # its date
    log: list[list[Any]]  # a row an epoch: `LOG`
    # Of a file in integers that was converted: top-1 in float32 in the engine, and the share of images on which both choose the same class.
    float_top1: float | None = None
    float_same: float | None = None

    def plain(self) -> dict[str, Any]:
        table: dict[str, Any] = to_plain(self)
        return table

    def epochs(self) -> list[dict[str, Any]]:
        """The log as records, as in a run's metrics.jsonl."""
        return [dict(zip(LOG, row, strict=True)) for row in self.log]


def of(program: Program) -> Card | None:
    """The card in a packed file, if there is a whole one. Its texts end up on terminals, so they must be printable."""
    try:
        card = build(Card, program.provenance.get(KEY), KEY)
    except UserError:
        return None
    texts = [value for value in vars(card).values() if isinstance(value, str)]
    printable = all(text.isprintable() for text in (*texts, *card.folders, *card.steps))
    whole = len(card.folders) == program.shapes[-1][2] and all(len(row) == len(LOG) for row in card.log)
    return card if printable and whole else None


def folders(program: Program) -> tuple[str, ...]:
    """The names that the data set has for the classes: those of the card, else the labels that people see."""
    card = of(program)
    return tuple(card.folders) if card else program.labels


def classes(program: Program) -> tuple[str, ...]:
    """The labels of what it tells apart, without the one for none of them."""
    return program.labels[:-1] if program.rejects else program.labels
