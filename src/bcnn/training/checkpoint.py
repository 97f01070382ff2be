"""Weights and what belongs to them <-> one safetensors file. No pickle; a file is written whole or not at all.

A checkpoint's tensors are the network's `state_dict`; in one that a run can go on from, Adam's state stands beside them
under `optimizer/`. Its metadata is JSON: which network it is, config of the run, mean and deviation of the data, class names, where the run was,
a hash per tensor and one of the metadata itself.

    run folder   last.safetensors           where the run is; at its end, the trained network
                 last.previous.safetensors  the one before it, for a resumed run that finds the last one damaged
                 best.safetensors           the highest accuracy of the last step
                 STEP.safetensors           the network at the end of each step
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from bcnn.base.dataclass_io import shown, told
from bcnn.base.errors import UserError
from bcnn.base.files import digest, write_atomic
from bcnn.nets import latent, network_spec
from bcnn.nets.bcnn import Network
from bcnn.nets.config import NetworkConfig
from bcnn.program.program import SMALLEST_CROP
from bcnn.training.transfer import check_state, transfer

FORMAT = "bcnn-checkpoint-2"
UNHASHED_FORMAT = "bcnn-checkpoint-1"  # the same without hashes; still read
HASHED_KEYS = ("network", "weights", "meta", "progress", "hashes")  # the parts of the header that its hash is of
OPTIMIZER_PREFIX = "optimizer/"


@dataclass(frozen=True)
class Meta:
    """What a trained network needs besides its weights."""

    mean: tuple[float, float, float]  # of the training images in units of 0 ... 1: x = (u / 255 - mean) / std
    std: tuple[float, float, float]
    labels: tuple[str, ...]
    crop: float  # of evaluation, see images.fit
    provenance: dict[str, Any] = field(default_factory=dict)  # see `provenance`: plain JSON data


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A file's content, checked for its form only."""

    network: network_spec.AnyNetwork
    weights: str  # mode of the binary convolutions, see binarize.WEIGHTS
    state: dict[str, Tensor]
    meta: Meta
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)  # where the run was, see train.loop


def previous(path: Path) -> Path:
    """Where the generation before `path` is kept: a.safetensors -> a.previous.safetensors."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def save(path: str | Path, checkpoint: Checkpoint, keep: bool = False) -> None:
    """Write the file whole or not at all: a process killed here, or a full disk, leaves the one before it. `OSError` passes.

    With `keep`, the one before it stays as `previous(path)` after a success, too.
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.state.items()}
    tensors |= {
        OPTIMIZER_PREFIX + name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.optimizer.items()
    }
    header = {
        "format": FORMAT,
        "network": json.dumps(network_spec.to_plain(checkpoint.network)),
        "weights": checkpoint.weights,
        "meta": json.dumps(vars(checkpoint.meta)),
        "progress": json.dumps(checkpoint.progress),
        "hashes": json.dumps({name: tensor_hash(tensor) for name, tensor in tensors.items()}),
    }
    header["hash"] = header_hash(header)
    path = Path(path)
    write_atomic(path, safetensors.torch.save(tensors, header), previous(path) if keep else None)


def tensor_hash(tensor: Tensor) -> str:
    return digest(tensor.reshape(-1).view(torch.uint8).numpy().data)


def header_hash(header: Mapping[str, str]) -> str:
    return digest(json.dumps([header[key] for key in HASHED_KEYS]).encode())


def find(path: str | Path) -> Path:
    """The checkpoint that a path means: itself, or the last one of a run folder."""
    path = Path(path)
    if path.is_dir():
        last = path / "last.safetensors"
        if not last.is_file():
            raise UserError(f"{path} is not a run folder: it has no last.safetensors{_hint(last)}")
        return last
    if not path.is_file():
        raise UserError(f"no checkpoint at {path}; give a .safetensors file of a run, or the run folder")
    return path


def best_of(path: str | Path) -> Path:
    """The best checkpoint of a run folder's last step; a run whose last step has not been evaluated has none."""
    path = Path(path)
    if not path.is_dir():
        raise UserError(f"--best chooses among the checkpoints of a run folder, and {path} is none")
    best = path / "best.safetensors"
    if not best.is_file():
        raise UserError(f"{path} has no best.safetensors: no epoch of it was evaluated yet")
    return best


def described(path: str | Path) -> str:
    """Which checkpoint a path means, and what is known of it: a sentence for the one who packs it."""
    file = find(path)
    found = _read(file)
    reached = found.meta.provenance.get("accuracy") or {}
    steps = [step for step in (found.meta.provenance.get("config") or {}).get("steps", ()) if isinstance(step, dict)]
    names = [str(step.get("name")) for step in steps]
    ended = ", ".join(f"{share:.2%} top-1 after {name}" for name, share in reached.items() if isinstance(share, float))
    where = ""
    if found.progress:
        at, epoch = found.progress.get("step", 0), found.progress.get("epoch", 0)
        unfinished = f"; in the middle of {names[at]}, {epoch} epochs done" if at < len(names) else ""
        where = "the end of the run" if found.progress.get("finished") else f"the run is not finished{unfinished}"
    elif file.name == "best.safetensors":
        where = "the epoch with the highest accuracy of the last step that was evaluated"
    return f"{file}: " + "; ".join(part for part in (where, ended) if part)


def read(path: str | Path) -> Checkpoint:
    """A file's content; whatever is wrong with it becomes one sentence, which names the generation before if there is one."""
    path = find(path)
    try:
        return _read(path)
    except UserError as error:
        raise UserError(f"{error}{_hint(path)}") from None


def read_or_previous(path: Path) -> tuple[Checkpoint | None, str]:
    """Where a resumed run begins: the checkpoint, or if it is damaged or gone the generation before, and a sentence about that.

    None if neither was ever written. A run that goes on from either ends with the same bits.
    """
    before = previous(path)
    try:
        if path.exists():
            return _read(path), ""
        damage = f"{path} is gone"
    except UserError as error:
        damage = str(error)
    if not before.exists():
        if path.exists():
            raise UserError(f"{damage}; there is no generation before it to resume from: start a new run")
        return None, ""
    try:
        return _read(before), f"{damage}; resumed from the generation before it, {before.name}"
    except UserError as error:
        raise UserError(f"{damage}; and the generation before it is no better: {error}; start a new run") from None


def restore(path: Path) -> None:
    """After a fall back: the generation before takes the damaged one's place, or the next save would keep the damaged one."""
    os.replace(previous(path), path)


def _hint(path: Path) -> str:
    return f"; the generation before it is {previous(path)}" if previous(path).is_file() else ""


def _read(path: Path) -> Checkpoint:
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            header: Mapping[str, str] = file.metadata() or {}
            if header.get("format") not in (FORMAT, UNHASHED_FORMAT):
                found = header.get("format", "none")
                if found.isdecimal():
                    raise UserError(
                        f"{path} is a packed file already, not a checkpoint; look into it with: bcnn info {path}"
                    )
                raise UserError(
                    f"{path} is no checkpoint of this version: format {shown(found, 80)}, expected {FORMAT!r}"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if header["format"] == FORMAT:
            _check_hashes(header, tensors)
        network = network_spec.from_plain(json.loads(header["network"]))
        meta = json.loads(header["meta"])
        mean, std = tuple(map(float, meta["mean"])), tuple(map(float, meta["std"]))
        if len(mean) != 3 or len(std) != 3:
            raise ValueError("mean and std need three values")
        crop = float(meta["crop"])
        if not all(map(math.isfinite, (*mean, *std))) or min(std) <= 0 or not SMALLEST_CROP <= crop <= 1:
            raise ValueError(f"no images are prepared with mean {mean}, std {std} and crop {crop}")
        progress = json.loads(header["progress"])
        if not isinstance(progress, dict):
            raise ValueError("progress is no table")
        return Checkpoint(
            network,
            header["weights"],
            {name: tensor for name, tensor in tensors.items() if not name.startswith(OPTIMIZER_PREFIX)},
            Meta(mean, std, tuple(map(str, meta["labels"])), crop, dict(meta["provenance"])),
            {name[len(OPTIMIZER_PREFIX) :]: t for name, t in tensors.items() if name.startswith(OPTIMIZER_PREFIX)},
            progress,
        )
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is not a complete safetensors file: {told(error)}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} has a damaged header: {told(error)}") from None


def _check_hashes(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    if header["hash"] != header_hash(header):
        raise ValueError("it does not match its hash")
    hashes = json.loads(header["hashes"])
    if hashes.keys() != tensors.keys():
        raise ValueError("its hashes are not one for each tensor")
    for name, tensor in tensors.items():
        if hashes[name] != tensor_hash(tensor):
            raise ValueError(f"tensor {shown(name)} does not match its hash")


def fits(checkpoint: Checkpoint, source: str) -> None:
    """Whether the tensors are those of the network that the header describes, before memory is taken for that network.

    A file of a few kilobytes may describe one of many gigabytes. Its binary convolutions alone are counted first, then all
    shapes are compared on torch's "meta" device, where tensors have no memory.
    """
    state = checkpoint.state
    if isinstance(checkpoint.network, NetworkConfig):
        blocks = checkpoint.network.plan()
        branches = sum(2 * block.branches * block.filter**2 for block in blocks)
        weights = sum(2 * block.branches * block.filter**2 * block.channels**2 for block in blocks)
        values = sum(tensor.numel() for tensor in state.values())
        if branches > len(state) or weights > values:
            raise UserError(
                f"{source} lacks tensors: its network has {weights:,} binary weights, the file {values:,} values in {len(state):,} tensors"
            )
    with torch.device("meta"):
        network = build(checkpoint)
    check_state(checkpoint.state, network, source)


def build(checkpoint: Checkpoint) -> nn.Module:
    """The network that the header describes, with random weights."""
    network = network_spec.build(checkpoint.network)
    latent.set_weights(network, checkpoint.weights)
    return network


def load(path: str | Path) -> tuple[nn.Module, Meta]:
    """The trained network in eval mode, and its `Meta`. `path`: a checkpoint, or a run folder (its last one).

    Weights trained with a scale ("scaled") come with the scale folded into batch norm, so that the result is "real" or "binary".
    """
    checkpoint = read(path)
    fits(checkpoint, str(path))
    network = build(checkpoint)
    transfer(checkpoint.state, network, str(path))
    if isinstance(network, Network):
        network.fold_scale()
    return network.eval(), checkpoint.meta
