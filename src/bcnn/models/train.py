"""`bcnn.train(...)`: what the command line does, with a program's own objects. Returns a `Run`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcnn.base.console import Console
from bcnn.base.errors import UserError

if TYPE_CHECKING:
    from torch import nn

    from bcnn.engine import Engine
    from bcnn.nets.network_spec import AnyNetwork
    from bcnn.packed.packfile import Sizes
    from bcnn.training.run import Callback


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, and what it holds.

    >>> import bcnn
    >>> run = bcnn.Run("no/such/folder")
    >>> run.accuracy
    Traceback (most recent call last):
    ...
    bcnn.base.errors.UserError: nothing to resume in no/such/folder: it has no run.json
    """

    folder: str | Path

    @property
    def info(self) -> dict[str, Any]:
        """run.json: settings, versions, data, accuracy after each step."""
        from bcnn.training.run_folder import RunFolder

        return RunFolder(Path(self.folder)).read_info()

    @property
    def accuracy(self) -> float:
        """Top-1 of the evaluation images after the last step."""
        accuracies: dict[str, float] = self.info.get("accuracy", {})
        if not accuracies:
            raise UserError(f"the run in {self.folder} is not finished")
        return [*accuracies.values()][-1]

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.info["data"]["classes"])

    @property
    def network(self) -> nn.Module:
        """The trained torch module, in evaluation mode."""
        from bcnn.training.checkpoint import load

        return load(self.folder)[0]

    def pack(self, path: str | Path) -> Sizes:
        """Write it as a packed file for the engine; the sizes of its parts."""
        from bcnn.models.pack import pack

        return pack(Path(self.folder), path)

    def engine(self) -> Engine:
        """The packed network, ready to run: `run.engine().predict("photo.jpg")`."""
        from bcnn.models.load import load

        return load(Path(self.folder))

    def report(self) -> Path:
        """The page about the run and its data, written again from what the folder holds; its path."""
        from bcnn.training import report
        from bcnn.training.run_folder import RunFolder

        report.write(RunFolder(Path(self.folder)))
        return Path(self.folder) / "report.html"


def train(
    dataset: Any,
    network: str | AnyNetwork | None = None,
    minutes: float | None = None,
    *,
    epochs: int | None = None,
    init: str | Path = "",
    recipe: str = "",
    size: int | tuple[int, int] | None = None,
    validation: Any = None,
    classes: Sequence[str] | None = None,
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    settings: Sequence[str] = (),
) -> Run:
    """Train on a folder, (images, labels), a torch dataset or a Hugging Face dataset. Needs torch.

    With `minutes`, start, image size, epochs and learning rate are chosen for that time; else `recipe` says them, or `init` goes on
    from a trained network. `callbacks` are functions that get each record of the run's metrics, a dict: `wandb.log`, or
    `lambda record: mlflow.log_metrics(...)`. `settings` are those of `bcnn train --set`. Without `out` the run is in a new folder
    under runs/.

    >>> import numpy as np, bcnn
    >>> images = np.zeros((40, 8, 8, 3), np.uint8)
    >>> images[20:] = 200  # black squares, grey squares
    >>> few = ["network.levels=[{}]", "network.stem.replicate=2", "batch=16", "tensorboard=false", "threads=1"]
    >>> run = bcnn.train((images, ["black"] * 20 + ["grey"] * 20), recipe="digits", epochs=2, settings=few, out=folder)
    >>> run.classes
    ('black', 'grey')
    >>> run.pack(f"{folder}/squares.bcnn").total < 10_000
    True
    """
    from bcnn.data import objects
    from bcnn.models.resolve import resolve
    from bcnn.training.choose import Wanted, choose
    from bcnn.training.run import TrainingRun
    from bcnn.training.run_folder import RunFolder, free_folder
    from bcnn.training.run_training import train as start

    began = time.monotonic()
    folder_of_images = isinstance(dataset, str | Path)
    if folder_of_images and (validation is not None or classes is not None):
        raise UserError("a folder has its own classes and evaluation images: leave out validation and classes")
    if network:
        resolve(network, "train --network")
    if init and init != "none":
        resolve(init, "train --init")
    wanted = Wanted(
        data=str(dataset) if folder_of_images else objects.source_of(dataset, validation, classes),
        recipe=recipe,
        network=network or "",
        init=str(init),
        size=size,
        epochs=epochs or 0,
        minutes=minutes or 0.0,
        settings=tuple(settings),
    )
    choice = choose(wanted, began)
    console = Console(stderr=True, highlight=False, markup=False)
    for line in choice.lines:
        console.print(line, soft_wrap=True)
    name = Path(dataset).name if folder_of_images else "python"
    folder = RunFolder(Path(out) if out is not None else free_folder(name or choice.config.recipe))
    start(TrainingRun(choice.config, folder, choice.source, tuple(callbacks), began=began))
    return Run(folder.path)
