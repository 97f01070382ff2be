"""The folder a run leaves behind, and all that is in it:

run.json        complete config, seed, versions, git commit, command, data; at the end, the accuracy after every step
metrics.jsonl   one line per epoch, and one per `meter_every` updates
*.safetensors   see `checkpoint`
report.html     curves (loss, accuracy, learning rate, flips), written when the run ends; PNGs of them beside it
tensorboard/    the same for TensorBoard, where that is installed
.lock           held by the process that trains here
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shlex
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcnn.base.errors import UserError
from bcnn.base.files import write_atomic
from bcnn.training import lock, settings
from bcnn.training.config import TrainConfig

# The kinds of records in metrics.jsonl, and what places one in its run.
PLACE_KEYS = {"update": ("updates",), "epoch": ("updates", "epochs_done")}


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def info(self) -> Path:
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def last(self) -> Path:
        return self.path / "last.safetensors"

    @property
    def best(self) -> Path:
        return self.path / "best.safetensors"

    @property
    def packed(self) -> Path:
        """Of a run that packs itself."""
        return self.path / "model.bcnn"

    def step(self, name: str) -> Path:
        return self.path / f"{name}.safetensors"

    def resume_command(self) -> str:
        return f"bcnn train --resume --out {shlex.quote(str(self.path))}"

    # --- run.json ---------------------------------------------------------------------------------------------------

    def make(self) -> None:
        try:
            str(self.path.resolve()).encode()
        except UnicodeEncodeError:  # checkpoints could be written there, but safetensors could not read them again
            raise UserError(f"the path of {self.path} is no text (UTF-8); name another --out") from None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the run folder {self.path}: {error.strerror}; name another --out") from None

    def locked(self) -> AbstractContextManager[None]:
        """While the block lasts, no other process trains here."""
        return lock.locked(self.path / ".lock", str(self.path))

    def create(self, config: TrainConfig) -> None:
        """run.json of a new run; a folder that holds one already is left alone."""
        if self.info.exists():
            raise UserError(
                f"{self.path} holds a run already; continue it with: {self.resume_command()}, or name another --out"
            )
        self.make()
        from bcnn.training.provenance import Circumstances

        circumstances = dataclasses.asdict(Circumstances.now())
        self.write_info({"config": settings.to_dict(config), "seed": config.seed, **circumstances})

    def read_info(self) -> dict[str, Any]:
        if not self.info.is_file():
            raise UserError(f"nothing to resume in {self.path}: it has no run.json")
        try:
            info: Any = json.loads(self.info.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.info} is damaged: {error}") from None
        if not isinstance(info, dict):
            raise UserError(f"{self.info} is damaged: it holds no table of keys and values")
        return info

    def write_info(self, info: dict[str, Any]) -> None:
        write_atomic(self.info, (json.dumps(info, indent=2) + "\n").encode())

    def config(self) -> TrainConfig:
        info = self.read_info()
        if "config" not in info:
            raise UserError(f"{self.info} has no config")
        return settings.from_dict(info["config"])

    # --- metrics.jsonl ----------------------------------------------------------------------------------------------

    def log(self, record: dict[str, Any]) -> None:
        numbers = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(numbers) + "\n")  # JSON knows neither NaN nor infinity

    def read_metrics(self, kind: str = "") -> list[dict[str, Any]]:
        """The records of a kind ("epoch", "update"). A line that was cut short by a kill or damaged later is no record."""
        records = []
        text = self.metrics.read_text(encoding="utf-8", errors="replace") if self.metrics.is_file() else ""
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(record, dict) or record.get("kind") not in ((kind,) if kind else tuple(PLACE_KEYS)):
                continue
            if all(isinstance(record.get(name), int) for name in PLACE_KEYS[record["kind"]]):
                records.append(record)
        return records

    def rewind_metrics(self, updates: int, epochs: int) -> None:
        """Forget what was logged after the checkpoint that the run resumes from: it will happen again."""
        kept = [
            record
            for record in self.read_metrics()
            if (record["updates"] <= updates if record["kind"] == "update" else record["epochs_done"] <= epochs)
        ]
        write_atomic(self.metrics, "".join(json.dumps(record) + "\n" for record in kept).encode())


def free_folder(name: str) -> Path:
    """runs/NAME, or the first of runs/NAME-2, -3, ... that holds no run."""
    candidate, number = Path("runs") / name, 1
    # Started by torchrun, a process may find the folder its neighbour has just made: there it must be named.
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and candidate.exists():
        raise UserError(f"{candidate} exists; name a folder for the run with --out")
    while (candidate / "run.json").exists():
        number += 1
        candidate = Path("runs") / f"{name}-{number}"
    return candidate
