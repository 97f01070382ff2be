"""Where the distributional loss gets its targets: a teacher by name -> output probabilities for a batch of ours.

    torchvision:NAME, timm:NAME   a pretrained ImageNet network, where that package is installed (the paper: resnet34)
    PATH.pt2                      an exported torch program, N,3,H,W -> logits; only with trust
    PATH, or an earlier step      a checkpoint of ours, or a run folder

A teacher gets the student's own crop, resized to the size it was made for and normalised the way it was trained.

Trust: torch reads parts of a .pt2 as pickles, and a pickle can run any code, so one is loaded only if the person at the
keyboard says so, each time; a run folder, which may come from elsewhere, cannot say it for them. Checkpoints need none.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bcnn.base.affine import IMAGENET_MEAN, IMAGENET_STD
from bcnn.base.errors import UserError
from bcnn.base.files import check_plain, replacing
from bcnn.lowering.lower import image_size
from bcnn.nets.bcnn import Network
from bcnn.training import checkpoint
from bcnn.training.batches import Data
from bcnn.training.losses import LevelMaps

IMAGENET = IMAGENET_MEAN, IMAGENET_STD


@dataclass(frozen=True, eq=False)
class Teacher:
    name: str
    module: nn.Module
    scale: Tensor  # from the student's normalisation to the teacher's: x * scale + offset
    offset: Tensor
    size: tuple[int, int] | None = None  # None: takes any

    @torch.no_grad()
    def __call__(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Probabilities N,classes of normalised images, and the maps after each level if it is a network of ours."""
        x = x * self.scale + self.offset
        if self.size and x.shape[2:] != self.size:
            x = F.interpolate(x, self.size, mode="bilinear", align_corners=False, antialias=True)
        if isinstance(self.module, Network):
            with LevelMaps(self.module) as seen:
                return self.module(x).softmax(1), seen.maps
        return self.module(x).softmax(1), []


def load(name: str, data: Data, device: str = "cpu", trust: bool = False) -> Teacher:
    """The teacher called `name`, checked against the data's classes."""
    check(name, trust)
    mean, std = IMAGENET
    size: tuple[int, int] | None = None
    labels: tuple[str, ...] = ()
    if name.startswith(("torchvision:", "timm:")):
        module = _pretrained(*name.split(":", 1))
    elif name.endswith(".pt2"):
        module, size = _exported(Path(name))
    else:
        network, meta = checkpoint.load(name)
        module, mean, std, labels, size = network, meta.mean, meta.std, meta.labels, image_size(network)
    own_std = torch.tensor(data.std).reshape(1, 3, 1, 1)
    own_mean = torch.tensor(data.mean).reshape(1, 3, 1, 1)
    to_std, to_mean = torch.tensor(std).reshape(1, 3, 1, 1), torch.tensor(mean).reshape(1, 3, 1, 1)
    module.requires_grad_(False)
    teacher = Teacher(
        name, module.to(device), (own_std / to_std).to(device), ((own_mean - to_mean) / to_std).to(device), size
    )
    if labels and labels != data.classes:
        raise UserError(
            f"teacher {name} knows other classes than the data: {labels[:3]} ... and {data.classes[:3]} ..."
        )
    classes = teacher(torch.zeros(1, 3, *data.size, device=device))[0].shape[1]
    if classes != len(data.classes):
        raise UserError(f"teacher {name} has {classes} classes, the data {len(data.classes)}; choose another or none")
    return teacher


def check(name: str, trust: bool = False) -> None:
    """Whether a teacher of that name can be there at all, and may be loaded; cheap, for the start of a run."""
    package, colon, model = name.partition(":")
    if colon and package in ("torchvision", "timm"):
        check_trust(name, trust)
        _library(package, model)
    elif name.endswith(".pt2"):
        if not Path(name).is_file():
            raise UserError(f"no exported teacher at {name}")
        check_trust(name, trust)
    else:
        checkpoint.find(name)


def check_trust(name: str, trust: bool) -> None:
    """A name that can mean code from anywhere needs `trust`."""
    if trust:
        return
    if name.endswith(".pt2"):
        raise UserError(
            f"teacher {name} is an exported torch program, and loading one can run any code that is in it; "
            f"if you know where it comes from, say so with --trust"
        )
    package, _, model = name.partition(":")
    if package in ("torchvision", "timm") and not re.fullmatch(r"[\w.-]+", model):
        raise UserError(
            f"teacher {name} is not a plain name of {package}'s own, so it may be fetched from anywhere; "
            f"if you know where it comes from, say so with --trust"
        )


def _library(package: str, model: str) -> Any:
    try:
        return importlib.import_module("torchvision.models" if package == "torchvision" else package)
    except (ImportError, RuntimeError) as error:  # beside another build of torch, torchvision raises RuntimeError
        raise UserError(
            f"teacher {package}:{model} needs {package}, which cannot be imported here ({error}); "
            f"install it, or train on labels with --set steps.*.teacher=none"
        ) from None


def _pretrained(package: str, model: str) -> nn.Module:
    library = _library(package, model)
    try:
        if package == "torchvision":
            return library.get_model(model, weights="DEFAULT").eval()  # type: ignore[no-any-return]
        return library.create_model(model, pretrained=True).eval()  # type: ignore[no-any-return]
    except (ValueError, RuntimeError, OSError) as error:
        raise UserError(f"{package} has no pretrained {model!r}: {error}") from None


def _exported(path: Path) -> tuple[nn.Module, tuple[int, int]]:
    try:
        check_plain(path)
        program = torch.export.load(path)
        (example,), _ = program.example_inputs
        return program.module(), (int(example.shape[2]), int(example.shape[3]))
    except Exception as error:  # torch.export raises whatever its archive reader met
        raise UserError(f"{path} is not an exported torch program of one image batch: {error}") from None


# --- stored outputs -------------------------------------------------------------------------------------------------


class Stored:
    """A teacher's probabilities for every training image in each of its K fixed variants, computed once, kept on disk.

    Needs `data.augment.fixed` = K. They are all computed before the step begins, in one order, so that a resumed run reads
    the same numbers. K,N,classes float32 in a .npy file, mapped, not loaded.
    """

    def __init__(self, file: Path, variants: int, images: int, classes: int) -> None:
        self.variants = variants
        try:
            check_plain(file)
            self.table: NDArray[np.float32] = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"{file} is damaged: {error}; remove it, and it is made again") from None
        wanted = (variants, images, classes)
        if self.table.dtype != np.float32 or self.table.shape != wanted:
            raise UserError(
                f"{file} is damaged: it holds {self.table.dtype} {self.table.shape}, not float32 {wanted}; "
                f"remove it, and it is made again"
            )

    def __call__(self, epoch: int, index: NDArray[np.int64], device: str) -> Tensor:
        return torch.from_numpy(self.table[epoch % self.variants][index]).to(device)


def stored_name(teacher: str, data: Data, seed: int) -> str:
    """A file name that changes with everything the outputs depend on."""
    digest = hashlib.sha256(repr((teacher, data.config.augment, data.size, data.mean, data.std, seed)).encode())
    digest.update(np.ascontiguousarray(data.train.labels).tobytes())
    if Path(teacher).exists():
        digest.update(
            checkpoint.find(teacher).read_bytes() if not teacher.endswith(".pt2") else Path(teacher).read_bytes()
        )
    return f"teacher-{digest.hexdigest()[:16]}.npy"


def store(file: Path, teacher: Teacher, data: Data, seed: int, batch: int, device: str) -> Iterator[int]:
    """Compute and write the table; yields the number of images done, for a progress bar."""
    variants, count = data.config.augment.fixed, len(data.train)
    shape = (variants, count, len(data.classes))
    with replacing(file) as made:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(made, header)
        made.flush()
        table = np.memmap(made, np.float32, "r+", made.tell(), shape)
        for variant in range(variants):
            for part in data.fixed_batches(variant, batch, seed, device):
                table[variant, part.index] = teacher(part.x)[0].cpu().numpy()
                yield len(part.index)
        table.flush()
