"""The experiments behind the recipes: variants of small runs on CIFAR-10 (JPEG) and Imagenette, and their table.

    python -m benchmarks.experiments --data cifar --photos imagenette      what is not there yet, one run after another
    python -m benchmarks.experiments --table                               only collect the results and write the table

A run that was killed goes on where it was. Accuracy is measured on training images held out of the training: no figure here
has seen the test images. `--table` writes benchmarks/results/experiments.json, the table between the marks in
docs/experiments.md, and its picture.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.pages import put_between

from bcnn.base.errors import UserError
from bcnn.counting import counts
from bcnn.nets import config
from bcnn.training import recipes
from bcnn.training.config import Step, TrainConfig

RESULTS = Path("benchmarks/results/experiments.json")
PAGE = Path("docs/experiments.md")
PICTURE = Path("docs/images/experiments.png")
BEGIN, END = "<!-- table: python -m benchmarks.experiments --table -->", "<!-- end of table -->"


@dataclass(frozen=True)
class Variant:
    """One row: what is asked, what is changed, and the run that answers."""

    question: str
    change: str
    run: TrainConfig
    reference: str = "base"  # the variant it is compared with
    images: str = "data"  # the option that names them


def base() -> TrainConfig:
    """A third of the preset's width, 8.7 M binary MACs, 20,000 images: minutes a run, and still far from saturated."""
    step1 = Step(name="step1", warmup=1, epochs=2, lr=6e-3)
    step2 = replace(step1, name="step2", weights="binary", epochs=5, lr=1e-2, weight_decay=0.0)
    return small(
        recipes.cifar10(),
        config.preset("cifar10").replace(name="cifar10-narrow", stem={"replicate": 4}),
        0.6,
        step1,
        step2,
    )


def photos() -> TrainConfig:
    """The network of the recipe `imagenette` at 64 x 64, 70 % of its training photos, twelve epochs."""
    recipe = recipes.imagenette()
    step1 = Step(name="step1", warmup=1, epochs=2, lr=4e-3)
    step2 = replace(step1, name="step2", weights="binary", epochs=8, lr=6e-3, weight_decay=0.0)
    return small(recipe, recipe.network.replace(image_size=(64, 64)), 0.3, step1, step2)


def small(recipe: TrainConfig, network: config.NetworkConfig, hold_out: float, *steps: Step) -> TrainConfig:
    """The recipe's images and batches, with a part of the training images held out to measure on."""
    return replace(
        recipe,
        recipe="experiment",
        network=network,
        data=replace(recipe.data, hold_out=hold_out),
        steps=steps,
        evaluate_every=100,
        tensorboard=False,
        threads=1,
    )


def variants() -> dict[str, Variant]:
    """Every variant by the name of its run folder. Those of one reference see the same images for the same number of epochs."""
    same = base()
    step1, step2 = same.steps

    def with_steps(*steps: Step) -> TrainConfig:
        return replace(same, steps=steps)

    def with_rate(lr: float) -> TrainConfig:
        return with_steps(step1, replace(step2, lr=lr))

    def with_long_rate(lr: float, clip: bool = False) -> TrainConfig:
        return with_steps(step1, replace(step2, lr=lr, epochs=17, clip=clip))

    def with_wide_rate(lr: float) -> TrainConfig:
        first, second = replace(step1, epochs=1), replace(step2, lr=lr, epochs=8)
        return replace(same, network=recipes.cifar10().network, steps=(first, second))

    def with_photos_rate(lr: float, epochs: int = 8) -> TrainConfig:
        first, second = photos().steps
        return replace(photos(), steps=(first, replace(second, lr=lr, epochs=epochs)))

    rate = "Learning rate of step 2"
    steps = "One step or two"
    teacher = "A teacher"
    twin = replace(step1, name="twin", weights="float", epochs=2)
    two = same.network.replace(branches=2, name="cifar10-p2").scaled(equal_width())
    return {
        "base": Variant("The reference", f"two steps, {step2.lr:g} in step 2, no teacher, P = 1, no clipping", same),
        "prelu": Variant("The two PReLU readings", "`module` instead of `block`", replace(same, network=same.network.replace(prelu="module"))),
        "rate-low": Variant(rate, f"{step2.lr / 4:g}", with_rate(step2.lr / 4)),
        "rate-high": Variant(rate, f"{step2.lr * 2:g}", with_rate(step2.lr * 2)),
        "one-step": Variant(steps, "step 2 alone, for as many epochs", with_steps(replace(step2, epochs=8))),
        "long-step1": Variant(steps, "step 1 for 1 + 4, step 2 for 1 + 3", with_steps(replace(step1, epochs=4), replace(step2, epochs=3))),
        "twin-teaches": Variant(
            teacher, "the float twin, trained first (1 + 2 epochs more) and taught from in both steps",
            with_steps(twin, replace(step1, teacher="twin"), replace(step2, teacher="twin")),
        ),
        "step1-teaches": Variant(teacher, "the network of step 1", with_steps(step1, replace(step2, teacher="step1"))),
        "p2": Variant("P = 1 or P = 2 at equal binary MACs", "P = 2, narrower", replace(same, network=two)),
        "clip": Variant("Latent weights clipped", "to [-1, 1] in step 2", with_steps(step1, replace(step2, clip=True))),
        "long": Variant(f"{rate}, three times as long", "0.006", with_long_rate(6e-3), "long"),
        "long-rate-high": Variant(f"{rate}, three times as long", "0.02", with_long_rate(2e-2), "long"),
        "long-rate-high-clip": Variant(f"{rate}, three times as long", "0.02, latent weights clipped to [-1, 1]", with_long_rate(2e-2, clip=True), "long"),
        "wide": Variant(f"{rate}, at the recipe's width", "0.006", with_wide_rate(6e-3), "wide"),
        "wide-rate-high": Variant(f"{rate}, at the recipe's width", "0.02", with_wide_rate(2e-2), "wide"),
        "photos": Variant(f"{rate}, on photos", "0.006", with_photos_rate(6e-3), "photos", "photos"),
        "photos-rate-high": Variant(f"{rate}, on photos", "0.02", with_photos_rate(2e-2), "photos", "photos"),
        "photos-long": Variant(f"{rate}, on photos, four times as long", "0.006", with_photos_rate(6e-3, 34), "photos-long", "photos"),
        "photos-long-rate": Variant(f"{rate}, on photos, four times as long", "0.01", with_photos_rate(1e-2, 34), "photos-long", "photos"),
    }  # fmt: skip


def equal_width() -> float:
    """The width at which P = 2 has the binary MACs nearest to those of P = 1."""
    wanted = binary_macs(base())
    two = base().network.replace(branches=2)
    widths = [step / 100 for step in range(50, 101)]
    return min(widths, key=lambda width: abs(counts.count(two.scaled(width)).counts.binary_macs - wanted))


def binary_macs(run: TrainConfig) -> int:
    return counts.count(run.network).counts.binary_macs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="", help="folder of CIFAR-10 with train/CLASS/*.jpg")
    parser.add_argument("--photos", default="", help="folder of Imagenette with train/CLASS/*.JPEG")
    parser.add_argument("--out", type=Path, default=Path("runs/experiments"), help="where the runs are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", nargs="+", choices=sorted(variants()), help="these variants alone")
    parser.add_argument("--table", action="store_true", help="train nothing, write the table")
    args = parser.parse_args()
    if not args.table:
        for seed in args.seeds:  # all variants once before any of them twice
            for name in args.only or variants():
                train(name, seed, getattr(args, variants()[name].images), args.out)
    write_table(args.out)


def train(name: str, seed: int, data: str, out: Path) -> None:
    from bcnn.training.run import TrainingRun
    from bcnn.training.run_folder import RunFolder
    from bcnn.training.run_training import train as start

    variant, folder = variants()[name], out / f"{name}-{seed}"
    if (folder / "run.json").exists():
        if "accuracy" not in RunFolder(folder).read_info():
            start(TrainingRun.resumed(folder))
        return
    if not data:
        raise UserError(f"{folder} is still to be trained: name its images with --{variant.images}")
    run = variant.run
    start(TrainingRun(replace(run, seed=seed, data=replace(run.data, source=data)), RunFolder(folder)))


# --- the table ------------------------------------------------------------------------------------------------------


def collect(out: Path) -> list[dict[str, Any]]:
    """A record for every variant that has a finished run."""
    from bcnn.training.run_folder import RunFolder

    records = []
    for name, variant in variants().items():
        seeds = {}
        for path in sorted(out.glob(f"{name}-[0-9]*")):
            info = RunFolder(path).read_info()
            if "accuracy" in info:
                last = RunFolder(path).read_metrics("epoch")[-1]
                seeds[str(info["seed"])] = {"accuracy": info["accuracy"], "outside": last["outside"]}
        if seeds:
            records.append(
                {"name": name, "reference": variant.reference, "question": variant.question, "change": variant.change,
                 "macs": binary_macs(variant.run), "seeds": seeds}
            )  # fmt: skip
    return records


def table(records: list[dict[str, Any]]) -> str:
    lines = [
        "| question | variant | binary MACs | top-1 of each seed | to the reference | latent weights outside [-1, 1] |",
        "|---|---|---:|---:|---:|---:|",
    ]
    references = {record["name"]: finals(record) for record in records}
    for record in records:
        top1 = finals(record)
        each = ", ".join(f"{100 * value:.2f}" for value in top1.values())
        difference = "" if is_reference(record) else f"{100 * gain(top1, references[record['reference']]):+.2f}"
        outside = statistics.mean(seed["outside"] for seed in record["seeds"].values())
        lines.append(
            f"| {record['question']} | {record['change']} | {record['macs'] / 1e6:.2f} M | {each} | {difference} | {outside:.1%} |"
        )
    return "\n".join(lines)


def finals(record: dict[str, Any]) -> dict[str, float]:
    """Seed -> top-1 after the last step."""
    return {seed: float(list(run["accuracy"].values())[-1]) for seed, run in record["seeds"].items()}


def is_reference(record: dict[str, Any]) -> bool:
    return bool(record["name"] == record["reference"])


def gain(top1: dict[str, float], reference: dict[str, float]) -> float:
    """Over the seeds that both have: the same weights to begin with, the same crops in the same order."""
    return statistics.mean(top1[seed] - reference[seed] for seed in top1 if seed in reference)


def draw(records: list[dict[str, Any]]) -> None:
    """A row a variant, a dot a seed; a band behind the rows that share a reference spans its seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 0.42 * len(records) + 0.9), layout="constrained")
    for row, record in enumerate(records):
        top1 = [100 * value for value in finals(record).values()]
        color = "#b5651d" if is_reference(record) else "#2f5d8a"
        axis.plot(top1, [row] * len(top1), "o", color=color, markersize=7, alpha=0.8)
        if is_reference(record):
            last = max(i for i, other in enumerate(records) if other["reference"] == record["name"])
            axis.fill_betweenx(
                [row - 0.5, last + 0.5], min(top1) - 0.03, max(top1) + 0.03, color=color, alpha=0.15, linewidth=0
            )
    axis.set_yticks(range(len(records)), [record["name"] for record in records])
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel("top-1 on held-out images, %; a dot a seed, the band spans the seeds of the reference")
    figure.savefig(PICTURE, dpi=110)
    pyplot.close(figure)


def put_into(page: str, made: str) -> str:
    return put_between(page, f"{BEGIN}\n", made, f"\n{END}")


def write_table(out: Path) -> None:
    records = collect(out)
    if not records or records[0]["name"] != "base":
        raise UserError(f"no finished run of the reference in {out}")
    RESULTS.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(put_into(PAGE.read_text(encoding="utf-8"), table(records)), encoding="utf-8")
    draw(records)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(str(error)) from None
