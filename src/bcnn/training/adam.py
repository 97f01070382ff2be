"""Adam for a step, or what another paper takes in its place, and its state as named tensors that a checkpoint can hold."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bcnn.base.errors import UserError
from bcnn.nets.latent import latent_weights
from bcnn.training.config import Step

MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # of Adam and RAdam
MOMENTUM = ("momentum_buffer",)  # of SGD


def adam(network: nn.Module, step: Step) -> torch.optim.Optimizer:
    """The step's optimizer with L2 weight decay on the weights of convolutions only (sec. 5.1).

    A group's `scale` multiplies its rate, see `set_rate`.
    """
    convolutions = [p for name, p in network.named_parameters() if name.endswith("weight") and p.dim() == 4]
    chosen = {id(p) for p in convolutions}
    others = [p for p in network.parameters() if id(p) not in chosen]
    groups: list[dict[str, Any]] = [
        {"params": convolutions, "weight_decay": step.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if step.glorot:
        groups = [group for each in groups for group in _by_scale(each, glorot_scales(network))]
    if step.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=step.lr, momentum=0.9)
    if step.optimizer == "radam":
        return torch.optim.RAdam(groups, lr=step.lr)
    return torch.optim.Adam(groups, lr=step.lr, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("scale", 1.0)


def glorot_scales(network: nn.Module) -> dict[int, float]:
    """By id of a binary layer's latent weight: 1 over the coefficient of Glorot's initialization, as in BNN's code."""
    scales = {}
    for weight in latent_weights(network):
        taps = weight[0, 0].numel()
        scales[id(weight)] = float(((weight.shape[1] + weight.shape[0]) * taps / 1.5) ** 0.5)
    return scales


def _by_scale(group: dict[str, Any], scales: dict[int, float]) -> list[dict[str, Any]]:
    """A group for every scale that its parameters have."""
    found: dict[float, list[nn.Parameter]] = {}
    for parameter in group["params"]:
        found.setdefault(scales.get(id(parameter), 1.0), []).append(parameter)
    return [{**group, "params": some, "scale": scale} for scale, some in found.items()]


def state_by_name(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state by parameter name: NAME/exp_avg, NAME/exp_avg_sq, NAME/step of Adam."""
    return {
        f"{name}/{key}": value
        for name, parameter in network.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def load_state(optimizer: torch.optim.Optimizer, network: nn.Module, state: dict[str, Tensor]) -> None:
    keys = MOMENTUM if isinstance(optimizer, torch.optim.SGD) else MOMENTS
    for name, parameter in network.named_parameters():
        try:
            optimizer.state[parameter] = {key: state[f"{name}/{key}"].clone().to(parameter.device) for key in keys}
        except KeyError as error:
            raise UserError(f"the checkpoint lacks the optimizer's {error.args[0]!r}; it cannot be resumed") from None
