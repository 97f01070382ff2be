"""What a user asks of a run, on the command line or from Python (recipe, network, start, size, epochs or minutes, settings) -> the complete `TrainConfig`.

nothing, or a recipe           that recipe
a network                      its settings from the recipe for images of its size
a start, `--init`              go on from it: one step of binary weights, `tune`, or the recipe's steps
`--minutes`                    `plan` chooses; a start is the shipped backbone unless told otherwise
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from bcnn.base.errors import UserError
from bcnn.data.config import Augment, DataConfig
from bcnn.data.sources import Source, find_source
from bcnn.nets import network_spec
from bcnn.training import budget, recipes, settings
from bcnn.training.config import Step, TrainConfig

TUNE_EPOCHS = 10  # of a run that goes on from another and was not told how long
TUNE_RATE = 2e-3


@dataclass(frozen=True, eq=False)
class Wanted:
    """Whatever is not asked for stays as the recipe, the start or the plan has it."""

    data: str | Source = ""  # where the images are, or images that a program holds
    recipe: str = ""
    network: str | network_spec.AnyNetwork = ""
    init: str = ""
    size: int | tuple[int, int] | None = None
    epochs: int = 0
    minutes: float = 0.0
    strict: bool = False  # stop at the first unreadable image
    settings: tuple[str, ...] = ()  # key=value, applied last


@dataclass(frozen=True, eq=False)
class Choice:
    config: TrainConfig
    lines: tuple[str, ...] = ()  # what was decided for the user
    source: Source | None = None  # the images, where they had to be found for that


def choose(wanted: Wanted, began: float | None = None, clock: budget.Clock = time.monotonic) -> Choice:
    """The run that is wanted. Its minutes count from `began`."""
    if wanted.minutes and wanted.epochs:
        raise UserError("--minutes chooses the epochs: leave out one of --minutes and --epochs")
    if wanted.minutes and wanted.recipe:
        raise UserError("--minutes chooses the settings: leave out one of --minutes and --recipe")
    named = wanted.network
    network = (network_spec.resolve(named) if named else None) if isinstance(named, str) else named
    if network is not None and wanted.size is not None:
        network = network.replace(image_size=_sides(wanted.size))
    lines: tuple[str, ...] = ()
    source = None if isinstance(wanted.data, str) else wanted.data
    if wanted.minutes:
        from bcnn.training import plan

        if isinstance(wanted.data, str):
            source = find_source(DataConfig(source=wanted.data, strict=wanted.strict))
        assert source is not None
        spent = 0.0 if began is None else clock() - began
        config, lines = plan.make(wanted.minutes, source, wanted.init, network, spent, clock)
    elif wanted.init:
        from bcnn.training import initial_weights

        network = network or initial_weights.network_of(wanted.init)
        config = recipes.recipe(wanted.recipe) if wanted.recipe else tune(network)
        config = replace(config, network=network, init=wanted.init)
    else:
        name = wanted.recipe or ("digits" if network is None else recipes.for_size(network.image_size))
        config = recipes.recipe(name)
        if network is not None:
            config = replace(config, network=network)
            lines = (f"{network.name} with the settings of recipe {config.recipe}",)
    if wanted.size is not None:
        config = replace(config, network=config.network.replace(image_size=_sides(wanted.size)))
    if wanted.epochs:
        config = replace(config, steps=budget.scaled(config.steps, wanted.epochs))
    where = (wanted.data or config.data.source) if isinstance(wanted.data, str) else ""
    data = replace(config.data, source=where, strict=wanted.strict or config.data.strict)
    return Choice(settings.override(replace(config, data=data), list(wanted.settings)), lines, source)


def tune(network: network_spec.AnyNetwork) -> TrainConfig:
    """Go on from a trained network on other images: weights stay binary, and the rate is lower than a new network's."""
    step = Step(name="tune", weights="binary", warmup=1, epochs=TUNE_EPOCHS - 1, lr=TUNE_RATE, weight_decay=0.0)
    data = DataConfig(stored=1.25, crop=0.875, augment=Augment(scale=(0.25, 1.0)))
    if min(network.image_size) < 32:
        data = DataConfig(crop=1.0, augment=Augment(scale=(0.9, 1.0), ratio=(0.9, 1.1), shift=0.03, flip=False))
    return TrainConfig("tune", network, data, (step,), batch=32, part=0)


def _sides(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
