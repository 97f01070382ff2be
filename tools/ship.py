"""A finished run -> a model inside the package: packed, measured, verified, with its card. For maintainers.

    python -m tools.ship runs/digits --name digits
    python -m tools.ship runs/imagenette --name imagenette --data PATH

Packs the network at the end of the run's last step (not the best one: choosing by the evaluation split would flatter it),
runs the packed file in the engine and the checkpoint in torch over the whole evaluation split, lets `bcnn verify` check
it, and only then writes src/bcnn/deploy/zoo/NAME.bcnn. After it: `python -m tools.cards`.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

import bcnn
from bcnn.bench.timing import cpu
from bcnn.data import sources
from bcnn.data.decode import Unreadable, batches
from bcnn.deploy import card, shipped, verify_torch
from bcnn.deploy.engine import Engine
from bcnn.deploy.fields import digest
from bcnn.deploy.packfile import save
from bcnn.deploy.verify import verify
from bcnn.files import write_atomic
from bcnn.program.lower import lower
from bcnn.program.program import Program
from bcnn.scores import Scores
from bcnn.train.evaluate import batch_size
from bcnn.train.run import RunFolder


@dataclass(frozen=True)
class About:
    """What a person writes about a model; everything else on its card is measured."""

    title: str
    about: str
    limits: str
    data: str
    licence: str
    names: dict[str, str] = field(default_factory=dict)  # class folder -> label for people, where they differ


MODELS = {
    "imagenette": About(
        title="Ten classes of photos",
        about="Says which of ten easily told things a photo shows: a tench (a fish), an English springer (a dog), a cassette player, "
        "a chain saw, a church, a French horn, a garbage truck, a gas pump, a golf ball or a parachute. The five-level structure of the paper "
        "at a width that trains on one CPU core.",
        limits="Knows these ten classes only: any other photo is put into one of them, often with a high probability. One centred object a "
        "photo; no boxes, no counting. The classes are ten of ImageNet's, photographed as its pictures are; drawings, dark or cluttered "
        "photos are outside of what it has seen.",
        data="Imagenette",
        licence="Imagenette is a subset of ImageNet chosen by fast.ai, here resized to 224 x 224. Its photos belong to their authors; ImageNet grants "
        "access for non-commercial research and education. The photos are not part of this package, only weights trained on them.",
        names={
            "n01440764": "tench",
            "n02102040": "English springer",
            "n02979186": "cassette player",
            "n03000684": "chain saw",
            "n03028079": "church",
            "n03394916": "French horn",
            "n03417042": "garbage truck",
            "n03425413": "gas pump",
            "n03445777": "golf ball",
            "n03888257": "parachute",
        },
    ),
    "cifar10": About(
        title="Ten classes of thumbnails",
        about="Tells ten kinds of vehicles and animals apart on 32 x 32 pixels.",
        limits="Made for thumbnails: a photo is shrunk to 32 x 32 pixels first, and little is left of a small object. Knows its ten classes only; "
        "anything else is put into one of them. The images were JPEG-compressed by a third party, so the figure is not strictly comparable to "
        "those published on the original CIFAR-10.",
        data="CIFAR-10 (JPEG)",
        licence="CIFAR-10 was collected by Alex Krizhevsky, Vinod Nair and Geoffrey Hinton as a labelled part of 80 Million Tiny Images, from the web "
        "and without a stated licence for the single images. The images are not part of this package, only weights trained on them.",
    ),
    "digits": About(
        title="Ten handwritten digits",
        about="Reads a handwritten digit from 8 x 8 grey pixels, light on dark. The network that `make quickstart` trains.",
        limits="Toy data: one centred digit, light strokes on a dark ground, 8 x 8 pixels. Photos of paper, dark ink or several digits do not work.",
        data="scikit-learn's digits",
        licence="Optical Recognition of Handwritten Digits by E. Alpaydin and C. Kaynak, from the UCI repository (CC BY 4.0), as included in scikit-learn.",
    ),
}


def ship(run: Path, name: str, data: str = "", hardware: str = "", folder: Path = shipped.FOLDER) -> Path:
    """Everything above, in order; returns the file."""
    if name not in MODELS:
        raise bcnn.UserError(f"no model is called {name!r}; write about it in MODELS of tools/ship.py first")
    about, info = MODELS[name], RunFolder(run).read_info()
    steps = [step["name"] for step in info["config"]["steps"]]
    if list(info.get("accuracy", {})) != steps:
        raise bcnn.UserError(
            f"{run} is not finished: it has accuracies of {list(info.get('accuracy', {}))}, not of {steps}"
        )
    checkpoint = RunFolder(run).step(steps[-1])
    network, meta = verify_torch.load(checkpoint)
    labels = tuple(about.names.get(label, label) for label in meta.labels)
    provenance = {**meta.provenance, "packed_by": f"bcnn {bcnn.__version__}"}
    program = lower(network, meta.mean, meta.std, labels, meta.crop, provenance)

    found = sources.find(data or info["config"]["data"]["source"])
    if found.classes != meta.labels:
        raise bcnn.UserError(f"the data has the classes {found.classes[:3]} ..., the run {meta.labels[:3]} ...")
    engine = Engine(program)
    scores, agree = measure(program, engine, verify_torch.logits(network, meta), found.val)
    if scores.count != len(found.val):
        raise bcnn.UserError(f"only {scores.count} of {len(found.val)} evaluation images could be read")
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    made = card.Card(
        **{key: value for key, value in dataclasses.asdict(about).items() if key != "names"},
        folders=list(meta.labels),
        train_images=info["data"]["train"],
        images=scores.count,
        steps=info["accuracy"],
        minutes=round(info["train_seconds"] / 60, 1),
        hardware=hardware or f"{info['machine'].split(', ')[-1].removesuffix('s')} of {cpu().split(';')[0]}",
        trained=info["started"][:10],
        top1=scores.top1,
        agreement=agree / scores.count,
        confusion=scores.confusion.tolist(),
        engine=engine.isa,
        measured=today,
        log=log(RunFolder(run)),
    )
    program = dataclasses.replace(program, provenance={**provenance, card.KEY: made.plain()})
    with tempfile.TemporaryDirectory() as temporary:
        packed = Path(temporary) / f"{name}.bcnn"
        save(program, packed)
        for check in verify(packed, checkpoint):
            print("pass" if check.passed else "FAIL", check.name, check.detail, sep="  ")
            if not check.passed:
                raise bcnn.UserError(f"{name} is not what was trained: {check.name} fails; nothing was written")
        target = folder / packed.name
        write_atomic(target, packed.read_bytes())
    print(
        f"{target}: {target.stat().st_size:,} bytes, {digest(target.read_bytes()).hex()}; top-1 {scores.top1:.2%} of {scores.count:,} in the engine; "
        f"torch chooses the same class for {agree:,} of them; run's own accuracies {info['accuracy']}"
    )
    return target


def measure(program: Program, engine: Engine, torch_logits: Any, images: sources.Images) -> tuple[Scores, int]:
    """The engine's scores, and on how many images torch's first choice is the same."""
    scores, agree = Scores.of(len(program.labels)), 0
    size = program.shapes[0][:2]
    batch = batch_size(size, "cpu")
    parts = batches(images, size, program.crop, Unreadable(), batch)
    console = Console(stderr=True)
    for pixels, labels in track(parts, "engine and torch", -(-len(images) // batch), console=console, transient=True):
        scores.add(engine.run(pixels).reshape(len(labels), -1), labels)
        agree += int((scores.predictions[-1] == torch_logits(pixels).argmax(1)).sum())
    return scores, agree


def log(run: RunFolder) -> list[list[Any]]:
    """A short row an epoch, see `card.LOG`."""
    return [
        [float(f"{value:.4g}") if isinstance(value, float) else value for value in map(record.get, card.LOG)]
        for record in run.read_metrics("epoch")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--name", required=True, choices=sorted(MODELS))
    parser.add_argument("--data", default="", help="the data set, if it is not where the run found it")
    parser.add_argument("--hardware", default="", help="what it was trained on, if not this machine")
    parser.add_argument("--folder", type=Path, default=shipped.FOLDER, help="where NAME.bcnn goes")
    arguments = parser.parse_args()
    try:
        ship(arguments.run, arguments.name, arguments.data, arguments.hardware, arguments.folder)
    except bcnn.UserError as error:
        sys.exit(f"ship: {error}")


if __name__ == "__main__":
    main()
