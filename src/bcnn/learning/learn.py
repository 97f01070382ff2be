"""New classes for a packed network: features from the engine, a new decoder by regression, in seconds. No torch.

    photos -> size (`choose`) -> features (`photos`) -> penalty (`choose`) -> decoder (`fit`) -> none of these (`none`) -> file (`head`)

The photos held out decide nothing but the threshold of "none of these"; the accuracy is measured on them with the finished network, in
the engine. `add` gives a learned file one class more, from that class's photos and what the file remembers of the others (`memory`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcnn.base.errors import UserError
from bcnn.base.files import digest
from bcnn.base.machine import cpu_name, utc
from bcnn.base.progress import Progress, silent
from bcnn.base.scores import Scores, evaluate
from bcnn.base.version import __version__
from bcnn.data.decode import Unreadable, numbered
from bcnn.data.sources import SPLIT_SHARE, Images, Source, check_labels, split_off
from bcnn.engine import Engine
from bcnn.learning import choose, class_centroids, rejection
from bcnn.learning.classifier_ops import Head, put_on, taken_off
from bcnn.learning.features import features
from bcnn.learning.fit import Decoder, Scale, path
from bcnn.learning.photos import BATCH, Read, folder, read
from bcnn.packed import card, packfile, shipped
from bcnn.program.program import Program

KEY = "learned"


@dataclass(frozen=True)
class Wishes:
    """What a user may ask for."""

    start: str = ""  # a shipped model or a packed file; "": the best of the shipped ones
    size: tuple[int, int] | None = None  # None: by held-out photos
    none: bool = False  # whether "none of these" is an answer
    others: str = ""  # a folder of photos that show none of the classes
    strict: bool = False  # stop at the first unreadable photo


@dataclass(frozen=True, eq=False)
class Learned:
    """A finished network and what is known of it."""

    program: Program
    scores: Scores  # of the held-out photos; a refused one counts as wrong
    sizes: tuple[choose.Size, ...]  # that were tried
    penalty: float
    seconds: float
    unreadable: tuple[str, ...]
    refused: float | None  # share of the held-out photos that are called none of these
    others_refused: float | None  # share of held-out photos of other things that are, too


def learn(source: Source, wishes: Wishes, data: str, progress: Progress = silent) -> Learned:
    """A network for the classes of `source`. `data` is what the card calls the photos."""
    started, unreadable = time.perf_counter(), Unreadable(wishes.strict)
    rejects = bool(wishes.none or wishes.others)
    labels = (*source.classes, rejection.NAME) if rejects else source.classes
    check_labels(labels)
    origin, classes = _start(wishes.start), len(source.classes)
    tried: tuple[choose.Size, ...] = ()
    height, width = wishes.size or origin.program.shapes[0][:2]
    if wishes.size is None:
        best, tried = choose.size(origin.program, source.train, classes, unreadable, progress)
        height, width = best.height, best.width
    reader = features(origin.program, height, width)
    train = read(reader, source.train, unreadable, f"reading at {height} x {width}", progress)
    penalty, _ = choose.penalty(train, classes)
    scale = Scale.of(train.x, *train.limits)
    x = scale(train.x)
    kept, others_refused = class_centroids.remember(x, train.y, classes), None
    if wishes.others:
        others = folder(wishes.others, 0)
        for_fit, held_out = (
            scale(read(reader, part, unreadable, "reading other photos", progress).x)
            for part in split_off(others, SPLIT_SHARE)
        )
        decoder = rejection.from_others(x, train.y, for_fit, penalty, classes)
        seen = rejection.with_strangeness(np.concatenate([x, for_fit]))
        kept = class_centroids.remember(seen, np.append(train.y, np.full(len(for_fit), classes)), classes + 1)
        others_refused = float(
            (rejection.in_fit(decoder)(rejection.with_strangeness(held_out)).argmax(axis=1) == classes).mean()
        )
    else:
        decoder = path(x, train.y, penalty, classes)
        if wishes.none:
            held = read(reader, source.val, unreadable, "reading held-out photos", progress)
            decoder = rejection.from_known(decoder, rejection.threshold(decoder, scale(held.x)))
    program = put_on(reader, Head(scale, decoder, rejects), labels, {}, x)
    scores = measured(program, source.val, unreadable, progress)
    if not scores.count:
        raise UserError(f"none of the {len(source.val)} held-out photos can be read")
    seconds = time.perf_counter() - started
    learned: dict[str, Any] = {
        "from": origin.name,
        "from_digest": origin.digest,
        "size": [height, width],
        "tried": [[size.height, size.width, round(size.accuracy, 4)] for size in tried],
        "penalty": penalty,
        "photos": len(train.y),
        "unreadable": len(unreadable),
        "others_refused": others_refused,
        "by": f"bcnn {__version__}",
    }
    provenance = {KEY: learned, card.KEY: _card(program, scores, train, data, seconds, origin).plain()}
    provenance[class_centroids.KEY] = kept.plain()
    refused = float(scores.confusion[:, -1].sum()) / scores.count if rejects else None
    program = replace(program, provenance=provenance)
    return Learned(program, scores, tried, penalty, seconds, tuple(unreadable.sentences), refused, others_refused)


def add(start: str, name: str, photos: Images, strict: bool = False, progress: Progress = silent) -> Learned:
    """The learned file `start` with one class more, called `name`; a fifth of its photos is held out. The other classes are
    known by what the file remembers of them, so nothing is measured of theirs."""
    started, unreadable = time.perf_counter(), Unreadable(strict)
    origin = _start(start)
    old = origin.program
    head = taken_off(old)
    kept = (
        class_centroids.of(old, head.decoder.weight.shape[0]) or class_centroids.of(old, head.scale.scale.size)
        if head
        else None
    )
    classes = len(card.classes(old))
    if head is None or kept is None or len(kept.x) not in (classes, len(old.labels)):
        raise UserError(
            f"{start} remembers no photos of its classes; give the folder it was learned from, too: "
            f"bcnn learn PHOTOS --from {start} --add {name}=FOLDER"
        )
    if name in old.labels:
        raise UserError(f"{start} has a class {name!r} already; give the new one another name")
    reader = features(old, *old.shapes[0][:2])
    for_fit, held_out = split_off(photos, SPLIT_SHARE)
    train = read(reader, for_fit, unreadable, "reading the new class", progress)
    x = scaled = head.scale(train.x)
    labels = (*card.classes(old), name, *old.labels[classes:])
    if len(kept.x) == len(old.labels) > classes:  # none of these was learned as a class, and reads the strangeness
        x = rejection.with_strangeness(x)
        decoder = class_centroids.add(kept, rejection.in_fit(head.decoder), x)
        order = [*range(classes), classes + 1, classes]
        decoder = rejection.in_file(Decoder(decoder.weight[:, order], decoder.bias[order]))
        kept = class_centroids.joined(kept, class_centroids.remember(x, np.zeros(len(x), np.int64), 1))
        kept = class_centroids.Memory(kept.x[order], kept.counts[order])
    else:
        d = head.scale.scale.size
        known = Decoder(head.decoder.weight[:d, :classes], head.decoder.bias[:classes])
        decoder = class_centroids.add(kept, known, x)
        kept = class_centroids.joined(kept, class_centroids.remember(x, np.zeros(len(x), np.int64), 1))
        if old.rejects:  # photos of a new class are strange to the old ones: the threshold rises until they pass
            own = read(reader, held_out, unreadable, "reading held-out photos", progress)
            both = np.concatenate([x, head.scale(own.x)])
            b = min(float(head.decoder.bias[-1]), rejection.threshold_of_few(decoder, both))
            decoder = rejection.from_known(decoder, b)
    seen = np.concatenate([scaled, kept.x.reshape(-1, kept.x.shape[-1])[:, : scaled.shape[1]]])
    program = put_on(reader, Head(head.scale, decoder, old.rejects), labels, {}, seen)
    held = Images(held_out.items, np.full(len(held_out), classes, np.int64))
    scores = measured(program, held, unreadable, progress)
    right = int(scores.confusion[classes, classes])
    added = {"class": name, "photos": len(x), "held_out": scores.count, "right": right, "by": f"bcnn {__version__}"}
    learned = old.provenance.get(KEY)
    learned = dict(learned) if isinstance(learned, dict) else {}
    learned["added"] = [*(learned["added"] if isinstance(learned.get("added"), list) else []), added]
    found = card.of(old)
    if found:  # measured before the class was there, so it is no card of this file
        learned.setdefault("before", {"top1": found.top1, "images": found.images})
    program = replace(program, provenance={KEY: learned, class_centroids.KEY: kept.plain()})
    seconds = time.perf_counter() - started
    return Learned(program, scores, (), class_centroids.PENALTY, seconds, tuple(unreadable.sentences), None, None)


def with_class(source: Source, name: str, photos: Images) -> Source:
    """`source` with one class more behind the others; a fifth of its photos is held out."""
    if name in source.classes:
        raise UserError(f"there is a class {name!r} among the photos already; give the new one another name")
    parts = [
        Images([*old.items, *new.items], np.append(old.labels, np.full(len(new), len(source.classes), np.int64)))
        for old, new in zip((source.train, source.val), split_off(photos, SPLIT_SHARE), strict=True)
    ]
    return Source((*source.classes, name), parts[0], parts[1], source.notes)


def measured(program: Program, photos: Images, unreadable: Unreadable, progress: Progress) -> Scores:
    """The finished network over photos, in the engine."""
    found = numbered(photos, program.shapes[0][:2], program.crop, unreadable, BATCH)
    return evaluate(Engine(program).run, found, photos.labels, program.shapes[-1][2], progress, "measuring")


@dataclass(frozen=True, eq=False)
class _Origin:
    name: str
    digest: str
    program: Program


def _start(model: str) -> _Origin:
    path = shipped.find(model or shipped.start())
    program = packfile.read(path)
    return _Origin(path.name, digest(path.read_bytes()), program)


def _card(program: Program, scores: Scores, train: Read, data: str, seconds: float, origin: _Origin) -> card.Card:
    start, today = card.of(origin.program), utc()
    named = card.classes(program)
    return card.Card(
        title=f"{len(named)} classes of {data}",
        about=f"Tells {', '.join(named)} apart: a decoder learned on the features of {origin.name}, whose binary layers are unchanged.",
        limits="Knows these classes only. Its features are those of the network it was learned from; fine-tuning may find better ones.",
        data=data,
        licence=f"Of the start: {start.licence}" if start else "",
        folders=list(program.labels),
        train_images=len(train.y),
        images=scores.count,
        steps={},
        minutes=round(seconds / 60, 2),
        hardware=cpu_name(),
        trained=today,
        top1=scores.top1,
        agreement=None,
        confusion=scores.confusion.tolist(),
        engine=Engine(program).isa,
        measured=today,
        log=[],
    )


def data_name(path: str) -> str:
    """What a card calls a folder of photos: its own name, nothing of where it lies."""
    name = Path(path).resolve().name
    return name if name.isprintable() and name else "photos"
