"""Adam for a step, and its state as named tensors that a checkpoint can hold."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bcnn.errors import UserError
from bcnn.train.config import Step


def adam(network: nn.Module, step: Step) -> torch.optim.Adam:
    """Adam with L2 weight decay on the weights of convolutions only (sec. 5.1)."""
    convolutions = [p for name, p in network.named_parameters() if name.endswith("weight") and p.dim() == 4]
    chosen = {id(p) for p in convolutions}
    others = [p for p in network.parameters() if id(p) not in chosen]
    groups = [{"params": convolutions, "weight_decay": step.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.Adam(groups, lr=step.lr, fused=True)


def state_by_name(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    """Adam's state by parameter name: NAME/exp_avg, NAME/exp_avg_sq, NAME/step."""
    return {
        f"{name}/{key}": value
        for name, parameter in network.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def load_state(optimizer: torch.optim.Optimizer, network: nn.Module, state: dict[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        try:
            optimizer.state[parameter] = {
                key: state[f"{name}/{key}"].clone().to(parameter.device) for key in ("step", "exp_avg", "exp_avg_sq")
            }
        except KeyError as error:
            raise UserError(f"the checkpoint lacks the optimizer's {error.args[0]!r}; it cannot be resumed") from None
