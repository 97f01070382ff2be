"""`TrainConfig` -> a finished run: open the data, join the processes, train or resume, report."""

from __future__ import annotations

import dataclasses
import errno
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from bcnn.base.console import Console
from bcnn.base.errors import UserError
from bcnn.data import Data, open_data, summary
from bcnn.data.sources import Source, check_labels
from bcnn.nets import latent, network_spec
from bcnn.training import checkpoint, distributed, extension, initial_weights, report_data, settings, teachers
from bcnn.training.batches import find_source
from bcnn.training.budget import Budget, Clock
from bcnn.training.config import FINAL, TrainConfig
from bcnn.training.interrupt import Interrupt, Stopped
from bcnn.training.loop import Callback, Progress, Trainer, batches_of
from bcnn.training.run import RunFolder
from bcnn.training.terminal import Terminal

PACKED = "model.bcnn"  # in the folder of a run that packs itself
# What a disk answers that is full, over quota, failing or gone read-only.
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def train(
    config: TrainConfig | None,
    out: str | Path,
    resume: bool = False,
    stop_after: int = 0,
    trust: bool = False,
    source: Source | None = None,
    began: float | None = None,
    callbacks: Sequence[Callback] = (),
    extend: int = 0,
    clock: Clock = time.monotonic,
) -> dict[str, Any]:
    """Train into the folder `out`, or resume what is in it (then its own config counts). Returns the content of run.json.

    `trust` lets a teacher be loaded that can run code, see `teachers`. It is not kept in the run: a resumed one asks again.
    `source` has the images where `config.data` names none. The minutes of a run that has some count from `began`
    by `clock`, and each of `callbacks` gets every record of metrics.jsonl as it is made. `extend` adds so many epochs to
    the last step of a run that is resumed, finished or not.
    """
    began = clock() if began is None else began
    folder = RunFolder(Path(out))
    if resume:
        config = folder.config()
        if extend:
            config = extension.extended(config, extend)
    elif config is None:
        raise UserError("nothing to train: no recipe and nothing to resume")
    if config.threads:
        torch.set_num_threads(config.threads)
    with distributed.processes(config.device, folder.resume_command()) as device, ExitStack() as held:
        try:
            return _train(
                config, folder, resume, stop_after, trust, device, held, source, began, callbacks, extend, clock
            )
        except OSError as error:
            if error.errno not in CANNOT_WRITE:
                raise
            raise UserError(
                f"cannot write to {folder.path}: {error.strerror}; what was saved before is complete; "
                f"when it can be written again: {folder.resume_command()}"
            ) from None


def _train(
    config: TrainConfig,
    folder: RunFolder,
    resume: bool,
    stop_after: int,
    trust: bool,
    device: str,
    held: ExitStack,
    source: Source | None,
    began: float,
    callbacks: Sequence[Callback],
    extend: int,
    clock: Clock,
) -> dict[str, Any]:
    rank, world = distributed.rank_world()
    if config.minutes and world > 1:
        raise UserError("--minutes plans for one process; start several with a recipe and --epochs")
    if not resume:
        check_names(config, trust)
        check_network(config)
    else:
        for teacher in outside(config):  # as run.json names them, and that may come from anywhere
            teachers.check_trust(teacher, trust)
        if rank == 0:
            held.enter_context(folder.locked())
    source = find_source(config.data, source)
    check_labels(source.classes)
    if not resume and rank == 0:
        show_classes(source)
    start = initial_weights.read(config.init) if config.init and not (resume and folder.last.exists()) else None
    if start is not None and not config.data.mean:  # its weights are used to images normalised so
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, mean=start.mean, std=start.std))
    data = open_data(config.data, config.network.image_size, source)
    notes = [f"data: {note}" for note in data.notes] if resume else []
    if config.network.classes != len(data.classes):
        notes.append(
            f"data: {len(data.classes)} classes: the network's decoder gets as many, not {config.network.classes}"
        )
        config = dataclasses.replace(config, network=config.network.replace(classes=len(data.classes)))
    if not resume:
        distributed.wait_for_all()  # nobody has made the folder yet
        if rank == 0:
            folder.make()
            held.enter_context(folder.locked())
            folder.create(config)
    info = describe(folder, config, data) if rank == 0 else {}
    last, fallen_back = checkpoint.read_or_previous(folder.last) if resume else (None, "")
    if extend and last is not None:
        last = extension.reopened(last, config, extend, folder)
    distributed.wait_for_all()  # all have read it
    if fallen_back and rank == 0:
        checkpoint.restore(folder.last)
    per_epoch = batches_of(config, len(data.train))
    total = sum(step.total_epochs for step in config.steps) * per_epoch
    done = Progress()
    if last is not None:
        checkpoint.fits(last, str(folder.last))
        try:
            done = Progress.of(last.progress, config.steps, per_epoch)
        except UserError as error:
            raise UserError(f"{folder.last}: {error}; start a new run") from None
        if rank == 0:
            folder.rewind_metrics(done.updates, done.epochs_done)
        notes = [fallen_back] if fallen_back else []  # what there was to say of the data was said when the run began
        if info.get("processes", world) != world:
            notes += [f"began with {info['processes']} processes, goes on with {world}: as good, but not the same bits"]
    budget = None
    if config.minutes:  # of a resumed run, what it has not trained yet
        spent, since = (done.seconds, clock()) if resume else (0.0, began)
        budget = Budget(max(1.0, 60 * config.minutes - spent), since, clock)
    with Interrupt(stop_after) as interrupt, Terminal(total, done.updates, quiet=rank != 0) as terminal:
        for note in notes:
            terminal.say(note, "yellow")
        terminal.say(
            f"{config.recipe}: {len(data.train):,} training and {len(data.val):,} evaluation images, "
            f"{len(data.classes)} classes, {config.network.name} at {data.size[0]} x {data.size[1]}, into {folder.path}"
        )
        trainer = Trainer(config, data, folder, device, interrupt, terminal, trust, start, budget, callbacks, finish)
        try:
            trainer.run(last)
        except Stopped:
            terminal.say(
                f"stopped after update {trainer.progress.updates}, saved; continue with: {folder.resume_command()}"
            )
            raise
        if data.unreadable:
            terminal.say(data.unreadable.summary(), "yellow")
        if rank == 0:
            info |= {"accuracy": trainer.progress.accuracies, "train_seconds": round(trainer.progress.seconds, 1)}
            info["unreadable_images"] = sorted(data.unreadable.sentences)
            info["config"] = settings.to_dict(trainer.config)  # a run of so many minutes has changed its epochs
            folder.write_info(info)
            if config.steps[-1].weights not in FINAL:
                terminal.say("the last step leaves real weights: nothing here can be packed to bits yet", "yellow")
    if rank == 0:
        finish(trainer)
    return info


def finish(trainer: Trainer) -> None:
    """What a run leaves behind besides its checkpoints: the report, and the packed file if it is to be packed."""
    from bcnn.training import report  # it draws, and nothing before this needs matplotlib

    config, data, folder = trainer.config, trainer.data, trainer.folder
    if trainer.last_scores is not None:
        size = config.crop_size(config.steps[-1])
        report_data.write(folder, data, trainer.last_scores, trainer.mistakes, size, config.seed)
    try:
        report.write(folder)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # of records that are not ours
        trainer.terminal.say(
            f"no report: what was logged in {folder.path} is damaged; the networks are complete", "yellow"
        )
    here = min(trainer.progress.step, len(config.steps) - 1)
    if config.pack and config.steps[here].weights in FINAL:
        from bcnn.models import find

        find.pack_found(find.trained(folder.path), folder.path / PACKED)


def show_classes(source: Source) -> None:
    """On stderr, before anything is read: a wrong folder costs a second, not an hour."""
    console = Console(stderr=True, highlight=False, markup=False)
    for line in summary.table(source):
        console.print(line, soft_wrap=True)
    for note in (*source.notes, *summary.warnings(source)):
        console.print(f"data: {note}", style="yellow", soft_wrap=True)


def outside(config: TrainConfig) -> set[str]:
    """The teachers that are not steps of the run itself."""
    return {step.teacher for step in config.steps} - {"none", *(step.name for step in config.steps)}


def check_names(config: TrainConfig, trust: bool) -> None:
    """What the config names must be there before a folder is made that would be in the way of the corrected command."""
    if config.init:
        initial_weights.find(config.init)
    for teacher in outside(config):
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
