"""Several processes, launched by `torchrun`: torch's DistributedDataParallel and the few things around it.

A batch is cut into parts, and batch norm sees a part (the paper: 4 GPUs with 32 images each, sec. 5.1). One process works
through all parts of a batch, W processes through 1/W of them each; so the gradients, and the loss curve, are the same to
rounding. The running statistics of batch norm are averaged over the processes after every update.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bcnn.base.errors import UserError


def rank_world() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


@contextmanager
def processes(device: str, resume_command: str = "--resume") -> Iterator[str]:
    """Join the processes that torchrun started, if it did; yields the device of this one. A lost process is a `UserError`."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # unknown, not built in, not there
        reason = str(error).partition("\n")[0]
        raise UserError(f"device {device!r} cannot be used here, set device to auto or cpu: {reason}") from None
    if "LOCAL_RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    # When a process dies, torchrun sends SIGTERM to the others: they must live long enough to say what happened.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield device
    except RuntimeError as error:
        if not _is_lost_peer(error):
            raise
        raise UserError(
            f"process {os.environ['RANK']} lost contact with another process of this run; the last checkpoint is "
            f"complete, continue with torchrun as before and: {resume_command}"
        ) from None
    finally:
        gc.collect()  # gloo may abort at exit if a model that uses the group outlives it
        dist.destroy_process_group()


def _is_lost_peer(error: RuntimeError) -> bool:
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "nccl", "connection", "peer"))


def sum_(*tensors: Tensor) -> None:
    """Each tensor becomes its sum over the processes."""
    for tensor in tensors:
        dist.all_reduce(tensor)


def wrap(network: nn.Module) -> nn.Module:
    return DistributedDataParallel(network) if rank_world()[1] > 1 else network


def gradients_stay_local(model: nn.Module, local: bool) -> AbstractContextManager[None]:
    """For all but the last part of a batch: add up gradients here, exchange them once."""
    if local and isinstance(model, DistributedDataParallel):
        context: AbstractContextManager[None] = model.no_sync()
        return context
    return nullcontext()


@torch.no_grad()
def average_statistics(network: nn.Module) -> None:
    """Batch norm's running statistics become their mean over the processes, so that all of them hold the same network."""
    world = rank_world()[1]
    if world == 1:
        return
    buffers = [buffer for buffer in network.buffers() if buffer.is_floating_point()]
    flat = torch.cat([buffer.flatten() for buffer in buffers])
    dist.all_reduce(flat)
    for buffer, mean in zip(buffers, torch.split(flat / world, [b.numel() for b in buffers]), strict=True):
        buffer.copy_(mean.view_as(buffer))


def any_process(flag: bool, device: str) -> bool:
    """Whether any process says so; all get the same answer."""
    if rank_world()[1] == 1:
        return flag
    shared = torch.tensor([float(flag)], device=device)
    dist.all_reduce(shared)
    return bool(shared.item() > 0)


def wait_for_all() -> None:
    if rank_world()[1] > 1:
        dist.barrier()
