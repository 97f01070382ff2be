"""The training loop (sec. 5): one loop for every step; what makes a step step 1 or step 2 is its config.

A run is a function of its config and data: weights start from the seed, the order and crops of an epoch come from (seed,
epoch), and a checkpoint holds everything else. So a run that was killed, however often, ends with the same bits as one that
was not, on the same machine with the same number of processes; and of threads, where not all of a network's convolutions are
the kernels' (see `fused.cores`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bcnn.base.errors import UserError
from bcnn.base.scores import Scores
from bcnn.data import Batch, Data
from bcnn.nets import fused, latent, network_spec
from bcnn.nets.bcnn import Network
from bcnn.training import (
    adam,
    binary_metrics,
    checkpoint,
    distributed,
    initial_weights,
    losses,
    schedule,
    settings,
    tensorboard,
)
from bcnn.training.budget import Budget
from bcnn.training.config import Step, TrainConfig
from bcnn.training.evaluate import batch_size as evaluation_batch
from bcnn.training.evaluate import evaluate, evaluate_packed
from bcnn.training.interrupt import Interrupt, Stopped
from bcnn.training.loss_targets import Targets, find_targets
from bcnn.training.rebuild import calibrate
from bcnn.training.report_data import Mistakes
from bcnn.training.run import RunFolder, provenance
from bcnn.training.terminal import Terminal
from bcnn.training.time_estimate import HALF_LIFE, Eta
from bcnn.training.transfer import transfer

Callback = Callable[[dict[str, Any]], object]  # gets every record of metrics.jsonl
METER_IMAGES = 64  # evaluation images that the activity meters look at
CALIBRATION_IMAGES = 64  # that batch norm's statistics are measured on: those of a batch
FIT_IMAGES = 4096  # at most, that a new decoder is fitted to: training goes on from there
FIT_SHARE = 0.25  # of a run's minutes, at most for that
REHEARSED = 180.0  # seconds: a shorter run does not write its report twice to know how long that takes


def batches_of(config: TrainConfig, images: int) -> int:
    """Updates of an epoch."""
    return max(1, min(images, config.epoch_images or images) // min(config.batch, images))


@dataclass
class Progress:
    """Where a run is: the next thing it does is batch `batch` of epoch `epoch` of step `step`."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    updates: int = 0  # over all steps
    epochs_done: int = 0  # over all steps
    loss_sum: float = 0.0  # of the epoch so far
    hits: int = 0
    seen: int = 0
    flips: list[float] = field(default_factory=list)
    best: float = -1.0  # accuracy in this step
    accuracies: dict[str, float] = field(default_factory=dict)  # at the end of each step
    seconds: float = 0.0
    finished: bool = False

    @staticmethod
    def of(plain: Any, steps: tuple[Step, ...], batches: int) -> Progress:
        """From a checkpoint, which may say anything: a place that such a run of `batches` an epoch can be at, or a sentence."""
        progress = settings.typed(Progress, plain, "progress")
        counts = (progress.step, progress.epoch, progress.batch, progress.updates, progress.epochs_done, progress.seen)
        names = [step.name for step in steps]
        here = steps[progress.step].total_epochs if 0 <= progress.step < len(steps) else 0
        if (
            min(counts) < 0
            or progress.step > len(steps)
            or progress.finished != (progress.step == len(steps))
            or progress.epoch > here
            or progress.batch > batches
            or (progress.batch > 0 and progress.epoch >= here)
            or not set(names[: progress.step]) <= progress.accuracies.keys() <= set(names)
            or (here and progress.epoch == here and names[progress.step] not in progress.accuracies)
        ):
            raise UserError(
                f"progress is damaged: no run of these steps is ever at step {progress.step}, epoch {progress.epoch}, "
                f"batch {progress.batch} with accuracies of {sorted(progress.accuracies)}"
            )
        return progress


class Trainer:
    """What all steps share: config, data, folder, progress."""

    def __init__(
        self,
        config: TrainConfig,
        data: Data,
        folder: RunFolder,
        device: str,
        interrupt: Interrupt,
        terminal: Terminal,
        trust: bool = False,
        begin_with: initial_weights.Start | None = None,
        budget: Budget | None = None,
        callbacks: Sequence[Callback] = (),
        finish: Callable[[Trainer], None] = lambda trainer: None,
    ) -> None:
        self.begin_with, self.budget, self.callbacks = begin_with, budget, callbacks
        self.finish = (
            finish  # the report and the packed file; a run of so many minutes makes them once before the end, too
        )
        self.clock = budget.clock if budget else time.monotonic
        self.mistakes = Mistakes()  # of the last evaluation
        self.last_scores: Scores | None = None
        self.config, self.data, self.folder, self.device = config, data, folder, device
        self.interrupt, self.terminal, self.trust = interrupt, terminal, trust
        self.rank, self.world = distributed.rank_world()
        self.batch = min(config.batch, len(data.train))
        self.part = config.part or self.batch // self.world
        self.check_shares()
        self.batches = batches_of(config, len(data.train))
        self.progress = Progress()
        self.saved_at = time.monotonic()
        half_life = budget.half_life if budget else HALF_LIFE
        self.eta = Eta(config, self.batch, self.batches, len(data.val), half_life)
        self.tensorboard: Callable[[dict[str, Any]], None] = lambda record: None

    def check_shares(self) -> None:
        share = self.batch // self.world
        if self.batch < self.config.batch:
            self.terminal.say(f"batch of {self.config.batch} lowered to the {self.batch} training images", "yellow")
            self.part = share  # batch norm sees all of it
        if self.batch % self.world or share % self.part:
            raise UserError(
                f"a batch of {self.batch} in parts of {self.part} cannot be shared by {self.world} processes; "
                f"set batch to a multiple of part * processes, or part=0"
            )

    # --- the walk through the steps ---------------------------------------------------------------------------------

    def run(self, resumed: checkpoint.Checkpoint | None) -> None:
        state, optimizer_state = self.start(resumed)
        while self.progress.step < len(self.config.steps):
            step = self.config.steps[self.progress.step]
            network = network_spec.build(self.config.network).to(self.device)
            latent.set_weights(network, step.weights)
            previous = self.config.steps[self.progress.step - 1].name if self.progress.step else self.config.init
            report = transfer(state, network, previous or "the initial weights")
            fresh = previous and not optimizer_state  # not in the middle of a step
            self.terminal.start_step(step.name, describe(step), str(report) if fresh else "")
            optimizer = adam.adam(network, step)
            if optimizer_state:
                adam.load_state(optimizer, network, optimizer_state)
            self.train_step(step, network, optimizer)
            state, optimizer_state = network.state_dict(), {}
            self.finish_step(step, network)

    def start(self, resumed: checkpoint.Checkpoint | None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        if resumed is not None:
            self.progress = Progress.of(resumed.progress, self.config.steps, self.batches)
            self.open_tensorboard()
            return resumed.state, resumed.optimizer
        self.open_tensorboard()
        torch.manual_seed(self.config.seed)
        network = network_spec.build(self.config.network)
        if self.begin_with is not None:
            self.begin(self.begin_with, network)
        return network.state_dict(), {}

    def begin(self, start: initial_weights.Start, network: nn.Module) -> None:
        """The weights to start from, with what a packed file lacks and another decoder's classes ask for made up."""
        report, new_decoder = initial_weights.take_over(start, network, self.data.classes)
        self.terminal.say(report, "green")
        if not (start.packed or new_decoder):
            return
        size = self.config.crop_size(self.config.steps[0])
        images = min(FIT_IMAGES, len(self.data.train))
        # Every process does the same: the images of all, so that all have one network.
        batches = self.data.train_batches(0, self.batch, self.config.seed, size=size, images=images)
        if start.packed:
            first = next(self.data.train_batches(0, self.batch, self.config.seed, size=size)).x[:CALIBRATION_IMAGES]
            calibrate(network, first)
            self.terminal.say(
                f"batch norm: mean and variance, which a packed file has not, from {len(first)} images", "dim"
            )
        if new_decoder:
            small = evaluation_batch(size, "cpu")
            parts: Iterator[tuple[Tensor, Tensor]] = (
                (x, y) for b in batches for x, y in zip(torch.split(b.x, small), torch.split(b.y, small), strict=True)
            )
            if self.budget is not None:
                parts = self.budget.at_most(FIT_SHARE, parts)
            with self.terminal.side_task("fit the decoder", images) as advance, fused.cores(network):
                latent.set_weights(network, self.config.steps[0].weights)
                if self.config.steps[0].weights == "binary":
                    found = initial_weights.features_packed(
                        network, parts, self.data.mean, self.data.std, size, advance
                    )
                else:
                    found = initial_weights.features(network, parts, advance)
            share = initial_weights.fit_decoder(network, *found)
            self.terminal.say(
                f"new decoder: fitted to {len(found[1]):,} crops of training images, {share:.1%} right of those left out of a fit",
                "dim",
            )

    def train_step(self, step: Step, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        model = distributed.wrap(network)
        targets = find_targets(step, self.config, self.data, self.folder, self.device, self.terminal, self.trust)
        progress = self.progress
        while progress.epoch < step.total_epochs:
            began, already = self.clock(), progress.seen
            before = began
            with fused.cores(network):
                for batch in self.data.train_batches(
                    progress.epochs_done,
                    self.batch,
                    self.config.seed,
                    self.rank,
                    self.world,
                    progress.batch,
                    self.device,
                    self.config.crop_size(step),
                    self.config.epoch_images,
                ):
                    t = progress.epoch + progress.batch / self.batches
                    t = self.budget.at(step, t) if self.budget else t
                    self.update(step, t, model, network, optimizer, targets, batch)
                    before, last = self.clock(), before
                    self.eta.trained(step, before - last)
                    step = self.refit(step)
                    left = self.eta.left(self.config.steps, progress.step, progress.epoch, progress.batch)
                    self.terminal.advance(f"{step.name} epoch {progress.epoch + 1}/{step.total_epochs}", left)
                    if distributed.any_process(self.interrupt.asked(progress.updates), self.device):
                        self.save(network, optimizer)
                        raise Stopped(self.interrupt.received)
                    if time.monotonic() - self.saved_at >= self.config.save_seconds:
                        self.save(network, optimizer)
                    if self.budget is not None and self.budget.over(self.eta):
                        break
            seconds = self.clock() - began
            progress.seconds += seconds
            step = self.refit(step, ended=True)
            self.end_epoch(step, network, optimizer, (progress.seen - already) / max(seconds, 1e-9))
        distributed.wait_for_all()

    def refit(self, step: Step, ended: bool = False) -> Step:
        """In a run of so many minutes: the step with as many epochs as there is time for, after each and when one falls behind."""
        if self.budget is None:
            return step
        at, epoch, batch = self.progress.step, self.progress.epoch, self.progress.batch
        if not ended and not self.budget.behind(self.config.steps, at, epoch, batch, self.eta):
            return step
        steps = self.budget.refit(self.config.steps, at, epoch, self.batches if ended else batch, self.eta)
        if steps != self.config.steps:
            self.config = dataclasses.replace(self.config, steps=steps)
            self.terminal.resize(sum(step.total_epochs for step in steps) * self.batches)
            if self.rank == 0:
                self.folder.write_info(self.folder.read_info() | {"config": settings.to_dict(self.config)})
        return steps[at]

    def update(
        self,
        step: Step,
        t: float,
        model: nn.Module,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        targets: Targets,
        batch: Batch,
    ) -> None:
        """One update of the weights: the batch in parts, Adam, and the meters every few updates."""
        progress = self.progress
        lr = schedule.learning_rate(step, t)
        adam.set_rate(optimizer, lr)
        if step.weights == "tanh":
            latent.set_temperature(network, schedule.temperature(step, t))
        weights = latent.latent_weights(network)
        metered = progress.batch % self.config.meter_every == 0
        before = binary_metrics.signs(weights) if metered else []

        optimizer.zero_grad(set_to_none=True)
        parts = len(batch.y) // self.part
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # loss, hits
        for i in range(parts):
            here = slice(i * self.part, (i + 1) * self.part)
            with (
                distributed.gradients_stay_local(model, i + 1 < parts),
                losses.Taps(network if step.matching and isinstance(network, Network) else None) as taps,
            ):
                x, y = batch.x[here], batch.y[here]
                logits = model(x)
                loss = targets.loss(logits, taps.maps, x, y, batch.index[here], progress.epochs_done)
                (loss / parts).backward()  # type: ignore[no-untyped-call]
            sums += torch.stack([loss.detach() / parts, (logits.detach().argmax(1) == y).sum()]).double()
        if step.toward_signs:
            losses.pull_toward_signs(weights, step.toward_signs)
        optimizer.step()
        if step.clip:
            with torch.no_grad():
                for weight in weights:
                    weight.clamp_(-1, 1)
        if step.slopes == "bounded":
            bound_slopes(network)
        latent.constrain(network)
        distributed.average_statistics(network)

        if self.world > 1:
            distributed.sum_(sums)
            sums[0] /= self.world
        value = float(sums[0])
        if not value < float("inf"):
            raise UserError(
                f"the loss is {value} in step {step.name!r}, update {progress.updates}: lower its lr ({step.lr})"
            )
        progress.loss_sum += value
        progress.hits += int(sums[1])
        progress.seen += self.batch
        progress.batch += 1
        progress.updates += 1
        if metered:
            progress.flips.append(binary_metrics.flipped(before, weights))
            self.log({"kind": "update", "updates": progress.updates, "step": step.name, "lr": lr, "loss": value,
                      "flips": progress.flips[-1]})  # fmt: skip

    # --- what happens between the updates ---------------------------------------------------------------------------

    def end_epoch(self, step: Step, network: nn.Module, optimizer: torch.optim.Optimizer, speed: float) -> None:
        progress, ended = self.progress, self.clock()
        progress.epoch += 1
        progress.epochs_done += 1
        scores, seconds = None, 0.0
        if progress.epoch % self.config.evaluate_every == 0 or progress.epoch == step.total_epochs:
            with self.terminal.side_task("evaluate", len(self.data.val)) as advance:
                self.mistakes = Mistakes()
                packed = self.config.evaluate_with == "engine" and step.weights == "binary"
                how = evaluate_packed if packed else evaluate
                scores = how(network, self.data, self.device, advance, self.mistakes.look)
                self.last_scores = scores
                seconds = self.clock() - ended
                self.eta.evaluation(seconds)
        record = self.record(step, network, scores, speed)
        progress.batch = progress.hits = progress.seen = 0
        progress.loss_sum, progress.flips = 0.0, []
        self.log(record)
        self.terminal.row(record)
        if scores and scores.top1 > progress.best:
            progress.best = scores.top1
            self.save_network(self.folder.best, network)
        if scores and progress.epoch == step.total_epochs:
            progress.accuracies[step.name] = scores.top1
        self.save(network, optimizer)
        self.eta.between = self.clock() - ended - seconds
        if scores and self.budget is not None and self.budget.closing < 0 and self.budget.seconds >= REHEARSED:
            began = self.clock()
            self.finish(self)
            self.budget.closed(self.clock() - began, self.eta)

    def record(self, step: Step, network: nn.Module, scores: Scores | None, speed: float) -> dict[str, Any]:
        progress = self.progress
        some = next(self.data.val_batches(METER_IMAGES, device=self.device)).x
        activity = binary_metrics.activity(network, some)
        return {
            "kind": "epoch",
            "step": step.name,
            "epoch": progress.epoch,
            "epochs": step.total_epochs,
            "epochs_done": progress.epochs_done,
            "updates": progress.updates,
            "lr": schedule.learning_rate(step, progress.epoch),
            "loss": progress.loss_sum / max(1, progress.batch),  # an epoch whose time is over is not complete
            "train_accuracy": progress.hits / max(1, progress.seen),
            "val_loss": scores.loss if scores else None,
            "accuracy": scores.top1 if scores else None,
            "top5": scores.top5 if scores else None,
            "flips": sum(progress.flips) / max(1, len(progress.flips)),
            "outside": binary_metrics.outside(latent.latent_weights(network)),
            "balance": activity.balance,
            "surviving": activity.surviving,
            "images_per_second": speed,
            "seconds": progress.seconds,
        }

    def finish_step(self, step: Step, network: nn.Module) -> None:
        """The step's network gets a file of its own; then the next step begins, with Adam's state and the best forgotten."""
        progress = self.progress
        self.save_network(self.folder.step(step.name), network, must=True)
        progress.step, progress.epoch, progress.best = progress.step + 1, 0, -1.0
        progress.finished = progress.step == len(self.config.steps)
        if progress.finished:
            self.save(network, None, must=True)
        self.terminal.say(f"{step.name}: {progress.accuracies[step.name]:.2%} top-1 after its last epoch")

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def log(self, record: dict[str, Any]) -> None:
        if self.rank == 0:
            self.folder.log(record)
            self.tensorboard(record)
            for callback in self.callbacks:
                callback(record)

    def open_tensorboard(self) -> None:
        if self.rank == 0 and self.config.tensorboard and not self.progress.finished:
            self.tensorboard = tensorboard.writer(self.folder.path / "tensorboard", self.progress.updates)

    def contents(self, network: nn.Module) -> checkpoint.Checkpoint:
        data = self.data
        meta = checkpoint.Meta(
            data.mean, data.std, data.classes, data.config.crop, provenance(self.config, self.progress.accuracies)
        )
        return checkpoint.Checkpoint(self.config.network, latent.weights_of(network), network.state_dict(), meta)

    def save_network(self, path: Path, network: nn.Module, must: bool = False) -> None:
        """A network without what is needed to go on: for use, and as teacher."""
        self.write(path, self.contents(network), must)

    def save(self, network: nn.Module, optimizer: torch.optim.Optimizer | None, must: bool = False) -> None:
        """last.safetensors: what a resumed run begins with. At the end of the run nothing of Adam's state is left in it."""
        contents = dataclasses.replace(
            self.contents(network),
            progress=dataclasses.asdict(self.progress),
            optimizer=adam.state_by_name(optimizer, network) if optimizer else {},
        )
        self.write(self.folder.last, contents, must, keep=True)
        self.saved_at = time.monotonic()

    def write(self, path: Path, contents: checkpoint.Checkpoint, must: bool, keep: bool = False) -> None:
        """A full disk does not end the run: the file before stays, and the next may fit again. Unless it `must` be written."""
        if self.rank != 0:
            return
        try:
            checkpoint.save(path, contents, keep)
        except (OSError, MemoryError) as error:
            if must:
                raise
            reason = error.strerror if isinstance(error, OSError) else "not enough memory"
            self.terminal.say(f"cannot write {path}: {reason}; the checkpoint before it is kept", "bold red")


@torch.no_grad()
def bound_slopes(network: nn.Module) -> None:
    """|slope - 1| <= 1 in every PReLU: what it adds to a negative value is then a 16-bit fraction of it (see `FixedPReLU`)."""
    for module in network.modules():
        if isinstance(module, nn.PReLU):
            module.weight.clamp_(0, 2)


def describe(step: Step) -> str:
    loss = f"teacher {step.teacher}" if step.teacher != "none" else "labels"
    decay = f"weight decay {step.weight_decay:g}" if step.weight_decay else "no weight decay"
    size = f", images at {step.size:g} of the size" if step.size != 1 else ""
    activations = "real" if step.weights == "float" else "binary"
    return f"{activations} activations, {step.weights} weights, {step.warmup} + {step.epochs} epochs, lr {step.lr:g}, {decay}, {loss}{size}"
