"""What is measured of a run: evaluations, binary metrics, a record for each epoch; and who gets the records."""

from __future__ import annotations

from typing import Any

from torch import nn

from bcnn.base.progress import Progress
from bcnn.base.scores import Scores
from bcnn.nets import latent
from bcnn.training import binary_metrics, distributed, schedule, tensorboard
from bcnn.training.config import Step
from bcnn.training.evaluate import evaluate_network
from bcnn.training.opening import OpenRun
from bcnn.training.report_data import Mistakes
from bcnn.training.run import Callback
from bcnn.training.run_progress import RunProgress

ACTIVITY_IMAGES = 64  # evaluation images whose activations are looked at


class Monitor:
    """`scores` and `mistakes` are those of the last evaluation."""

    def __init__(self, opened: OpenRun) -> None:
        self.data, self.device, self.config = opened.data, opened.device, opened.run.config
        self.scores: Scores | None = None
        self.mistakes = Mistakes()
        self.listeners: list[Callback] = []  # of the first process alone
        if distributed.rank_world()[0] == 0:
            folder, progress = opened.run.folder, opened.progress
            self.listeners.append(folder.log)
            if self.config.tensorboard and not progress.finished:
                self.listeners.append(tensorboard.writer(folder.path / "tensorboard", progress.updates))
            self.listeners += opened.run.callbacks

    def log(self, record: dict[str, Any]) -> None:
        for listener in self.listeners:
            listener(record)

    def evaluate(self, step: Step, network: nn.Module, progress: Progress) -> Scores:
        """Steps of binary weights are measured as they will run, if the config says so."""
        self.mistakes = Mistakes()
        in_engine = self.config.evaluate_with == "engine" and step.weights == "binary"
        self.scores = evaluate_network(network, self.data, self.device, in_engine, progress, self.mistakes.look)
        return self.scores

    def epoch_record(
        self, step: Step, network: nn.Module, scores: Scores | None, progress: RunProgress, speed: float
    ) -> dict[str, Any]:
        some = next(self.data.val_batches(ACTIVITY_IMAGES, device=self.device)).x
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
