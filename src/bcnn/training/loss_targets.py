"""What a step compares the network's output with: labels, a teacher, or a teacher's stored outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from bcnn.base.errors import UserError
from bcnn.nets.bcnn import Network
from bcnn.nets.config import NetworkConfig
from bcnn.training import distributed, losses, teachers
from bcnn.training.config import Step
from bcnn.training.opening import OpenRun
from bcnn.training.terminal import Terminal


@dataclass(frozen=True, eq=False)
class Targets:
    """Without a teacher, the labels."""

    step: Step
    teacher: teachers.Teacher | None = None
    stored: teachers.Stored | None = None

    def loss(
        self, logits: Tensor, maps: list[Tensor], x: Tensor, y: Tensor, index: NDArray[np.int64], epoch: int
    ) -> Tensor:
        if self.teacher is None:
            if self.step.loss == "squared hinge":
                return losses.squared_hinge(logits, y)
            return F.cross_entropy(logits, y, label_smoothing=self.step.smoothing)
        if self.stored is not None:
            return losses.distribution_loss(logits, self.stored(epoch, index, str(x.device)))
        targets, teacher_maps = self.teacher(x)
        loss = losses.distribution_loss(logits, targets)
        if self.step.matching:
            loss = loss + self.step.matching * losses.matching_loss(maps, teacher_maps)
        return loss


def find_targets(step: Step, opened: OpenRun, terminal: Terminal) -> Targets:
    """The teacher that `step` names, if any; its outputs are stored first where images come in fixed variants."""
    if step.teacher == "none":
        return Targets(step)
    run, config, data, device = opened.run, opened.run.config, opened.data, opened.device
    is_step = any(step.teacher == other.name for other in config.steps)
    name = str(run.folder.step(step.teacher)) if is_step else step.teacher
    teacher = teachers.load(name, data, device, run.trust)
    if step.matching and not isinstance(config.network, NetworkConfig):
        raise UserError(
            f"step {step.name!r}: matching needs the levels of the paper's networks; {config.network.name} has none"
        )
    if step.matching and not isinstance(teacher.module, Network):
        raise UserError(f"step {step.name!r}: matching needs a teacher with the paper's levels, not {step.teacher}")
    variants = data.config.augment.fixed
    if not variants or step.matching:
        return Targets(step, teacher)
    file = run.folder.path / teachers.stored_name(name, data, config.seed)
    if not file.exists() and distributed.rank_world()[0] == 0:
        terminal.say(f"storing the outputs of {step.teacher} in {file.name}", "dim")
        with terminal.side_tasks() as progress:
            for images in teachers.store(file, teacher, data, config.seed, config.batch, device):
                progress(f"teacher {step.teacher}", images, variants * len(data.train))
    distributed.wait_for_all()
    return Targets(step, teacher, teachers.Stored(file, variants, len(data.train), len(data.classes)))
