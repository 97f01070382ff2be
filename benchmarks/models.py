"""The README's front table: the shipped models and the paper's network against float and int8, in one interleaved run.

    python -m benchmarks.models --out benchmarks/results/models-zen5-avx2.json      measure, and write the table into README.md
    python -m benchmarks.models --out ... --avx2                          everyone with AVX2, on a processor that has more
    python -m benchmarks.models --readme benchmarks/results/models-zen5-avx2.json   write the table of a stored result: accuracies and sizes of the
                                                                     models as they are now, times as they were measured

Every contestant is checked before it is timed, has one thread, and takes turns with all others in one process. "The same
network in float" is the faster of ONNX Runtime and torch eager; int8 MobileNetV1 has the same input size and classes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.only_avx2 import hold
from benchmarks.pages import put_between

from bcnn.base.files import write_atomic
from bcnn.base.machine import facts
from bcnn.bench.rival import Job
from bcnn.bench.rivals import ENGINE, INTEGERS, MAKERS, job_of, make
from bcnn.bench.timing import interleave
from bcnn.counting.counts import count
from bcnn.integers.quantize import fixed
from bcnn.integers.synthetic_images import pictures
from bcnn.models.bench import job
from bcnn.nets.config import NetworkConfig, from_dict, preset
from bcnn.packed import card, packfile, shipped

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
START, END = "<!-- front table: python -m benchmarks.models -->\n", "<!-- end of the front table -->\n"
FLOAT = ("ONNX Runtime, float Conv", "PyTorch, eager")
INT8 = ("ONNX Runtime, MobileNetV1 int8", "OpenVINO, MobileNetV1 int8")
PAPER = "imagenet"
PAPER_TOP1 = 0.6896  # sec. 6.1: the paper's figure after the second cycle; not trained by us


def network(name: str) -> tuple[Job, NetworkConfig, dict[str, Any]]:
    """The job, its config, and what the table says about the network besides times."""
    if name == PAPER:
        made, config = job_of(preset(PAPER)), preset(PAPER)
        with tempfile.TemporaryDirectory() as folder:
            small = fixed(made.program, pictures(*config.image_size, 3), "int8").program  # as the shipped models are
            size = packfile.save(small, Path(folder) / "paper.bcnn").total
        return made, config, {"top1": PAPER_TOP1, "bytes": size, "of": "the paper"}
    made = job(name)
    found = card.of(made.program)
    if found is None:
        raise SystemExit(f"{name} has no card; ship it with python -m tools.release.ship")
    about = {"top1": found.top1, "bytes": shipped.find(name).stat().st_size, "of": found.data}
    return made, from_dict(made.program.provenance["config"]["network"]), about


def refreshed(result: dict[str, Any]) -> dict[str, Any]:
    """A stored result with what the packed files in the package say now; a model that was never timed here has no times."""
    rows = {row["network"]: row for row in result["rows"]}
    made = []
    for name in shipped.names():
        packed = packfile.open_packed(shipped.find(name))
        found = card.of(packed.program)
        if found is None:
            raise SystemExit(f"{name} has no card; ship it with python -m tools.release.ship")
        counts = count(from_dict(packed.program.provenance["config"]["network"])).counts
        row = rows.get(name, {"network": name, "times": {}, "skipped": {}})
        about = {"input": list(packed.program.shapes[0][:2]), "top1": found.top1, "bytes": packed.sizes.total}
        about |= {"of": found.data, "binary_macs": counts.binary_macs}
        made.append({**row, **about, "float_bytes": 4 * (counts.binary_params + counts.real_params)})
    return {**result, "rows": [*made, *(row for row in result["rows"] if row["network"] == PAPER)]}


def measure(rounds: int) -> dict[str, Any]:
    makers = {name: MAKERS[name] for name in (ENGINE, INTEGERS, *FLOAT, *INT8)}
    rows, runs = [], {}
    for name in (*shipped.names(), PAPER):
        made, config, about = network(name)
        rivals, skipped = make(
            made, makers, lambda maker, name=name: print(f"checking {name}: {maker}", file=sys.stderr)
        )
        counts = count(config).counts
        about |= {"binary_macs": counts.binary_macs, "float_bytes": 4 * (counts.binary_params + counts.real_params)}
        rows.append({"network": name, "input": list(config.image_size), **about, "times": rivals, "skipped": skipped})
        runs |= {f"{name}: {rival.name}": rival.run for rival in rivals}
    times = interleave(runs, rounds, lambda done: print(f"turn {done} of {rounds}", end="\r", file=sys.stderr))
    for row in rows:
        row["times"] = {
            rival.name: {
                "computes": rival.computes,
                "checked": rival.checked,
                **dataclasses.asdict(times[f"{row['network']}: {rival.name}"]),
            }
            for rival in row["times"]
        }
    return {"facts": facts(threads=1), "rows": rows}


# --- the table ------------------------------------------------------------------------------------------------------


def table(result: dict[str, Any], source: str) -> str:
    """The part of the README between the two markers: what the networks are, and how fast."""
    lines = ["| network | top-1 | packed file | ms an image |", "|---|---:|---:|---:|"]
    speed = ["| ms, min (median) | int16 | float32 | float elsewhere | MobileNetV1 int8 |", "|---|---:|---:|---:|---:|"]
    for row in result["rows"]:
        height, width = row["input"]
        paper = row["network"] == PAPER
        title = "the paper's, P=1" if paper else f"[{row['network']}](docs/models.md#{row['network']})"
        top1 = f"{row['top1']:.2%}" + (" (the paper's)" if paper else f" of {row['of']}")
        best = _ms(row, (INTEGERS,)).split(" ")[0]
        lines.append(f"| {title}, {height} x {width} | {top1} | {row['bytes'] / 1e6:.2f} MB | {best} |")
        cells = (_ms(row, (INTEGERS,)), _ms(row, (ENGINE,)), _ms(row, FLOAT), _ms(row, INT8))
        speed.append(f"| {row['network']} | {' | '.join(cells)} |")
    about = result["facts"]
    where = f"{about['cpu']}, {about['isa']}" if "isa" in about else about["cpu"]
    return "\n".join(
        [
            *lines,
            "",
            f"One image, one thread, all in turns in one process: {where}, {about['date']} ([{source}]({source})). Elsewhere: the faster of ONNX Runtime and",
            "PyTorch with the same network; MobileNetV1 of the same input size in the faster of ONNX Runtime and OpenVINO, random weights. P: branches of a convolution.",
            "",
            *speed,
            "",
        ]
    )


def _ms(row: dict[str, Any], names: tuple[str, ...]) -> str:
    """The fastest of `names`: min and median."""
    found = [row["times"][name] for name in names if name in row["times"]]
    if not found:
        return "-"
    best = min(found, key=lambda times: times["min"])
    return f"{_short(best['min'])} ({_short(best['median'])})"


def _short(ms: float) -> str:
    return f"{ms:.3f}" if ms < 0.1 else f"{ms:.2f}" if ms < 10 else f"{ms:.1f}"


def put_into(readme: str, made: str) -> str:
    return put_between(readme, START, made, END)


def write_readme(path: Path) -> None:
    source = path.resolve().relative_to(ROOT).as_posix()
    made = table(json.loads(path.read_text(encoding="utf-8")), source)
    README.write_text(put_into(README.read_text(encoding="utf-8"), made), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="measure, write this file and the README's table")
    what.add_argument(
        "--readme",
        type=Path,
        help="only the README's table of this file, whose accuracies and sizes are brought up to date",
    )
    parser.add_argument("--rounds", type=int, default=20, help="turns: each contestant is timed once a turn")
    parser.add_argument("--avx2", action="store_true", help="hold everyone to AVX2")
    arguments = parser.parse_args()
    path = arguments.out or arguments.readme
    if not path.resolve().is_relative_to(ROOT):
        parser.error(f"{path} is outside {ROOT.name}: the README links to it")
    if arguments.out:
        held = {"isa": hold()} if arguments.avx2 else {}
        os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is first imported
        result = measure(arguments.rounds)
        result["facts"] |= held
        write_atomic(arguments.out, (json.dumps(result, indent=2) + "\n").encode())
    else:
        stored = json.loads(arguments.readme.read_text(encoding="utf-8"))
        write_atomic(arguments.readme, (json.dumps(refreshed(stored), indent=2) + "\n").encode())
    write_readme(path)


if __name__ == "__main__":
    main()
