"""`--minutes M`: what to start from, image size, epochs and learning rate for the time there is.

1. Look: how many images of what size, and how long a few of them take to read.
2. Measure: images per second of the network on this machine, at the smallest size that comes into question. A few seconds.
3. Choose from `TUNE_SIZES`, which holds what experiments showed (docs/training.md), and print the plan.
4. Keep to it: after every epoch, `TimeBudget` cuts or adds epochs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.base.files import check_plain
from bcnn.data.decode import Unreadable, batches
from bcnn.data.sources import Source, part
from bcnn.nets import fused, latent, network_spec
from bcnn.packed import shipped
from bcnn.training import adam, budget, initial_weights, recipes
from bcnn.training.beginning import FIT_IMAGES, FIT_SHARE
from bcnn.training.choose import tune
from bcnn.training.config import Step, TrainConfig
from bcnn.training.time_estimate import FORWARD_SHARE, duration

MEASURED_BATCH = 16  # images of an update that is measured
MEASURED_SECONDS = 1.5  # of updates
OPENING_SHARE = 0.05  # of the time: fitting the decoder, the report and packing, done twice
MIN_EPOCHS = 24  # shorter than the data set if need be: the plan is corrected after each
EVALUATIONS = 5  # over the run
MAX_READING_SHARE = 0.3  # of the time, for reading images: of more of them only a part is used
READ_IMAGES = 24  # that are read to know how long it takes
MIN_MINUTES = 0.5  # below, opening and closing take all there is


@dataclass(frozen=True)
class TuneSize:
    """Images of `size` pixels a side, if there is time for `passes` over the training images with them."""

    size: int
    passes: float


# In order of preference: the first that there is time for.
TUNE_SIZES = (TuneSize(128, 4), TuneSize(96, 2), TuneSize(64, 0))


def make(
    minutes: float,
    source: Source,
    init: str = "",
    network: network_spec.AnyNetwork | None = None,
    spent: float = 0.0,
    clock: budget.Clock = time.monotonic,
) -> tuple[TrainConfig, tuple[str, ...]]:
    """The run that is to take `minutes`, of which `spent` seconds are gone, and lines about it. `init`: "none" is from scratch."""
    if minutes < MIN_MINUTES:
        raise UserError(
            f"--minutes {minutes:g}: give at least {MIN_MINUTES:g}, below that reading and packing take it all"
        )
    side = typical_side(source)
    reading = seconds_to_read(source, clock)
    share = min(1.0, MAX_READING_SHARE * 60 * minutes / max(reading, 1e-6))
    lines: list[str] = []
    if share < 1:
        lines.append(
            f"reading all {len(source.train) + len(source.val):,} images would take {duration(reading)}: {share:.0%} of them are used"
        )
        source, reading = part(source, share), share * reading
    planner = Planner(minutes, source, share, spent + reading, clock, lines)
    if not init and network is None and side >= 32:
        init = shipped.start()
    if init and init != "none":
        config = planner.tuned(init, network or initial_weights.network_of(init), side)
    else:
        config = planner.from_scratch(network, side)
    return config, tuple(lines)


@dataclass(frozen=True, eq=False)
class Planner:
    minutes: float
    source: Source  # the images that there is time to read
    share: float  # that those are of the data set
    spent: float  # seconds
    clock: budget.Clock
    lines: list[str]  # what was found, measured and chosen, for the user

    def tuned(self, init: str, network: network_spec.AnyNetwork, side: int) -> TrainConfig:
        """Go on from a trained network: step 2 alone."""
        stride = network.stride
        network = network.replace(classes=len(self.source.classes))
        usable = [c for c in TUNE_SIZES if c.size % stride == 0 and c.size <= max(side, 64)]
        if not usable:  # a network whose stride divides none of them: its own size
            usable = [replace(TUNE_SIZES[-1], size=network.image_size[0])]
        self.lines.append(f"start: {init} ({network.name}), all but its decoder")
        smallest = usable[-1].size
        measured = measure(network.replace(image_size=(smallest, smallest)), self.clock)
        for choice in usable:
            speed = measured * (smallest / choice.size) ** 2  # work is in proportion to pixels
            passes = self.passes(speed)
            enough = passes >= choice.passes or choice is usable[-1]
            self.lines.append(
                f"{choice.size} x {choice.size}: {speed:.3g} images/s here, {passes:.1f} passes over "
                f"{len(self.source.train):,} training images fit"
                + ("" if enough else f", fewer than the {choice.passes:g} it needs")
            )
            if enough:
                break
        config = tune(network.replace(image_size=(choice.size, choice.size)))
        return self.finished(replace(config, init=init, evaluate_with="engine"), passes)

    def from_scratch(self, network: network_spec.AnyNetwork | None, side: int) -> TrainConfig:
        """No start fits (tiny images, or another network was asked for): the steps of the nearest recipe, as long as there is time."""
        size = network.image_size if network else (side, side)
        base = recipes.recipe(recipes.for_size(size))
        network = (network or base.network).replace(classes=len(self.source.classes))
        speed = measure(network, self.clock)
        shares = [step.total_epochs for step in base.steps]
        unit = sum(e * s.size**2 for e, s in zip(shares, base.steps, strict=True)) / sum(shares)
        passes = self.passes(speed / unit)
        self.lines.extend(
            [
                f"start: random weights, {network.name} with the steps of recipe {base.recipe}",
                f"{network.image_size[0]} x {network.image_size[1]}: {speed:.3g} images/s here, {passes:.1f} passes over "
                f"{len(self.source.train):,} training images fit",
            ]
        )
        return self.finished(replace(base, network=network), passes)

    def passes(self, speed: float) -> float:
        """Over the training images, when `EVALUATIONS` of the others, and a pass that fits the decoder, are paid for."""
        train, val = len(self.source.train), len(self.source.val)
        seconds = 60 * self.minutes * (1 - OPENING_SHARE) - self.spent
        forward = FORWARD_SHARE["engine"] * (EVALUATIONS * val + min(FIT_IMAGES, train))
        return max(0.0, seconds - min(forward / speed, FIT_SHARE * seconds)) * speed / train

    def finished(self, config: TrainConfig, passes: float) -> TrainConfig:
        """Epochs for that many passes: short ones where there are few, so that the plan can be corrected often."""
        images = len(self.source.train)
        batch = min(config.batch, images)
        epochs = max(MIN_EPOCHS, round(passes), len(config.steps))
        per_epoch = min(images, max(batch, int(passes * images / epochs)))
        epochs = max(len(config.steps), round(passes * images / per_epoch))
        config = replace(
            config,
            data=replace(config.data, share=self.share),
            batch=batch,
            epoch_images=0 if per_epoch == images else per_epoch // batch * batch,
            steps=budget.scaled(config.steps, epochs),
            evaluate_every=max(1, epochs // EVALUATIONS),
            minutes=self.minutes,
            pack=True,
        )
        if passes < 1:
            self.lines.append(
                "less than one pass fits: little more than the decoder will be learned; give more minutes, or cores that are free"
            )
        rates = ", ".join(f"{step.name} {step.total_epochs} at lr {step.lr:g}" for step in config.steps)
        self.lines.append(f"epochs of {per_epoch:,} images: {rates}; batch {config.batch}")
        self.lines.append(
            f"in all {duration(60 * config.minutes)} with decoding, evaluation and packing; epochs are cut or added as it goes"
        )
        return config


def typical_side(source: Source) -> int:
    """The shorter side of a typical image, from the headers of a few."""
    items = source.train.items
    if isinstance(items, np.ndarray):
        return int(min(items.shape[1:3]))
    sides = []
    for item in items[:: max(1, len(items) // 20)]:
        if isinstance(item, Image.Image):
            sides.append(min(item.size))
            continue
        try:
            check_plain(item)
            with images.header(item) as image:
                sides.append(min(image.size))
        except (*images.DECODERS_RAISE, Image.DecompressionBombError):
            continue
    return int(np.median(sides)) if sides else 224


def seconds_to_read(source: Source, clock: budget.Clock) -> float:
    """What reading all images takes, by a few of them spread over the classes."""
    items = source.train.items
    if isinstance(items, np.ndarray):
        return 0.0
    some = np.zeros(len(items), np.bool_)
    some[:: max(1, len(items) // READ_IMAGES)] = True
    began = clock()
    for _ in batches(source.train.take(some), (128, 128), 1.0, Unreadable(silent=True), READ_IMAGES):
        pass
    return (clock() - began) / int(some.sum()) * (len(source.train) + len(source.val))


def measure(network: network_spec.AnyNetwork, clock: budget.Clock = time.monotonic) -> float:
    """Images per second of training updates, on random images: the median of `MEASURED_SECONDS` seconds, after one to warm up."""
    torch.manual_seed(0)
    module = network_spec.build(network)
    latent.set_weights(module, "binary")
    optimizer = adam.adam(module, Step(lr=1e-6))
    x, y = torch.randn(MEASURED_BATCH, 3, *network.image_size), torch.randint(0, network.classes, (MEASURED_BATCH,))
    times: list[float] = []
    with fused.cores(module):
        began = clock()
        while len(times) < 3 or clock() - began < MEASURED_SECONDS:
            start = clock()
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            times.append(clock() - start)
    return MEASURED_BATCH / float(np.median(times[1:]))
