"""benchmarks/results/equal-budget.json (`bench.equal_budget`) -> the section of docs/rivals.md about it, with any number of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.pages import read, table

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "equal-budget.json"


def equal_budget() -> str:
    found = read(RESULTS)
    records: dict[str, Any] = found.get("networks", {})
    if not records:
        return "Nothing is trained yet. `python -m benchmarks.equal_budget --data PATH` does it and fills this table.\n"
    best = {
        name: max((run["top1"] for run in record["seeds"].values()), default=0.0) for name, record in records.items()
    }
    lines = []
    for name in sorted(records, key=lambda name: -best[name]):
        record = records[name]
        top1 = ", ".join(f"{run['top1']:.2%}" for _, run in sorted(record["seeds"].items())) or "not trained yet"
        ms = found["times"].get("ms", {}).get(name)
        real = f"{record['real_products'] / 1e6:.1f} M MACs real" if record["real_products"] else "nothing"
        real += ", zeros around +-1 maps" if record["padded_products"] else ""
        lines.append(
            (name, record["scaled"], top1, rate(found, record), f"{record['binary_macs'] / 1e6:.1f}", f"{record['real_macs'] / 1e6:.1f}",
             f"{record['param_bytes'] / 1e6:.3f}", f"{ms:.2f}" if ms else "", real)
        )  # fmt: skip
    header = "network | how it was scaled | top-1, each seed | rate | binary MACs, M | real MACs, M | parameters, MB | engine, ms | what is not 1 bit"
    return table(header, lines, words=2) + "\n" + state(found)


def answer() -> str:
    """Who to take, from the means of the seeds: the most accurate, those that nobody beats in less time, and with bits alone."""
    found = read(RESULTS)
    mean = {
        name: sum(run["top1"] for run in one["seeds"].values()) / len(one["seeds"])
        for name, one in found.get("networks", {}).items()
        if one["seeds"]
    }
    ms: dict[str, float] = found.get("times", {}).get("ms", {})
    if not mean or any(name not in ms for name in mean):
        return ""
    ranked = sorted(mean, key=lambda name: -mean[name])
    front = [name for i, name in enumerate(ranked) if all(ms[name] < ms[other] for other in ranked[:i])]
    said = ", ".join(f"{name} ({mean[name]:.1%} in {ms[name]:.2f} ms)" for name in front)
    bits = next(
        name
        for name in ranked
        if not found["networks"][name]["real_products"] + found["networks"][name]["padded_products"]
    )
    tops = [[run["top1"] for run in one["seeds"].values()] for one in found["networks"].values()]
    spread = (
        max(max(seeds) - min(seeds) for seeds in tops if len(seeds) > 1)
        if any(len(seeds) > 1 for seeds in tops)
        else None
    )
    text = f"More accurate than these was nobody in as little time: {said}. With nothing but 1 x 1 bit products: {bits}, {mean[bits]:.1%}."
    if spread is not None:
        text += (
            f" Two seeds of one network differed by up to {100 * spread:.1f} points; smaller differences say nothing."
        )
    return text + "\n\n"


def rate(found: dict[str, Any], record: dict[str, Any]) -> str:
    """The best of all that the schedule tries, once all have been tried."""
    tried = record["rates"]
    return (
        max(tried, key=lambda lr: tried[lr]["top1"])
        if len(tried) == len(found["schedule"]["choosing"]["rates"])
        else ""
    )


def state(found: dict[str, Any]) -> str:
    """What is finished, and what the times are of."""
    records = found["networks"].values()
    chosen, once = sum(bool(rate(found, one)) for one in records), sum(bool(one["seeds"]) for one in records)
    twice = sum(len(one["seeds"]) > 1 for one in records)
    said = f"{once} of {len(records)} networks are trained, {twice} of them with a second seed; {chosen} have tried all rates."
    if found["times"]:
        facts = found["times"]["facts"]
        said += f" Times: one image, one thread, the least processor time of one interleaved run, float32 (load {facts['load']}); {facts['cpu']}, {facts['date'][:10]}."
    return said + "\n"


def budget_schedule() -> str:
    found = read(RESULTS).get("schedule")
    if found is None:
        return ""
    step, choosing = found["step"], found["choosing"]
    grid = ", ".join(f"{lr:g}" for lr in choosing["rates"])
    return f"""CIFAR-10 (JPEG), about {found["binary_macs"] / 1e6:.0f} M binary MACs each, the same images, augmentation, batch ({found["batch"]}), Adam and {step["warmup"] + step["epochs"]} epochs of {found["images"]:,} images, with binary weights from the
first update. The rate of each is the best of {grid} after {choosing["epochs"] * choosing["images"]:,} images, on training images that were held out. Top-1 is on the 10,000 test images, which chose nothing, in this
engine. Small networks and short schedules: these are not the accuracies that the networks can reach."""
