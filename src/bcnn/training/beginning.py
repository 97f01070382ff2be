"""The network that a new run begins with: random weights from its seed, or those of another network and what that one lacks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from bcnn.base.progress import Progress
from bcnn.nets import fused, latent, network_spec
from bcnn.training import initial_weights, new_decoder
from bcnn.training.budget import TimeBudget
from bcnn.training.evaluate import batch_size
from bcnn.training.opening import OpenRun
from bcnn.training.rebuild import calibrate
from bcnn.training.terminal import Terminal

CALIBRATION_IMAGES = 64  # that batch norm's statistics are measured on: those of a batch
FIT_IMAGES = 4096  # at most, that a new decoder is fitted to: training goes on from there
FIT_SHARE = 0.25  # of a run's minutes, at most for that


def first_network(opened: OpenRun, batch: int, budget: TimeBudget | None, terminal: Terminal) -> nn.Module:
    config, data, start = opened.run.config, opened.data, opened.start
    torch.manual_seed(config.seed)
    network = network_spec.build(config.network)
    if start is None:
        return network
    report, needs_decoder = initial_weights.take_over(start, network, data.classes)
    terminal.say(report, "green")
    size = config.crop_size(config.steps[0])
    if start.packed:
        first = next(data.train_batches(0, batch, config.seed, size=size)).x[:CALIBRATION_IMAGES]
        calibrate(network, first)
        terminal.say(f"batch norm: mean and variance, which a packed file has not, from {len(first)} images", "dim")
    if not needs_decoder:
        return network
    # Every process does the same: the images of all, so that all have one network.
    images = min(FIT_IMAGES, len(data.train))
    batches = data.train_batches(0, batch, config.seed, size=size, images=images)
    small = batch_size(size, "cpu")
    parts: Iterator[tuple[Tensor, Tensor]] = (
        (x, y) for b in batches for x, y in zip(torch.split(b.x, small), torch.split(b.y, small), strict=True)
    )
    if budget is not None:
        parts = budget.at_most(FIT_SHARE, parts)
    with terminal.side_tasks() as progress, fused.cores(network):
        latent.set_weights(network, config.steps[0].weights)
        shown = counted(parts, progress, images)
        reads = (data.mean, data.std, size) if config.steps[0].weights == "binary" else None
        x, y = new_decoder.features(network, shown, reads)
    share = new_decoder.fit_decoder(network, x, y)
    terminal.say(
        f"new decoder: fitted to {len(y):,} crops of training images, {share:.1%} right of those left out of a fit",
        "dim",
    )
    return network


def counted(parts: Iterator[tuple[Tensor, Tensor]], progress: Progress, images: int) -> Iterator[tuple[Tensor, Tensor]]:
    for part in parts:
        yield part
        progress("fit the decoder", len(part[1]), images)
