"""Weights and what belongs to them <-> one safetensors file. No pickle; a file is written whole or not at all.

A checkpoint's tensors are the network's `state_dict`; in one that a run can go on from, Adam's state stands beside them
under `optimizer/`. Its metadata is JSON: config of the run, mean and deviation of the data, class names, where the run was.

    run folder   last.safetensors  where the run is; at its end, the trained network
                 best.safetensors  the highest accuracy of the last step
                 STEP.safetensors  the network at the end of each step
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from bcnn.errors import UserError
from bcnn.files import write_atomic
from bcnn.nets import config as network_config
from bcnn.nets.bcnn import Network
from bcnn.train.transfer import transfer

FORMAT = "bcnn-checkpoint-1"
OPTIMIZER = "optimizer/"


@dataclass(frozen=True)
class Meta:
    """What a trained network needs besides its weights."""

    mean: tuple[float, float, float]  # of the training images in units of 0 ... 1: x = (u / 255 - mean) / std
    std: tuple[float, float, float]
    labels: tuple[str, ...]
    crop: float  # of evaluation, see images.fit
    provenance: dict[str, Any] = field(
        default_factory=dict
    )  # recipe, config, seed, accuracies, versions: plain JSON data


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A file's content, checked for its form only."""

    network: network_config.NetworkConfig
    weights: str  # mode of the binary convolutions, see binarize.WEIGHTS
    state: dict[str, Tensor]
    meta: Meta
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)  # where the run was, see train.loop


def save(path: str | Path, checkpoint: Checkpoint) -> None:
    """Write the file whole or not at all: a process killed here, or a full disk, leaves the one before it. `OSError` passes."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.state.items()}
    tensors |= {OPTIMIZER + name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.optimizer.items()}
    meta = checkpoint.meta
    header = {
        "format": FORMAT,
        "network": json.dumps(network_config.to_dict(checkpoint.network)),
        "weights": checkpoint.weights,
        "meta": json.dumps(
            {
                "mean": meta.mean,
                "std": meta.std,
                "labels": meta.labels,
                "crop": meta.crop,
                "provenance": meta.provenance,
            }
        ),
        "progress": json.dumps(checkpoint.progress),
    }
    write_atomic(Path(path), safetensors.torch.save(tensors, header))


def find(path: str | Path) -> Path:
    """The checkpoint that a path means: itself, or the last one of a run folder."""
    path = Path(path)
    if path.is_dir():
        if not (path / "last.safetensors").is_file():
            raise UserError(f"{path} is not a run folder: it has no last.safetensors")
        return path / "last.safetensors"
    if not path.is_file():
        raise UserError(f"no checkpoint at {path}; give a .safetensors file of a run, or the run folder")
    return path


def read(path: str | Path) -> Checkpoint:
    """A file's content; whatever is wrong with it becomes one sentence."""
    path = find(path)
    try:
        with safetensors.safe_open(str(path), "pt") as file:
            header: Mapping[str, str] = file.metadata() or {}
            if header.get("format") != FORMAT:
                found = header.get("format", "none")
                if "program" in header:
                    raise UserError(
                        f"{path} is a packed file already, not a checkpoint; look into it with: bcnn info {path}"
                    )
                raise UserError(f"{path} is no checkpoint of this version: format {found!r}, expected {FORMAT!r}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        network = network_config.from_dict(json.loads(header["network"]))
        meta = json.loads(header["meta"])
        mean, std = tuple(map(float, meta["mean"])), tuple(map(float, meta["std"]))
        if len(mean) != 3 or len(std) != 3:
            raise ValueError("mean and std need three values")
        return Checkpoint(
            network,
            header["weights"],
            {name: tensor for name, tensor in tensors.items() if not name.startswith(OPTIMIZER)},
            Meta(mean, std, tuple(map(str, meta["labels"])), float(meta["crop"]), dict(meta["provenance"])),
            {name[len(OPTIMIZER) :]: t for name, t in tensors.items() if name.startswith(OPTIMIZER)},
            json.loads(header["progress"]),
        )
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is not a complete safetensors file: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} has a damaged header: {error}") from None


def load(path: str | Path) -> tuple[Network, Meta]:
    """The trained network in eval mode, and its `Meta`. `path`: a checkpoint, or a run folder (its last one).

    Weights trained with a scale ("scaled") come with the scale folded into batch norm, so that the result is "real" or "binary".
    """
    checkpoint = read(path)
    network = Network(checkpoint.network, checkpoint.weights)
    transfer(checkpoint.state, network, str(path))
    network.fold_scale()
    return network.eval(), checkpoint.meta
