"""A model card: what a packed file says about itself, as plain data in its provenance. No torch.

Written by `python -m tools.ship`, read by `bcnn models`, `bcnn info`, `bcnn eval` and `python -m tools.cards`, which makes
docs/models.md of it. Files of other people may hold anything there: a card that is not whole counts as none.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

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
    agreement: float  # share of those images on which engine and torch choose the same class
    confusion: list[list[int]]  # [true][predicted], by the engine
    engine: str  # instruction set of that measurement
    measured: str  # its date
    log: list[list[Any]]  # a row an epoch: `LOG`

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    def epochs(self) -> list[dict[str, Any]]:
        """The log as records, as in a run's metrics.jsonl."""
        return [dict(zip(LOG, row, strict=True)) for row in self.log]


_KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float)}


def of(program: Program) -> Card | None:
    """The card in a packed file, if there is a whole one."""
    plain = program.provenance.get(KEY)
    if not isinstance(plain, dict) or set(plain) != {field.name for field in fields(Card)}:
        return None
    for field in fields(Card):
        kind = _KINDS.get(str(field.type), dict if str(field.type).startswith("dict") else list)
        if not isinstance(plain[field.name], kind):
            return None
    classes = program.shapes[-1][2]
    if len(plain["folders"]) != classes or not all(isinstance(name, str) for name in plain["folders"]):
        return None
    return Card(**plain)


def folders(program: Program) -> tuple[str, ...]:
    """The names that the data set has for the classes: those of the card, else the labels that people see."""
    card = of(program)
    return tuple(card.folders) if card else program.labels
