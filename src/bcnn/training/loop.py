"""The training loop (sec. 5): one loop for every step; what makes a step step 1 or step 2 is its config.

A run is a function of its config and data: weights start from the seed, the order and crops of an epoch come from (seed,
epoch), and a checkpoint holds everything else. So a run that was killed, however often, ends with the same bits as one that
was not, on the same machine with the same number of processes; and of threads, where not all of a network's convolutions are
the kernels' (see `fused.cores`).
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from bcnn.base.errors import UserError
from bcnn.nets import fused, latent, network_spec
from bcnn.training import adam, binary_metrics, distributed, schedule, settings
from bcnn.training.batches import Batch
from bcnn.training.beginning import first_network
from bcnn.training.budget import TimeBudget
from bcnn.training.config import Step
from bcnn.training.finishing import finish
from bcnn.training.interrupt import Interrupt, Stopped
from bcnn.training.loss_targets import find_targets
from bcnn.training.monitor import Monitor
from bcnn.training.opening import OpenRun
from bcnn.training.run_progress import batches_of
from bcnn.training.saver import Saver
from bcnn.training.terminal import Terminal
from bcnn.training.time_estimate import HALF_LIFE, TimeEstimate
from bcnn.training.transfer import transfer
from bcnn.training.updates import Stage, update

MIN_SECONDS_TO_REHEARSE = 180.0  # a shorter run does not write its report twice to know how long that takes


class Trainer:
    """A run as it goes. `config` is the run's, but for the epochs of a run that is to take so many minutes."""

    def __init__(self, opened: OpenRun, interrupt: Interrupt, terminal: Terminal) -> None:
        self.opened, self.interrupt, self.terminal = opened, interrupt, terminal
        self.config, self.progress = opened.run.config, opened.progress
        self.data, self.folder, self.device, self.clock = (
            opened.data,
            opened.run.folder,
            opened.device,
            opened.run.clock,
        )
        self.rank, self.world = distributed.rank_world()
        self.batch, self.part = self.shares()
        self.batches = batches_of(self.config, len(self.data.train))
        self.monitor, self.saver = Monitor(opened), Saver(opened, terminal.say)
        self.budget: TimeBudget | None = None
        if self.config.minutes:  # of a resumed run, what it has not trained yet
            spent, since = (self.progress.seconds, self.clock()) if opened.run.resume else (0.0, opened.run.began)
            self.budget = TimeBudget(max(1.0, 60 * self.config.minutes - spent), since, self.clock)
        half_life = self.budget.half_life if self.budget else HALF_LIFE
        self.estimate = TimeEstimate(self.config, self.batch, self.batches, len(self.data.val), half_life)

    def shares(self) -> tuple[int, int]:
        """Images of a batch, and of the parts that batch norm sees at once."""
        batch = min(self.config.batch, len(self.data.train))
        share = batch // self.world
        part = self.config.part or share
        if batch < self.config.batch:
            self.terminal.say(f"batch of {self.config.batch} lowered to the {batch} training images", "yellow")
            part = share  # batch norm sees all of it
        if batch % self.world or share % part:
            raise UserError(
                f"a batch of {batch} in parts of {part} cannot be shared by {self.world} processes; "
                f"set batch to a multiple of part * processes, or part=0"
            )
        return batch, part

    # --- the walk through the steps ---------------------------------------------------------------------------------

    def train(self) -> None:
        last = self.opened.last
        if last is not None:
            state, optimizer_state = last.state, last.optimizer
        else:
            network = first_network(self.opened, self.batch, self.budget, self.terminal)
            state, optimizer_state = network.state_dict(), {}
        while self.progress.step < len(self.config.steps):
            stage = self.start_step(state, optimizer_state)
            while self.progress.epoch < stage.step.total_epochs:
                self.train_epoch(stage)
            distributed.wait_for_all()
            state, optimizer_state = stage.network.state_dict(), {}
            self.finish_step(stage.step, stage.network)

    def start_step(self, state: dict[str, Tensor], optimizer_state: dict[str, Tensor]) -> Stage:
        step = self.config.steps[self.progress.step]
        network = network_spec.build(self.config.network).to(self.device)
        latent.set_weights(network, step.weights)
        previous = self.config.steps[self.progress.step - 1].name if self.progress.step else self.config.init
        moved = transfer(state, network, previous or "the initial weights")
        fresh = previous and not optimizer_state  # not in the middle of a step
        self.terminal.start_step(step.name, describe(step), str(moved) if fresh else "")
        optimizer = adam.adam(network, step)
        if optimizer_state:
            adam.load_state(optimizer, network, optimizer_state)
        return Stage(step, network, optimizer, find_targets(step, self.opened, self.terminal))

    def train_epoch(self, stage: Stage) -> None:
        progress = self.progress
        began, already = self.clock(), progress.seen
        before = began
        with fused.cores(stage.network):
            for batch in self.data.train_batches(
                progress.epochs_done,
                self.batch,
                self.config.seed,
                self.rank,
                self.world,
                progress.batch,
                self.device,
                self.config.crop_size(stage.step),
                self.config.epoch_images,
            ):
                t = progress.epoch + progress.batch / self.batches
                self.update(stage, batch, self.budget.at(stage.step, t) if self.budget else t)
                before, last = self.clock(), before
                self.estimate.trained(stage.step, before - last)
                self.refit(stage)
                left = self.estimate.left(self.config.steps, progress.step, progress.epoch, progress.batch)
                self.terminal.advance(f"{stage.step.name} epoch {progress.epoch + 1}/{stage.step.total_epochs}", left)
                if distributed.any_process(self.interrupt.asked(progress.updates), self.device):
                    self.saver.save_last(stage.network, stage.optimizer, self.config, progress)
                    raise Stopped(self.interrupt.received)
                if self.saver.due:
                    self.saver.save_last(stage.network, stage.optimizer, self.config, progress)
                if self.budget is not None and self.budget.over(self.estimate):
                    break
        seconds = self.clock() - began
        progress.seconds += seconds
        self.refit(stage, ended=True)
        self.end_epoch(stage, (progress.seen - already) / max(seconds, 1e-9))

    def update(self, stage: Stage, batch: Batch, t: float) -> None:
        """One update of the weights at `t` epochs of the step, with the binary metrics every few updates."""
        progress, step = self.progress, stage.step
        metered = progress.batch % self.config.meter_every == 0
        before = binary_metrics.signs(stage.weights) if metered else []
        loss, hits = update(stage, batch, self.part, t, progress.epochs_done)
        if not loss < float("inf"):
            raise UserError(
                f"the loss is {loss} in step {step.name!r}, update {progress.updates}: lower its lr ({step.lr})"
            )
        progress.loss_sum += loss
        progress.hits += hits
        progress.seen += self.batch
        progress.batch += 1
        progress.updates += 1
        if metered:
            progress.flips.append(binary_metrics.flipped(before, stage.weights))
            self.monitor.log({"kind": "update", "updates": progress.updates, "step": step.name,
                              "lr": schedule.learning_rate(step, t), "loss": loss, "flips": progress.flips[-1]})  # fmt: skip

    def refit(self, stage: Stage, ended: bool = False) -> None:
        """In a run of so many minutes: give the step as many epochs as there is time for, after each and when one falls behind."""
        if self.budget is None:
            return
        at, epoch, batch = self.progress.step, self.progress.epoch, self.progress.batch
        if not ended and not self.budget.behind(self.config.steps, at, epoch, batch, self.estimate):
            return
        steps = self.budget.refit(self.config.steps, at, epoch, self.batches if ended else batch, self.estimate)
        if steps != self.config.steps:
            self.config = replace(self.config, steps=steps)
            self.terminal.resize(sum(step.total_epochs for step in steps) * self.batches)
            if self.rank == 0:
                self.folder.write_info(self.folder.read_info() | {"config": settings.to_dict(self.config)})
        stage.step = steps[at]

    # --- what happens between the updates ---------------------------------------------------------------------------

    def end_epoch(self, stage: Stage, speed: float) -> None:
        step, network, progress, ended = stage.step, stage.network, self.progress, self.clock()
        progress.epoch += 1
        progress.epochs_done += 1
        scores, seconds = None, 0.0
        if progress.epoch % self.config.evaluate_every == 0 or progress.epoch == step.total_epochs:
            with self.terminal.side_tasks() as shown:
                scores = self.monitor.evaluate(step, network, shown)
                seconds = self.clock() - ended
                self.estimate.evaluation(seconds)
        record = self.monitor.epoch_record(step, network, scores, progress, speed)
        progress.batch = progress.hits = progress.seen = 0
        progress.loss_sum, progress.flips = 0.0, []
        self.monitor.log(record)
        self.terminal.row(record)
        if scores and scores.top1 > progress.best:
            progress.best = scores.top1
            self.saver.save_network(self.folder.best, network, self.config, progress)
        if scores and progress.epoch == step.total_epochs:
            progress.accuracies[step.name] = scores.top1
        self.saver.save_last(network, stage.optimizer, self.config, progress)
        self.estimate.between = self.clock() - ended - seconds
        if (
            scores
            and self.budget is not None
            and self.budget.closing < 0
            and self.budget.seconds >= MIN_SECONDS_TO_REHEARSE
        ):
            began = self.clock()
            finish(self.opened, progress, self.monitor, self.terminal)
            self.budget.closed(self.clock() - began, self.estimate)

    def finish_step(self, step: Step, network: nn.Module) -> None:
        """The step's network gets a file of its own; then the next step begins, with Adam's state and the best forgotten."""
        progress = self.progress
        self.saver.save_network(self.folder.step(step.name), network, self.config, progress, must=True)
        progress.step, progress.epoch, progress.best = progress.step + 1, 0, -1.0
        progress.finished = progress.step == len(self.config.steps)
        if progress.finished:
            self.saver.save_last(network, None, self.config, progress, must=True)
        self.terminal.say(f"{step.name}: {progress.accuracies[step.name]:.2%} top-1 after its last epoch")


def describe(step: Step) -> str:
    loss = f"teacher {step.teacher}" if step.teacher != "none" else "labels"
    decay = f"weight decay {step.weight_decay:g}" if step.weight_decay else "no weight decay"
    size = f", images at {step.size:g} of the size" if step.size != 1 else ""
    activations = "real" if step.weights == "float" else "binary"
    return f"{activations} activations, {step.weights} weights, {step.warmup} + {step.epochs} epochs, lr {step.lr:g}, {decay}, {loss}{size}"
