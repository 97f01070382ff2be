"""Binary networks at equal budget on CIFAR-10 (JPEG): about the same binary MACs, the same images, epochs, batch and augmentation.

    python -m bench.equal_budget --data cifar            what is not there yet, one run after another; a killed run goes on
    python -m bench.equal_budget --data cifar --only reactnet-a --seeds 0
    python -m bench.equal_budget --collect               train nothing, write the results and docs/rivals.md
    python -m bench.equal_budget --hours                 a few updates of each: how long it will take here

Per network: short runs on a part of the training images choose one of three rates on held-out images; with it one run on all of
them per seed, measured on the test images, which chose nothing. The second seed is for the better half. Schedules are short.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bcnn.count.counts import count
from bcnn.errors import UserError
from bcnn.files import write_atomic
from bcnn.nets import chosen, config
from bcnn.nets.chosen import AnyNetwork
from bcnn.train import recipes
from bcnn.train.config import Step, TrainConfig

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "equal-budget.json"
IMAGES = 50_000  # of CIFAR-10 to train on
BUDGET, TOLERANCE = 85e6, 0.2  # binary MACs; most networks have widths in steps of eight channels only
RATES = (2e-3, 5e-3, 1e-2)  # the same small grid for all
HELD_OUT = 0.7  # of the training images while the rate is chosen: 15,000 train, 35,000 measure
STEP1 = Step(name="step1", weights="real", warmup=1, epochs=1, lr=4e-3)
STEP2 = Step(name="step2", weights="binary", warmup=1, epochs=7, weight_decay=0.0)
CHOOSING = replace(STEP2, epochs=2)


@dataclass(frozen=True)
class Entry:
    """One contestant and how it came to its budget."""

    network: AnyNetwork
    scaled: str


def entries() -> dict[str, Entry]:
    resnet = "ResNet-18 for 32 x 32, 24 channels in its first level instead of 64"

    def bcnn(branches: int) -> Entry:
        wide = config.preset("cifar10").replace(branches=branches)
        widths = [step / 100 for step in range(50, 131)]
        width = min(widths, key=lambda width: abs(count(wide.scaled(width)).counts.binary_macs - BUDGET))
        return Entry(wide.scaled(width), f"the preset `cifar10`, P = {branches}, {width:g} times as wide")

    def named(name: str, scaled: str, **choices: Any) -> Entry:
        return Entry(chosen.resolve(name).replace(**choices), scaled)

    r18 = {"width": 24 / 64}
    return {
        "bcnn-p1": bcnn(1),
        "bcnn-p2": bcnn(2),
        "bnn": named("bnn-r18-cifar", resnet, **r18),
        "xnornet": named("xnornet-r18-cifar", resnet, **r18),
        "xnornetpp": named("xnornetpp-r18-cifar", resnet, **r18),
        "abcnet": named(
            "abcnet-r18-cifar", "ResNet-18 for 32 x 32, 8 channels, 3 x 3 bases instead of 5 x 5",
            width=8 / 64, weight_bases=3, activation_bases=3,
        ),
        "birealnet": named("birealnet-18-cifar", resnet, **r18),
        "groupnet": named("groupnet-r18-cifar", "ResNet-18 for 32 x 32, 16 channels, 2 bases instead of 5", width=16 / 64, bases=2),
        "meliusnet": named("meliusnet-22-cifar", "MeliusNet 22 for 32 x 32, growth 16 instead of 64", width=16 / 64),
        "reactnet-a": named("reactnet-a-cifar", "ReActNet-A for 32 x 32, 16 channels in its first layer instead of 32", width=16 / 32),
        "reactnet-r18": named("reactnet-r18-cifar", resnet, **r18),
        "real2bin": named("real2bin-r18-cifar", resnet, **r18),
    }  # fmt: skip


def run_of(entry: Entry, lr: float, seed: int, choosing: bool) -> TrainConfig:
    """The data of the recipe `cifar10`; all entries have all of this in common but the network and the rate."""
    same = recipes.cifar10()
    steps = (replace(CHOOSING, lr=lr),) if choosing else (STEP1, replace(STEP2, lr=lr))
    data = replace(same.data, hold_out=HELD_OUT if choosing else 0.0)
    return replace(
        same, recipe="equal-budget", network=entry.network, data=data, steps=steps, seed=seed,
        batch=64, evaluate_every=100, threads=1, tensorboard=False,
    )  # fmt: skip


def trained(run: TrainConfig, folder: Path, data: str) -> float:
    """Top-1 after the last step of a run that is finished, resumed or begun here."""
    from bcnn.train.run import RunFolder
    from bcnn.train.start import train

    if not folder.joinpath("run.json").exists():
        if not data:
            raise UserError(f"{folder} is still to be trained: name the images with --data")
        train(replace(run, data=replace(run.data, source=data)), folder)
    elif "accuracy" not in RunFolder(folder).read_info():
        train(None, folder, resume=True)
    return float(list(RunFolder(folder).read_info()["accuracy"].values())[-1])


def folder_of(out: Path, name: str, lr: float, seed: int, choosing: bool) -> Path:
    return out / (f"{name}-choose-{lr:g}" if choosing else f"{name}-{seed}")


def campaign(names: list[str], seeds: list[int], data: str, out: Path) -> None:
    """Rates first, then the first seed of all, then more seeds of the better half."""
    known = entries()
    best = {}
    for name in names:
        scores = {
            lr: trained(run_of(known[name], lr, 0, True), folder_of(out, name, lr, 0, True), data) for lr in RATES
        }
        best[name] = max(scores, key=lambda lr: scores[lr])
    for index, seed in enumerate(seeds):
        if index:
            first = {name: trained(run_of(known[name], best[name], seeds[0], False), folder_of(out, name, 0, seeds[0], False), data)
                     for name in names}  # fmt: skip
            names = sorted(first, key=lambda name: -first[name])[: (len(first) + 1) // 2]
        for name in names:
            trained(run_of(known[name], best[name], seed, False), folder_of(out, name, 0, seed, False), data)
            collect(out)


# --- results --------------------------------------------------------------------------------------------------------


def collect(out: Path) -> None:
    """What is finished, as small JSON beside what was collected before, and the page."""
    from tools import rivals_page

    from bcnn.train.run import RunFolder

    records = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name, entry in entries().items():
        rates, seeds = {}, {}
        for path in sorted(out.glob(f"{name}-*")):
            tail = path.name.removeprefix(f"{name}-")
            info = RunFolder(path).read_info()
            if "accuracy" not in info:
                continue
            top1 = float(list(info["accuracy"].values())[-1])
            if tail.startswith("choose-"):
                rates[tail.removeprefix("choose-")] = top1
            elif tail.isdigit():
                seeds[tail] = {
                    "top1": top1,
                    "seconds": info["train_seconds"],
                    "epochs": RunFolder(path).read_metrics("epoch"),
                }
        if rates or seeds:
            records[name] = {**facts_of(entry), "rates": rates, "seeds": seeds, "scaled": entry.scaled}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(RESULTS, (json.dumps(records, indent=1) + "\n").encode())
    rivals_page.write()


def facts_of(entry: Entry) -> dict[str, Any]:
    """Counts, what is not 1 bit, and the time in the engine, of the network as it was trained."""
    import torch

    from bcnn.bench.pytorch import program_of, sample_network
    from bcnn.bench.sample import sample_image
    from bcnn.bench.timing import interleave
    from bcnn.count.audit import audit
    from bcnn.count.captured import count_network
    from bcnn.deploy.engine import Engine

    network = sample_network(entry.network)
    counts = count_network(network, entry.network.image_size).counts
    report = audit(network, torch.randn(1, 3, *entry.network.image_size, generator=torch.Generator().manual_seed(0)))
    engine = Engine(program_of(network, entry.network.image_size), threads=1)
    image = sample_image(*entry.network.image_size)[None]
    return {
        "network": chosen.to_plain(entry.network),
        "binary_macs": counts.binary_macs,
        "real_macs": counts.real_macs,
        "param_bytes": counts.paper_param_bytes,
        "real_products": sum(op.macs for op in report.failures if max(op.bits) > 2),
        "padded_products": sum(op.macs for op in report.failures if max(op.bits) <= 2),
        "engine_ms": interleave({"engine": lambda: engine.run(image)}, 30)["engine"].cpu,
    }


def macs_of(network: AnyNetwork) -> int:
    """Binary MACs from one pass without values, on torch's meta device."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from bcnn.nets.latent import latents

    if isinstance(network, config.NetworkConfig):
        return count(network).counts.binary_macs
    with torch.device("meta"), torch.no_grad():
        module = chosen.build(network).eval()
        with FlopCounterMode(display=False) as counter:
            module(torch.empty(1, 3, *network.image_size))
    flops = counter.get_flop_counts()
    names = {name for name, layer in latents(module) if getattr(layer.rules, "activation", "") != "none"}
    found = {where: sum(n for op, n in by.items() if "convolution" in str(op)) // 2 for where, by in flops.items()}
    return sum(macs for where, macs in found.items() if where.partition(".")[2] in names)


def hours(names: list[str], updates: int = 4) -> dict[str, float]:
    """Of one network on one core, all its runs with one seed: from the least processor time of an update, images apart."""
    import torch
    from torch.nn import functional as F

    from bcnn.train import adam, fused

    torch.set_num_threads(1)
    epochs = STEP1.total_epochs + STEP2.total_epochs + (1 - HELD_OUT) * len(RATES) * CHOOSING.total_epochs
    made = {}
    for name in names:
        run = run_of(entries()[name], RATES[0], 0, False)
        network = chosen.build(run.network.replace(classes=10))
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
        made[name] = min(taken) * IMAGES / run.batch * epochs / 3600
        print(f"{name}: {1000 * min(taken):.0f} ms of processor time an update, {made[name]:.1f} h a seed", flush=True)
    print(f"all with one seed: {sum(made.values()):.0f} h")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="", help="folder of CIFAR-10 with train/CLASS/*.jpg")
    parser.add_argument("--out", type=Path, default=Path("runs/equal-budget"), help="where the runs are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", nargs="+", choices=sorted(entries()), help="these networks alone")
    parser.add_argument("--collect", action="store_true", help="train nothing, write the results and the page")
    parser.add_argument("--hours", action="store_true", help="only estimate how long it takes")
    arguments = parser.parse_args()
    names = arguments.only or list(entries())
    if arguments.hours:
        hours(names)
        return
    if not arguments.collect:
        campaign(names, arguments.seeds, arguments.data, arguments.out)
    collect(arguments.out)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(str(error)) from None
