"""Where a trained network comes from: what is written into a checkpoint, and into run.json beside the config."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bcnn.base.machine import utc
from bcnn.base.provenance import commit, versions
from bcnn.training import distributed, settings
from bcnn.training.config import TrainConfig


@dataclass(frozen=True)
class Circumstances:
    """Versions, machine, commit, command, time: what one asks about a run a year later."""

    command: str
    started: str
    versions: dict[str, str]
    processes: int
    machine: str
    commit: str

    @staticmethod
    def now() -> Circumstances:
        return Circumstances(
            command(sys.argv),
            utc("%Y-%m-%dT%H:%M:%SZ"),
            versions("torch", "numpy"),
            distributed.rank_world()[1],
            f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
            commit(),
        )


@dataclass(frozen=True)
class Provenance:
    """What a trained network says about where it comes from."""

    recipe: str
    seed: int
    config: dict[str, Any]  # plain data, which any later version can keep without understanding it
    accuracy: dict[str, float]  # at the end of each step
    versions: dict[str, str]
    commit: str

    @staticmethod
    def of(config: TrainConfig, accuracies: dict[str, float]) -> Provenance:
        """The place of the data on this machine is left out: its folder's name stays."""
        plain = settings.to_dict(config)
        plain["data"]["source"] = Path(config.data.source).name
        # Names of files may hold bytes that are no text, and a packed file holds none: found out now, not when it is packed.
        plain = json.loads(json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace"))
        return Provenance(config.recipe, config.seed, plain, accuracies, versions("torch", "numpy"), commit())


def command(argv: list[str]) -> str:
    """What was typed, for `bcnn` and `python -m bcnn` alike; of another program, all of it."""
    program = Path(argv[0])
    ours = program.name == "bcnn" or program.parts[-2:] == ("bcnn", "__main__.py")
    return shlex.join(["bcnn", *argv[1:]] if ours else argv)
