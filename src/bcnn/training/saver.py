"""What is saved of a run, and when: the networks for use, and the checkpoint that a resumed run goes on from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import nn

from bcnn.nets import latent
from bcnn.training import adam, checkpoint, distributed
from bcnn.training.config import TrainConfig
from bcnn.training.opening import OpenRun
from bcnn.training.provenance import Provenance
from bcnn.training.run_progress import RunProgress


class Saver:
    """Only the first process writes. `say` tells a person of a disk that is full."""

    def __init__(self, opened: OpenRun, say: Callable[[str, str], object]) -> None:
        self.data, self.folder, self.say = opened.data, opened.run.folder, say
        self.every = opened.run.config.save_seconds
        self.saved_at = time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.every

    def contents(self, network: nn.Module, config: TrainConfig, progress: RunProgress) -> checkpoint.Checkpoint:
        data, provenance = self.data, asdict(Provenance.of(config, progress.accuracies))
        meta = checkpoint.Meta(data.mean, data.std, data.classes, data.config.crop, provenance)
        return checkpoint.Checkpoint(config.network, latent.weights_of(network), network.state_dict(), meta)

    def save_network(
        self, path: Path, network: nn.Module, config: TrainConfig, progress: RunProgress, must: bool = False
    ) -> None:
        """A network without what is needed to go on: for use, and as teacher."""
        self.write(path, self.contents(network, config, progress), must)

    def save_last(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        config: TrainConfig,
        progress: RunProgress,
        must: bool = False,
    ) -> None:
        """last.safetensors: what a resumed run begins with. At the end of the run nothing of Adam's state is left in it."""
        contents = replace(
            self.contents(network, config, progress),
            progress=asdict(progress),
            optimizer=adam.state_by_name(optimizer, network) if optimizer else {},
        )
        self.write(self.folder.last, contents, must, keep=True)
        self.saved_at = time.monotonic()

    def write(self, path: Path, contents: checkpoint.Checkpoint, must: bool, keep: bool = False) -> None:
        """A full disk does not end the run: the file before stays, and the next may fit again. Unless it `must` be written."""
        if distributed.rank_world()[0] != 0:
            return
        try:
            checkpoint.save(path, contents, keep)
        except (OSError, MemoryError) as error:
            if must:
                raise
            reason = error.strerror if isinstance(error, OSError) else "not enough memory"
            self.say(f"cannot write {path}: {reason}; the checkpoint before it is kept", "bold red")
