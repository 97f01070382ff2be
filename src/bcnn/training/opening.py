"""A `TrainingRun` -> the same with its images, device and weights at hand: what its config names is found, checked and described in run.json."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch

from bcnn.base.console import Console
from bcnn.base.errors import UserError
from bcnn.data import summary
from bcnn.data.sources import Source, check_labels, find_source
from bcnn.nets import latent, network_spec
from bcnn.training import checkpoint, distributed, initial_weights, settings, teachers
from bcnn.training.batches import Data, open_data
from bcnn.training.config import TrainConfig
from bcnn.training.run import TrainingRun
from bcnn.training.run_folder import RunFolder
from bcnn.training.run_progress import RunProgress, batches_of


@dataclass(frozen=True, eq=False)
class OpenRun:
    """A run that can begin, or go on, in this process."""

    run: TrainingRun  # its config has as many classes as the data, and the normalisation of the weights it starts from
    data: Data
    device: str
    info: dict[str, Any]  # run.json; empty in all processes but the first
    start: initial_weights.Start | None  # None: random weights, or those of `last`
    last: checkpoint.Checkpoint | None  # that a resumed run goes on from
    progress: RunProgress
    notes: tuple[str, ...]  # what a person should know before it begins


def open_run(run: TrainingRun, device: str, held: ExitStack) -> OpenRun:
    """Check everything, then make the folder, or lock it if it is there; the lock is among what is `held`."""
    folder, first = run.folder, distributed.rank_world()[0] == 0
    if not run.resume:
        check_names(run.config, run.trust)
        check_network(run.config)
    else:
        for teacher in other_teachers(run.config):  # as run.json names them, and that may come from anywhere
            teachers.check_trust(teacher, run.trust)
        if first:
            held.enter_context(folder.locked())
    source = find_source(run.config.data, run.source)
    check_labels(source.classes)
    if not run.resume and first:
        show_classes(source)
    init = run.config.init
    # A network that is rebuilt from a packed file takes the size of its filters from one with random weights.
    torch.manual_seed(run.config.seed)
    start = initial_weights.read(init) if init and not (run.resume and folder.last.exists()) else None
    config = run.config
    if start is not None and not config.data.mean:  # its weights are used to images normalised so
        config = replace(config, data=replace(config.data, mean=start.mean, std=start.std))
    data = open_data(config.data, config.network.image_size, source)
    notes = [f"data: {note}" for note in data.notes] if run.resume else []
    if config.network.classes != len(data.classes):
        notes.append(
            f"data: {len(data.classes)} classes: the network's decoder gets as many, not {config.network.classes}"
        )
        config = replace(config, network=config.network.replace(classes=len(data.classes)))
    if not run.resume:
        distributed.wait_for_all()  # nobody has made the folder yet
        if first:
            folder.make()
            held.enter_context(folder.locked())
            folder.create(config)
    run = replace(run, config=config)
    info = describe(folder, config, data) if first else {}
    last, fallen_back = checkpoint.read_or_previous(folder.last) if run.resume else (None, "")
    distributed.wait_for_all()  # all have read it
    if fallen_back and first:
        checkpoint.restore(folder.last)
    progress = RunProgress()
    if last is not None:
        checkpoint.fits(last, str(folder.last))
        progress = reached(run, last, len(data.train))
        if first:
            folder.rewind_metrics(progress.updates, progress.epochs_done)
        notes = [fallen_back] if fallen_back else []  # what there was to say of the data was said when the run began
        world = distributed.rank_world()[1]
        if info.get("processes", world) != world:
            notes += [f"began with {info['processes']} processes, goes on with {world}: as good, but not the same bits"]
    return OpenRun(run, data, device, info, start, last, progress, tuple(notes))


def reached(run: TrainingRun, last: checkpoint.Checkpoint, images: int) -> RunProgress:
    """Where a run of so many training images was when `last` was saved."""
    try:
        progress = RunProgress.typed(last.progress)
        if run.more_epochs:
            progress = progress.reopened(run.config, run.more_epochs, run.folder.read_metrics("epoch"))
        return progress.check(run.config.steps, batches_of(run.config, images))
    except UserError as error:
        raise UserError(f"{run.folder.last}: {error}; start a new run") from None


def show_classes(source: Source) -> None:
    """On stderr, before anything is read: a wrong folder costs a second, not an hour."""
    console = Console(stderr=True, highlight=False, markup=False)
    for line in summary.table(source):
        console.print(line, soft_wrap=True)
    for note in (*source.notes, *summary.warnings(source)):
        console.print(f"data: {note}", style="yellow", soft_wrap=True)


def other_teachers(config: TrainConfig) -> set[str]:
    """The teachers that are not steps of the run itself."""
    return {step.teacher for step in config.steps} - {"none", *(step.name for step in config.steps)}


def check_names(config: TrainConfig, trust: bool) -> None:
    """What the config names must be there before a folder is made that would be in the way of the corrected command."""
    if config.init:
        initial_weights.find(config.init)
    for teacher in other_teachers(config):
        teachers.check(teacher, trust)


def check_network(config: TrainConfig) -> None:
    """Whether it can be built at all, and its layers have what every step asks of their weights. Takes no memory."""
    with torch.device("meta"):
        network = network_spec.build(config.network)
    for step in config.steps:
        try:
            latent.set_weights(network, step.weights)
        except UserError as error:
            raise UserError(f"step {step.name!r}: {config.network.name} has {error}") from None


def describe(folder: RunFolder, config: TrainConfig, data: Data) -> dict[str, Any]:
    """run.json with the data as it was found. A resumed run must find it as it was, or its bits would not be those promised."""
    info = folder.read_info()
    info["config"] = settings.to_dict(config)
    found = {
        "train": len(data.train),
        "val": len(data.val),
        "classes": list(data.classes),
        "mean": list(data.mean),
        "std": list(data.std),
        "notes": list(data.notes),
        "in_memory": data.train.pixels is not None,
        "train_images": data.train.fingerprint(),
        "val_images": data.val.fingerprint(),
    }
    before = info.get("data", found)
    if not isinstance(before, dict):
        raise UserError(f"{folder.info} is damaged: its data is no table of keys and values")
    for key in ("train", "val", "classes", "mean", "std", "train_images", "val_images"):
        if before.get(key, found[key]) != found[key]:
            raise UserError(
                f"{config.data.source} is not the data this run began with: its {key!r} changed; start a new run"
            )
    info["data"] = found
    folder.write_info(info)
    return info
