"""What a user asks of a run, and what was chosen for it. The command line and `bcnn.train` both make a `Wanted`. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from bcnn.data.sources import Source
from bcnn.nets.network_spec import AnyNetwork
from bcnn.training.config import TrainConfig


@dataclass(frozen=True, eq=False)
class Wanted:
    """Whatever is not asked for stays as the recipe, the start or the plan has it."""

    data: str | Source = ""  # where the images are, or images that a program holds
    recipe: str = ""
    network: str | AnyNetwork = ""
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
