"""One update of the weights (sec. 5): the batch in parts, the optimizer, and what the step's rules ask of the weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from bcnn.nets import latent
from bcnn.nets.bcnn import Network
from bcnn.training import adam, distributed, losses, schedule
from bcnn.training.batches import Batch
from bcnn.training.config import Step
from bcnn.training.loss_targets import Targets


@dataclass
class Stage:
    """What a step trains, and with what."""

    step: Step  # of a run of so many minutes, with the epochs that fit
    network: nn.Module
    optimizer: torch.optim.Optimizer
    targets: Targets

    def __post_init__(self) -> None:
        self.model = distributed.wrap(self.network)  # the network as it is called: shared among processes
        self.weights = latent.latent_weights(self.network)


def update(stage: Stage, batch: Batch, part: int, t: float, epoch: int) -> tuple[float, int]:
    """Update the weights at `t` epochs of the step and epoch `epoch` of the run; the batch's loss and right answers, of all processes."""
    step, network, optimizer = stage.step, stage.network, stage.optimizer
    adam.set_rate(optimizer, schedule.learning_rate(step, t))
    if step.weights == "tanh":
        latent.set_temperature(network, schedule.temperature(step, t))
    optimizer.zero_grad(set_to_none=True)
    parts = len(batch.y) // part
    sums = torch.zeros(2, dtype=torch.float64, device=batch.x.device)  # loss, hits
    for i in range(parts):
        here = slice(i * part, (i + 1) * part)
        with (
            distributed.gradients_stay_local(stage.model, i + 1 < parts),
            losses.LevelMaps(network if step.matching and isinstance(network, Network) else None) as seen,
        ):
            x, y = batch.x[here], batch.y[here]
            logits = stage.model(x)
            loss = stage.targets.loss(logits, seen.maps, x, y, batch.index[here], epoch)
            (loss / parts).backward()  # type: ignore[no-untyped-call]
        sums += torch.stack([loss.detach() / parts, (logits.detach().argmax(1) == y).sum()]).double()
    if step.toward_signs:
        losses.pull_toward_signs(stage.weights, step.toward_signs)
    optimizer.step()
    if step.clip:
        with torch.no_grad():
            for weight in stage.weights:
                weight.clamp_(-1, 1)
    if step.slopes == "bounded":
        bound_slopes(network)
    latent.constrain(network)
    distributed.average_statistics(network)
    world = distributed.rank_world()[1]
    if world > 1:
        distributed.sum_(sums)
        sums[0] /= world
    return float(sums[0]), int(sums[1])


@torch.no_grad()
def bound_slopes(network: nn.Module) -> None:
    """|slope - 1| <= 1 in every PReLU: what it adds to a negative value is then a 16-bit fraction of it (see `FixedPReLU`)."""
    for module in network.modules():
        if isinstance(module, nn.PReLU):
            module.weight.clamp_(0, 2)
