"""Binary networks at equal budget on CIFAR-10 (JPEG): about the same binary MACs, the same images, epochs, batch and augmentation.

    python -m benchmarks.equal_budget --data cifar            what is not there yet, one run after another; a killed run goes on
    python -m benchmarks.equal_budget --data cifar --only reactnet-a --seeds 0
    python -m benchmarks.equal_budget --times                 all networks in the engine, in one interleaved run
    python -m benchmarks.equal_budget --hours                 a few updates of each: how long it will take here

Per network (`contestants`): three short runs of 7,500 images choose one of three rates on 10,000 held-out training images; with it
one run of 100,000 images per seed (four epochs of 25,000, others every time), measured on the test images, which chose nothing. All
with binary weights from the first update, measured as the engine runs them. Rates of all come first, then the first seed of all,
then the second seed of the better half. Small networks and a short schedule, about an hour and a half of processor time (`--hours` asks
yours): it shows who learns fast, not who wins in the end.

Every finished run is kept in benchmarks/results/equal-budget.json at once, and what is there is done: a checkout alone is enough to go
on, on any machine. `--out` has the runs under way and their logs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.contestants import BUDGET, Entry, entries, facts_of, times_of

from bcnn.base.errors import UserError
from bcnn.base.files import write_atomic
from bcnn.nets import network_spec
from bcnn.training import recipes
from bcnn.training.config import Step, TrainConfig

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "equal-budget.json"
EPOCH_IMAGES = 25_000  # of the 50,000 that CIFAR-10 has to train on, others every time
RATES = (2e-3, 5e-3, 1e-2)  # the same small grid for all
HELD_OUT = 0.2  # of the training images while the rate is chosen
STEP = Step(name="binary", weights="binary", warmup=1, epochs=3, weight_decay=0.0)
CHOOSING, CHOOSING_IMAGES = replace(STEP, epochs=2), 2_500  # of one of its epochs
BATCH = 64
CURVE = ("epoch", "updates", "lr", "loss", "train_accuracy", "accuracy")  # what is kept of an epoch


def schedule() -> dict[str, Any]:
    """What all runs have in common: results of another schedule are another comparison."""
    plain = {name: value for name, value in dataclasses.asdict(STEP).items() if value != getattr(Step(), name)}
    choosing = {"epochs": CHOOSING.total_epochs, "images": CHOOSING_IMAGES, "held_out": HELD_OUT, "rates": list(RATES)}
    return {"binary_macs": BUDGET, "batch": BATCH, "step": plain, "images": EPOCH_IMAGES, "choosing": choosing}


def run_of(entry: Entry, lr: float, seed: int, choosing: bool) -> TrainConfig:
    """The data of the recipe `cifar10`; all entries have all of this in common but the network and the rate."""
    same = recipes.cifar10()
    return replace(
        same,
        recipe="equal-budget",
        network=entry.network,
        data=replace(same.data, evaluate="test", hold_out=HELD_OUT if choosing else 0.0),  # held-out images go first
        steps=(replace(CHOOSING if choosing else STEP, lr=lr),),
        epoch_images=CHOOSING_IMAGES if choosing else EPOCH_IMAGES,
        seed=seed,
        batch=BATCH,
        evaluate_every=100,
        evaluate_with="engine",
        threads=1,
        tensorboard=False,
    )


# --- what is finished -----------------------------------------------------------------------------------------------


def stored() -> dict[str, Any]:
    """The results so far; those of another schedule or of other networks are no part of this comparison."""
    if not RESULTS.exists():
        return {"schedule": schedule(), "times": {}, "networks": {}}
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    known = entries()
    same = all(
        name in known and record["network"] == json.loads(json.dumps(network_spec.to_plain(known[name].network)))
        for name, record in found["networks"].items()
    )
    if not same or found["schedule"] != json.loads(json.dumps(schedule())):
        raise UserError(f"{RESULTS} has runs of another schedule or other networks: move it away to begin anew")
    return found


def store(results: dict[str, Any]) -> None:
    from tools.pages import rivals_page

    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(RESULTS, (json.dumps(results, indent=1) + "\n").encode())
    rivals_page.write()


def record_of(folder: Path) -> dict[str, Any]:
    """What is kept of a finished run."""
    from bcnn.training.run_folder import RunFolder

    run = RunFolder(folder)
    info = run.read_info()
    curve = [{name: epoch[name] for name in CURVE} for epoch in run.read_metrics("epoch")]
    return {
        "top1": float(list(info["accuracy"].values())[-1]),
        "lr": run.config().steps[-1].lr,
        "seconds": info["train_seconds"],
        "commit": info["commit"],
        "curve": curve,
    }


# --- runs -----------------------------------------------------------------------------------------------------------


def trained(name: str, lr: float, seed: int, choosing: bool, data: str, out: Path) -> float:
    """Top-1 of a run that is stored, or finished, resumed or begun here."""
    from bcnn.training.run import TrainingRun
    from bcnn.training.run_folder import RunFolder
    from bcnn.training.run_training import train

    kind, key = ("rates", f"{lr:g}") if choosing else ("seeds", str(seed))
    record = stored()["networks"].get(name, {"rates": {}, "seeds": {}})
    if key in record[kind]:
        return float(record[kind][key]["top1"])
    folder, run = out / f"{name}-{kind}-{key}", run_of(entries()[name], lr, seed, choosing)
    if not folder.joinpath("run.json").exists():
        if not data:
            raise UserError(f"{folder.name} is still to be trained: name the images with --data")
        train(TrainingRun(replace(run, data=replace(run.data, source=data)), RunFolder(folder)))
    elif "accuracy" not in RunFolder(folder).read_info():
        train(TrainingRun.resumed(folder))
    made, results = record_of(folder), stored()
    results["networks"].setdefault(name, {**facts_of(entries()[name]), "rates": {}, "seeds": {}})[kind][key] = made
    store(results)
    return float(made["top1"])


def campaign(names: list[str], seeds: list[int], data: str, out: Path) -> None:
    """Rates first, then the first seed of all, then more seeds of the better half."""
    best = {}
    for name in names:
        scores = {lr: trained(name, lr, 0, True, data, out) for lr in RATES}
        best[name] = max(scores, key=lambda lr: scores[lr])
    for index, seed in enumerate(seeds):
        if index:
            first = {name: trained(name, best[name], seeds[0], False, data, out) for name in names}
            names = sorted(first, key=lambda name: -first[name])[: (len(first) + 1) // 2]
        for name in names:
            trained(name, best[name], seed, False, data, out)


def times() -> None:
    """What all cost, and their times in the engine: of one machine, whichever trained them."""
    from bcnn.base.machine import facts

    results = stored()
    for name, entry in entries().items():
        runs = results["networks"].get(name, {"rates": {}, "seeds": {}})
        results["networks"][name] = {**facts_of(entry), "rates": runs["rates"], "seeds": runs["seeds"]}
    results["times"] = {"facts": facts(threads=1), "ms": times_of(list(entries()))}
    store(results)


def hours(names: list[str], updates: int = 4) -> dict[str, float]:
    """Of each network on one core, all its runs: from the least processor time of an update. Decoding images comes on top."""
    import torch
    from torch.nn import functional as F

    from bcnn.nets import fused
    from bcnn.training import adam

    torch.set_num_threads(1)
    choosing = len(RATES) * CHOOSING.total_epochs * CHOOSING_IMAGES
    images = choosing + 1.5 * STEP.total_epochs * EPOCH_IMAGES  # half of the networks have a second seed
    made = {}
    for name in names:
        run = run_of(entries()[name], RATES[0], 0, False)
        network = network_spec.build(run.network.replace(classes=10))
        optimizer = adam.adam(network, run.steps[-1])
        x, y = torch.randn(run.batch, 3, *run.network.image_size), torch.arange(run.batch) % 10
        taken = []
        with fused.cores(network):
            for _ in range(updates):
                began = time.process_time()
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(network(x), y).backward()
                optimizer.step()
                taken.append(time.process_time() - began)
        made[name] = min(taken) * images / run.batch / 3600
        print(f"{name}: {1000 * min(taken):.0f} ms of processor time an update, {made[name]:.2f} h", flush=True)
    print(f"all, with a second seed for half of them: {sum(made.values()):.1f} h")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="", help="folder of CIFAR-10 with train/CLASS/*.jpg")
    parser.add_argument("--out", type=Path, default=Path("runs/equal-budget"), help="where the runs under way are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", nargs="+", choices=sorted(entries()), help="these networks alone")
    parser.add_argument("--times", action="store_true", help="train nothing: counts, and times in the engine")
    parser.add_argument("--hours", action="store_true", help="train nothing: only estimate how long it takes")
    arguments = parser.parse_args()
    names = arguments.only or list(entries())
    if arguments.hours:
        hours(names)
    elif arguments.times:
        times()
    else:
        campaign(names, arguments.seeds, arguments.data, arguments.out)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(str(error)) from None
