"""A finished run -> a model inside the package: packed, measured, verified, with its card. For maintainers.

    python -m tools.release.ship runs/digits --name digits
    python -m tools.release.ship runs/imagenette --name imagenette --data PATH --numbers int16 --parameters int8
    python -m tools.release.ship imagenette-float.bcnn --name imagenette --data PATH --numbers int16 --parameters int8

Packs the network at the end of the run's last step (not the best one: choosing by the evaluation split would flatter it),
runs the packed file in the engine and the checkpoint in torch over the whole evaluation split, lets `bcnn verify` check
it, and only then writes src/bcnn/packed/zoo/NAME.bcnn. After it: `python -m tools.pages.cards`.

In integers the file is a network of its own, so it is measured beside the float32 one: on a fifth of the training images, chosen by
the hashes of their names, then on the evaluation split. It is refused where it is worse by more than `--allow` points in either.
A float32 file that was shipped before, with its card, may take the run's place: what it says of its training is kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from tools.pages.model_descriptions import MODELS

import bcnn
from bcnn.base.files import digest, write_atomic
from bcnn.base.machine import cpu_name, utc
from bcnn.base.scores import Scores
from bcnn.data import sources
from bcnn.data.decode import Unreadable, batches
from bcnn.engine import Engine, choose_isa
from bcnn.integers import convert
from bcnn.integers.quantize import PARAMETERS
from bcnn.lowering.lower import lower
from bcnn.models.verify import verify
from bcnn.packed import card, packfile, shipped
from bcnn.program.program import Program
from bcnn.training.evaluate import batch_size
from bcnn.training.run_folder import RunFolder
from bcnn.verification import verify_torch

ALLOWED = 0.2  # points of accuracy that integers may cost
FLOAT, SHIPPED, TORCH = "float32", "shipped", "torch"
Logits = Callable[[Any], Any]  # uint8 N,H,W,3 -> N,classes


@dataclass(frozen=True, eq=False)
class Trained:
    """What is to be shipped, before it is measured."""

    program: Program  # in float32
    facts: dict[str, Any]  # those of the card that the training tells
    data: str  # where its images were
    torch_logits: Logits | None = None  # None: packed before, and compared with torch then
    checkpoint: Path | None = None


def ship(
    run: Path,
    name: str,
    data: str = "",
    hardware: str = "",
    folder: Path = shipped.FOLDER,
    numbers: str = FLOAT,
    parameters: str = "int8",
    calibration: Path | None = None,
    allowed: float = ALLOWED,
) -> Path:
    """Everything above, in order; returns the file."""
    if name not in MODELS:
        raise bcnn.UserError(
            f"no model is called {name!r}; write about it in MODELS of tools/pages/model_descriptions.py first"
        )
    trained = of_file(run) if run.is_file() else of_run(run, name, hardware)
    program = trained.program
    if numbers != FLOAT:
        program = convert.in_integers(program, parameters, calibration).program
    found = sources.find(data or trained.data, training=False)  # as `bcnn eval` finds its images
    if list(found.classes) != trained.facts["folders"]:
        raise bcnn.UserError(
            f"the data has the classes {found.classes[:3]} ..., the network {trained.facts['folders'][:3]} ..."
        )
    runs: dict[str, Logits] = {FLOAT: Engine(trained.program).run}
    if numbers != FLOAT:
        runs[SHIPPED] = Engine(program).run
        part = sources.split_off(found.train, sources.SPLIT_SHARE)[1]
        check_cost(measure(trained.program, runs, part), "a fifth of the training images", allowed)
    if trained.torch_logits:
        runs[TORCH] = trained.torch_logits
    scores = measure(trained.program, runs, found.val)
    if numbers != FLOAT:
        check_cost(scores, "the evaluation split", allowed)
    made = card.Card(**trained.facts, **measured(scores))
    program = dataclasses.replace(program, provenance={**program.provenance, card.KEY: made.plain()})
    with tempfile.TemporaryDirectory() as temporary:
        if trained.checkpoint and numbers != FLOAT:  # op by op it is the float32 file that equals torch
            packfile.save(trained.program, Path(temporary) / "float.bcnn")
            passes(Path(temporary) / "float.bcnn", trained.checkpoint)
        packed = Path(temporary) / f"{name}.bcnn"
        packfile.save(program, packed)
        passes(packed, trained.checkpoint)
        target = folder / packed.name
        write_atomic(target, packed.read_bytes())
    same = f"; torch chooses the same class for {made.agreement:.2%} of them" if made.agreement is not None else ""
    print(
        f"{target}: {target.stat().st_size:,} bytes, {digest(target.read_bytes())}; top-1 {made.top1:.2%} of {made.images:,} in the engine{same}; "
        f"after the steps of the training {made.steps}"
    )
    return target


def of_run(run: Path, name: str, hardware: str) -> Trained:
    """A finished run's last step, lowered."""
    about, info = MODELS[name], RunFolder(run).read_info()
    steps = [step["name"] for step in info["config"]["steps"]]
    if list(info.get("accuracy", {})) != steps:
        raise bcnn.UserError(
            f"{run} is not finished: it has accuracies of {list(info.get('accuracy', {}))}, not of {steps}"
        )
    checkpoint = RunFolder(run).step(steps[-1])
    trained = verify_torch.of_checkpoint(checkpoint)
    network, meta = trained.module, trained.meta
    labels = tuple(about.names.get(label, label) for label in meta.labels)
    provenance = {**meta.provenance, "packed_by": f"bcnn {bcnn.__version__}"}
    facts = {
        **{key: value for key, value in dataclasses.asdict(about).items() if key != "names"},
        "folders": list(meta.labels),
        "train_images": info["data"]["train"],
        "steps": info["accuracy"],
        "minutes": round(info["train_seconds"] / 60, 1),
        "hardware": hardware or f"{info['machine'].split(', ')[-1].removesuffix('s')} of {cpu_name()}",
        "trained": info["started"][:10],
        "log": log(RunFolder(run)),
    }
    program = lower(network, meta.mean, meta.std, labels, meta.crop, provenance)
    return Trained(program, facts, info["config"]["data"]["source"], trained.logits, checkpoint)


MEASURED = ("images", "top1", "agreement", "confusion", "engine", "measured", "float_top1", "float_same")


def of_file(path: Path) -> Trained:
    """A float32 file with a card: all that it says but what was measured of it, and how often torch agreed."""
    program = packfile.read(path)
    found = card.of(program)
    if found is None or program.numbers != FLOAT:
        raise bcnn.UserError(f"{path} is no float32 file with a card; give the folder of its run")
    facts = {key: value for key, value in vars(found).items() if key not in MEASURED}
    program = dataclasses.replace(
        program, provenance={key: value for key, value in program.provenance.items() if key != card.KEY}
    )
    facts["agreement"] = found.agreement
    return Trained(program, facts, "")


def measure(program: Program, runs: Mapping[str, Logits], images: sources.Images) -> dict[str, Scores]:
    """Each of `runs` over the same images, all of which must be readable."""
    scores = {name: Scores.of(len(program.labels)) for name in runs}
    size = program.shapes[0][:2]
    batch = batch_size(size, "cpu")
    parts = batches(images, size, program.crop, Unreadable(), batch)
    console = Console(stderr=True)
    for pixels, labels in track(parts, "measuring", -(-len(images) // batch), console=console, transient=True):
        for name, run in runs.items():
            scores[name].add(run(pixels).reshape(len(labels), -1), labels)
    if scores[FLOAT].count != len(images):
        raise bcnn.UserError(f"only {scores[FLOAT].count} of {len(images)} images could be read")
    return scores


def check_cost(scores: Mapping[str, Scores], what: str, allowed: float) -> None:
    before, after = scores[FLOAT].top1, scores[SHIPPED].top1
    print(f"{what}, {scores[FLOAT].count:,} images: float32 {before:.2%}, integers {after:.2%}")
    if 100 * (before - after) > allowed + 1e-9:
        raise bcnn.UserError(
            f"integers cost {100 * (before - after):.2f} points on {what}, more than {allowed:g}: nothing was written; "
            "try --parameters int16, --numbers float32, or --allow POINTS"
        )


def measured(scores: Mapping[str, Scores]) -> dict[str, Any]:
    """The part of the card that says what the file reaches."""
    own, floats = scores.get(SHIPPED, scores[FLOAT]), scores[FLOAT]
    found: dict[str, Any] = {
        "images": own.count,
        "top1": own.top1,
        "confusion": own.confusion.tolist(),
        "engine": choose_isa(None),
        "measured": utc(),
    }
    if TORCH in scores:
        found["agreement"] = same(floats, scores[TORCH])
    if SHIPPED in scores:
        found |= {"float_top1": floats.top1, "float_same": same(floats, own)}
    return found


def same(one: Scores, other: Scores) -> float:
    """The share of images on which both choose the same class."""
    return float(np.mean(np.concatenate(one.predictions) == np.concatenate(other.predictions)))


def passes(packed: Path, checkpoint: Path | None) -> None:
    for check in verify(packed, checkpoint):
        print("pass" if check.passed else "FAIL", check.name, check.detail, sep="  ")
        if not check.passed:
            raise bcnn.UserError(f"{packed.stem} is not what was trained: {check.name} fails; nothing was written")


def log(run: RunFolder) -> list[list[Any]]:
    """A short row an epoch, see `card.LOG`."""
    return [
        [float(f"{value:.4g}") if isinstance(value, float) else value for value in map(record.get, card.LOG)]
        for record in run.read_metrics("epoch")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run, or a float32 file with a card")
    parser.add_argument("--name", required=True, choices=sorted(MODELS))
    parser.add_argument("--data", default="", help="the data set, if it is not where the run found it")
    parser.add_argument("--hardware", default="", help="what it was trained on, if not this machine")
    parser.add_argument("--folder", type=Path, default=shipped.FOLDER, help="where NAME.bcnn goes")
    parser.add_argument("--numbers", default=FLOAT, choices=convert.NUMBERS, help="int16: a file in integers")
    parser.add_argument("--parameters", default="int8", choices=PARAMETERS, help="real parameters of one in integers")
    parser.add_argument(
        "--calibrate", type=Path, help="folder of images that its formats are chosen on; synthetic ones if none"
    )
    parser.add_argument("--allow", type=float, default=ALLOWED, help="points of accuracy that integers may cost")
    arguments = parser.parse_args()
    try:
        ship(
            arguments.run,
            arguments.name,
            arguments.data,
            arguments.hardware,
            arguments.folder,
            arguments.numbers,
            arguments.parameters,
            arguments.calibrate,
            arguments.allow,
        )
    except bcnn.UserError as error:
        sys.exit(f"ship: {error}")


if __name__ == "__main__":
    main()
