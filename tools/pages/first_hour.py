"""docs/first_hour.md: what a new user types and sees in the first hour, from a fresh clone to a packed classifier of photos nobody tuned on.

    python -m tools.pages.first_hour photos --about 'Photos of six kinds of landscape, ...'        the whole hour, then the page
    python -m tools.pages.first_hour photos --about '...' --minutes 3 --venv .venv                 a short one, nothing installed
    python -m tools.pages.first_hour --page                                                        the page from what was recorded

Every command is run as it is printed, in a new folder, and its output is the page's; what is recorded lies in benchmarks/results. The
figures of the baselines beside it are those of `python -m benchmarks.photos photos --record benchmarks/results/photos.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bcnn.base.files import write_atomic
from bcnn.base.machine import cpu, utc
from bcnn.training.time_estimate import duration

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "first_hour.md"
RECORD = ROOT / "benchmarks" / "results" / "first-hour.json"
BASELINES = ROOT / "benchmarks" / "results" / "photos.json"
SHOWN = 34  # lines of a command's output: its first and last ones
TIMES = {"cnn": "a plain float CNN of {parameters:,} parameters, 64 x 64", "histogram": "a colour histogram with trees",
         "learn": "logistic regression on frozen features: `bcnn learn`", "train": "`bcnn train --minutes {minutes:g}`"}  # fmt: skip


def commands(minutes: float, photo: str, install: bool) -> list[tuple[str, str]]:
    """(what it is for, the command), in the order of the hour."""
    first = [
        ("A fresh clone, into a virtual environment. The native core is compiled here.", "git clone -q bcnn.git bcnn"),
        ("", "python3 -m venv venv && venv/bin/pip install -q './bcnn[train]' && . venv/bin/activate"),
    ]
    rest = [
        ("The photos: a folder for each class.", "ls photos"),
        ("Seconds: a decoder for these classes on the shipped backbone.", "bcnn learn photos -o first.bcnn"),
        ("It answers already.", f"bcnn predict {photo} -m first.bcnn"),
        (
            "Minutes: the whole network, on one core, in the time it was given.",
            f"bcnn train --data photos --minutes {minutes:g} --set threads=1",
        ),
        ("What it takes for what.", "bcnn eval runs/photos/model.bcnn --data photos --mistakes wrong"),
        ("The file, checked on this machine, and used.", "bcnn verify runs/photos/model.bcnn"),
        ("", f"bcnn predict {photo} -m runs/photos/model.bcnn"),
    ]
    return [*(first if install else []), *rest]


def hour(photos: Path, about: str, minutes: float, venv: Path | None) -> dict[str, Any]:
    """Run it all; stops at the first command that fails."""
    from bcnn.data.config import DataConfig
    from bcnn.data.sources import find_source

    source = find_source(DataConfig(source=str(photos)))
    some = next(iter(source.val.items))
    assert isinstance(some, Path)
    done = []
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "photos").symlink_to(photos.resolve())
        (here / "bcnn.git").symlink_to(ROOT)
        photo = (Path("photos") / some.resolve().relative_to(photos.resolve())).as_posix()
        bin_ = (venv.resolve() if venv else here / "venv") / "bin"
        environment = {
            **os.environ,
            "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "HOME": folder,
        }
        environment.pop("PYTHONPATH", None)
        if venv:  # the code of this checkout, with what is installed there
            environment["PYTHONPATH"] = str(ROOT / "src")
            command = here / "bcnn"
            command.write_text(f'#!/bin/sh\nexec {bin_}/python -m bcnn "$@"\n')
            command.chmod(0o755)
            environment["PATH"] = f"{here}{os.pathsep}{environment['PATH']}"
        for text, command_line in commands(minutes, shown_path(photo), venv is None):
            print(f"$ {command_line}", flush=True)
            began = time.monotonic()
            result = subprocess.run(
                command_line, shell=True, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )  # fmt: skip
            if result.returncode:
                sys.exit(f"{result.stdout}\nthis failed: {command_line}")
            seconds = time.monotonic() - began
            print(f"  {seconds:.0f} s", flush=True)
            output = result.stdout.replace(str(here) + os.sep, "").replace(str(photos.resolve()), "photos")
            done.append({"text": text, "command": command_line, "seconds": round(seconds, 1), "output": output})
    return {
        "about": about, "minutes": minutes, "photos": photos.resolve().name, "installed": venv is None, "machine": cpu(), "commands": done,
        "train": len(source.train), "val": len(source.val), "classes": list(source.classes), "date": utc(),
    }  # fmt: skip


def shown_path(path: str) -> str:
    return f"'{path}'" if re.search(r"[^\w./-]", path) else path


def page(record: dict[str, Any], baselines: dict[str, Any]) -> str:
    total = sum(command["seconds"] for command in record["commands"])
    lines = [
        "# The first hour",
        "",
        "From a fresh clone to a packed classifier of photos that no setting was tuned on. Every command below was run as it stands here, by "
        "`python -m tools.pages.first_hour`, and this page was written from what it printed.",
        "",
        f"The photos: {record['about']} {len(record['classes'])} classes, {record['train']:,} photos to learn from, {record['val']:,} held out. "
        f"{record['machine']}, {record['date']}. In all {duration(total)}"
        + ("." if record["installed"] else "; everything was installed before."),
        "",
        *table(record, baselines),
    ]
    for command in record["commands"]:
        lines += [command["text"], ""] if command["text"] else []
        took = f"    # {duration(command['seconds'])}" if command["seconds"] >= 5 else ""
        lines += ["```", f"$ {command['command']}{took}", *output(command["output"]), "```", ""]
    return "\n".join(lines)


def table(record: dict[str, Any], baselines: dict[str, Any]) -> list[str]:
    """What these photos and others come to, beside what else could have been done with them."""
    sets = sorted(
        (name for name, found in baselines.items() if len(found) > 1), key=lambda name: name != record["photos"]
    )
    if not sets:
        return []
    rows = []
    for method, title in TIMES.items():
        results = [baselines[name].get(method) for name in sets]
        known = next((result for result in results if result), None)
        if known:
            cells = [f"{r['accuracy']:.1%}, {duration(r['cpu_seconds'])}" if r else "" for r in results]
            rows.append(
                f"| {title.format(**{'minutes': record['minutes'], 'parameters': 0} | known)} | {' | '.join(cells)} |"
            )
    if right := re.search(r"^top-1 ([\d.]+)%", "\n".join(one["output"] for one in record["commands"]), re.MULTILINE):
        here = [
            f"{float(right[1]):.1f}%, {record['minutes']:g} min by the clock" if name == record["photos"] else ""
            for name in sets
        ]
        rows.append(f"| `bcnn train`, as below | {' | '.join(here)} |")
    counts = [max(baselines[name].values(), key=lambda r: r["val"]) for name in sets]
    heads = [
        f"{name}: {r['classes']} classes, {r['train']:,} photos, {r['val']:,} held out"
        for name, r in zip(sets, counts, strict=True)
    ]
    return [
        "Beside what else could be done with these photos, and with others: held-out photos that were right, and processor time of one core (`python -m benchmarks.photos`).",
        "",
        f"| | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(sets)}",
        *rows,
        "",
    ]


def output(text: str) -> list[str]:
    """As a screen shows it in the end; of a long one the beginning and the end."""
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").splitlines()]
    lines = [line for line in lines if line]
    if len(lines) <= SHOWN:
        return lines
    half = SHOWN // 2
    return [*lines[:half], f"... {len(lines) - 2 * half} lines ...", *lines[-half:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, nargs="?")
    parser.add_argument("--about", default="", help="a sentence on the photos and where they are from")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--venv", type=Path, help="take this environment, install nothing")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page again")
    args = parser.parse_args()
    if not args.page:
        if not args.photos or not args.about:
            parser.error("give a folder of photos, and --about")
        record = hour(args.photos, args.about, args.minutes, args.venv)
        write_atomic(RECORD, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
    write_atomic(PAGE, made().encode())
    print(f"wrote {PAGE}")


def made() -> str:
    """The page of what is recorded."""
    baselines = json.loads(BASELINES.read_text(encoding="utf-8")) if BASELINES.exists() else {}
    return page(json.loads(RECORD.read_text(encoding="utf-8")), baselines)


if __name__ == "__main__":
    main()
