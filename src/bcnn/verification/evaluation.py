"""A packed file over a data set, in the engine: scores, and what was said of each image. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError, nearest
from bcnn.base.progress import Progress, silent
from bcnn.base.scores import ImageIndices, Scores, evaluate
from bcnn.base.softmax import softmax
from bcnn.data import sources
from bcnn.data.config import DataConfig
from bcnn.data.decode import Unreadable, numbered
from bcnn.data.sources import Images
from bcnn.engine import Engine
from bcnn.packed import card

BATCH = 256


@dataclass(frozen=True)
class Answer:
    """What was said of one image."""

    image: Path | int  # its file, or its number in a data set without files
    truth: int
    said: int
    probability: float


@dataclass(frozen=True, eq=False)
class Result:
    scores: Scores
    classes: tuple[str, ...]  # as people read them
    how: str
    notes: tuple[str, ...]  # what was decided about the data, and how many images could not be read
    card: card.Card | None = None  # what the file says about itself
    answers: tuple[Answer, ...] = ()  # of a packed file: for every image, in the order of the data set
    numbers: str = "float32"

    def plain(self) -> dict[str, Any]:
        """For JSON, the mistakes by falling probability."""
        scores = self.scores
        return {
            "images": scores.count,
            "top1": scores.top1,
            "top5": scores.top5,
            "loss": scores.loss,
            "how": self.how,
            "classes": list(self.classes),
            "per_class": scores.per_class(),
            "confusion": scores.confusion.tolist(),  # [true][said]
            "mistakes": [
                {
                    "image": str(answer.image),
                    "class": self.classes[answer.truth],
                    "said": self.classes[answer.said],
                    "probability": answer.probability,
                }
                for answer in self.mistakes()
            ],
            "recorded_top1": self.card.top1 if self.card else None,
            "notes": list(self.notes),
        }

    def mistakes(self) -> list[Answer]:
        """The wrong answers by falling probability."""
        return sorted((answer for answer in self.answers if answer.said != answer.truth), key=lambda a: -a.probability)

    def beside(self, other: Result) -> dict[str, Any]:
        """Another model on the same images, and how often both have the same first choice."""
        one, two = (np.concatenate(each.scores.predictions) for each in (self, other))
        same = float(np.mean(one == two)) if len(one) == len(two) else None  # if they could read the same images
        return {"top1": other.scores.top1, "numbers": other.numbers, "same_first_choice": same}


@dataclass(frozen=True)
class Question:
    """What to measure on which images, see `bcnn.models.evaluate.measure`."""

    model: str  # what errors call it
    data: str = ""
    split: str = ""
    strict: bool = False
    only: tuple[str, ...] = ()

    def data_config(self, crop: float, provenance: dict[str, Any]) -> DataConfig:
        """The data set to measure on: the one named, or the embedded one for a network that was trained on it."""
        config = provenance.get("config", {})
        trained_on = config.get("data", {}).get("source") if isinstance(config, dict) else None
        source = self.data or ("digits" if trained_on == "digits" else "")
        if not source:
            raise UserError("no data set to measure on; give one with --data PATH")
        return DataConfig(source=source, crop=crop, strict=self.strict)


def measure_packed(engine: Engine, asked: Question, progress: Progress = silent) -> Result:
    """Scores of what runs in the engine."""
    program, model, only = engine.program, asked.model, asked.only
    config = asked.data_config(program.crop, program.provenance)
    found = sources.find(config.source, strict=asked.strict, split=asked.split, training=False)
    if program.shapes[-1][:2] != (1, 1):
        raise UserError(f"{model} makes a map of {program.shapes[-1]} for an image, no class that could be counted")
    classes = program.shapes[-1][2]
    known = card.folders(program)[: len(engine.classes)]  # data has no folder for none of these
    photos, notes = found.val, found.notes
    if only:
        photos = _some(model, photos, only, known, program.labels, found.classes)
    elif known and set(found.classes) <= set(known):
        photos = _some(model, photos, found.classes, known, known, found.classes)
        if missing := [name for name in known if name not in found.classes]:
            notes += (
                f"{len(found.classes)} of the network's {len(known)} classes, no images of {', '.join(missing[:5])}",
            )
    else:
        check_classes(model, known, len(engine.classes), found.classes)
    unreadable = Unreadable(asked.strict)
    answers: list[Answer] = []

    def look(index: ImageIndices, logits: NDArray[np.float32], truth: ImageIndices) -> None:
        answers.extend(_answers(photos, index, truth, logits))

    found_batches = numbered(photos, program.shapes[0][:2], program.crop, unreadable, BATCH)
    scores = evaluate(engine.run, found_batches, photos.labels, classes, progress, f"measuring {model}", look)
    if not scores.count:
        raise UserError(f"none of the {len(photos)} evaluation images can be read")
    if unreadable:
        notes += (unreadable.summary(),)
    how = f"engine, {engine.isa}"
    return Result(
        scores, program.labels or found.classes, how, notes, card.of(program), tuple(answers), program.numbers
    )


def _answers(photos: Images, index: ImageIndices, labels: ImageIndices, logits: NDArray[np.float32]) -> list[Answer]:
    said = np.argsort(-logits, axis=1, kind="stable")[:, 0]
    shares = softmax(logits)[np.arange(len(said)), said]
    names = [int(i) if isinstance(photos.items, np.ndarray) else photos.items[i] for i in index]
    rows = zip(names, labels, said, shares, strict=True)
    return [Answer(name, int(label), int(choice), float(share)) for name, label, choice, share in rows]


def _some(
    model: str,
    photos: Images,
    only: tuple[str, ...],
    known: tuple[str, ...],
    labels: tuple[str, ...],
    found: tuple[str, ...],
) -> Images:
    """The images of the classes in `only`, named as the data has them or as people read them, with the network's numbers."""
    if not known:
        raise UserError(f"{model} has no names of classes; measure it on all of them")
    folders = []
    for name in only:
        folder = known[labels.index(name)] if name in labels[: len(known)] else name
        if folder not in known or folder not in found:
            here = [label for label, folder in zip(labels, known, strict=False) if folder in found]
            raise UserError(f"no class {name!r} in both {model} and the data; {nearest(name, here)}")
        folders.append(folder)
    number = np.array([known.index(name) if name in folders else -1 for name in found])[photos.labels]
    chosen = photos.take(number >= 0)
    if not len(chosen):
        raise UserError(f"the data has no evaluation images of {', '.join(only)}")
    return Images(chosen.items, number[number >= 0])


def check_classes(model: str, known: tuple[str, ...], classes: int, found: tuple[str, ...]) -> None:
    if (known and known != found) or classes != len(found):
        names = f" ({', '.join(known[:3])}, ...)" if any(known) else ", without names"
        both = "; some that both have: --classes A,B" if set(known) & set(found) else ""
        raise UserError(
            f"{model} knows {classes} classes{names}, the data has {len(found)} ({', '.join(found[:3])}, ...){both}"
        )
