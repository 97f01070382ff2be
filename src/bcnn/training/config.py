"""A run as data: network, data, and the steps of the training (sec. 5), in frozen dataclasses. No torch.

Step 1 and step 2 of the paper are two `Step`s of one `TrainConfig`; a second cycle of step 2 is a third. Everything a run
depends on is here, so the run folder that keeps this config can repeat the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bcnn.base.dataclass_io import shown
from bcnn.base.errors import UserError
from bcnn.data.config import DataConfig
from bcnn.nets.network_spec import AnyNetwork

# What a step does to latent weights before a convolution uses them, see binarize.WEIGHTS.
Weights = Literal["real", "binary", "scaled", "tanh", "float"]
Decay = Literal["cosine", "linear", "exponential", "steps"]
Loss = Literal["cross entropy", "squared hinge"]
Optimizer = Literal["adam", "radam", "sgd"]
Slopes = Literal["free", "bounded"]
FINAL_WEIGHTS = ("binary", "scaled")  # what a network can be deployed from
RESERVED_NAMES = ("last", "best")  # checkpoints that every run writes, named as steps are


@dataclass(frozen=True)
class Step:
    """One step of the training. The defaults are the paper's step 1 (sec. 5.1), its teacher apart.

    >>> import bcnn
    >>> bcnn.Step(name="step2", weights="binary", warmup=1, epochs=9).total_epochs
    10
    """

    name: str = "step1"
    weights: Weights = "real"
    warmup: int = 5  # epochs of linear warm-up from lr_first * lr to lr
    epochs: int = 20  # epochs of half-wave cosine decay after it, to lr_last * lr
    size: float = 1.0  # training crops at this share of the network's input; half the size is a quarter of the work
    lr: float = 5e-4
    lr_first: float = 0.01
    lr_last: float = 0.001
    weight_decay: float = 1e-5  # L2, on convolution weights only
    teacher: str = "none"  # none, step1, torchvision:NAME, timm:NAME, a checkpoint of ours, an exported program .pt2
    matching: float = 0.0  # weight of feature-map matching with the teacher (sec. 5.3, last paragraph)
    toward_signs: float = 0.0  # L2 that pulls binary convolutions' latent weights to -1 or +1 (sec. 7)
    clip: bool = False  # keep latent weights in [-1, 1]; the paper does not (sec. 5.2)
    slopes: Slopes = "free"  # "bounded": keep those of PReLUs in [0, 2], faster in integers
    temperature: tuple[float, float] = (1.0, 20.0)  # of weights = "tanh": from, to, growing geometrically
    # What other papers do, see `published`.
    decay: Decay = (
        "cosine"  # of the rate, after warm-up; "steps": lr times the factor of the last drop that was reached
    )
    drops: tuple[tuple[int, float], ...] = ()  # (epoch after warm-up, factor of lr)
    loss: Loss = "cross entropy"  # with labels
    smoothing: float = 0.0  # share of a label that goes to all classes evenly
    optimizer: Optimizer = "adam"  # "sgd" has a momentum of 0.9
    glorot: bool = False  # binary layers' rates times sqrt((inputs + outputs) / 1.5), as BNN's code has it

    def __post_init__(self) -> None:
        where = f"step {shown(self.name, 80)}"
        if not self.name or not self.name.replace("-", "").replace("_", "").isalnum():
            raise UserError(f"{where}: a step's name is letters, digits, - and _, since it names files")
        if self.name in RESERVED_NAMES or len(self.name) > 64:
            raise UserError(
                f"{where}: a step's name has up to 64 letters and is not {' or '.join(RESERVED_NAMES)}, which a run uses"
            )
        if self.warmup < 0 or self.epochs < 0 or self.warmup + self.epochs < 1:
            raise UserError(f"{where}: warmup and epochs must be 0 or more, and at least 1 together")
        for name in ("lr", "lr_first"):
            if getattr(self, name) <= 0:
                raise UserError(f"{where}: {name} must be above 0, got {getattr(self, name)}")
        if self.decay == "exponential" and self.lr_last <= 0:
            raise UserError(f"{where}: lr_last must be above 0 for an exponential decay, got {self.lr_last}")
        if (self.decay == "steps") != bool(self.drops) or list(self.drops) != sorted(self.drops):
            raise UserError(
                f"{where}: decay 'steps', and only that, needs drops: [epoch, factor] in the order of epochs"
            )
        if any(epoch < 0 or factor <= 0 for epoch, factor in self.drops):
            raise UserError(f"{where}: drops are [epoch of 0 or more, factor above 0], got {list(self.drops)}")
        if not 0 <= self.smoothing < 1 or (self.smoothing and self.loss != "cross entropy"):
            raise UserError(f"{where}: smoothing is from 0 to below 1, and of the cross entropy, got {self.smoothing}")
        if self.teacher != "none" and (self.loss != "cross entropy" or self.smoothing):
            raise UserError(f"{where}: a teacher's outputs take the place of labels: leave out loss and smoothing")
        for name in ("lr_last", "weight_decay", "matching", "toward_signs"):
            if getattr(self, name) < 0:
                raise UserError(f"{where}: {name} must be 0 or more, got {getattr(self, name)}")
        if not 0 < self.size <= 1:
            raise UserError(f"{where}: size must be above 0 and up to 1, got {self.size}")
        if self.matching and self.teacher == "none":
            raise UserError(f"{where}: matching needs a teacher; set teacher=step1 or a checkpoint")
        if not 0 < self.temperature[0] <= self.temperature[1]:
            raise UserError(
                f"{where}: temperature must be [from, to] with 0 < from <= to, got {list(self.temperature)}"
            )

    @property
    def total_epochs(self) -> int:
        return self.warmup + self.epochs


@dataclass(frozen=True)
class TrainConfig:
    """A complete run.

    >>> import bcnn
    >>> config = bcnn.recipe("digits")
    >>> isinstance(config, bcnn.TrainConfig), [step.name for step in config.steps]
    (True, ['step1', 'step2'])
    """

    recipe: str
    network: AnyNetwork
    data: DataConfig
    steps: tuple[Step, ...]
    batch: int = 128  # images per update, over all processes
    part: int = 32  # images that batch norm sees at once, as on one of the paper's four GPUs; 0: a process's share
    seed: int = 0
    init: str = ""  # whose weights start the first step: a shipped model, a packed file, a checkpoint, a run folder
    epoch_images: int = 0  # an epoch is at most so many images, others every time; 0: all of them
    minutes: float = 0.0  # the whole run is to take so long: epochs are cut or added as it goes; 0: as the steps say
    pack: bool = False  # the finished run holds model.bcnn, too
    device: str = "auto"  # auto: a GPU if there is one
    threads: int = 0  # of torch on a CPU, 0: its own choice. Small maps gain nothing from several
    evaluate_every: int = 1  # epochs between two evaluations; the last epoch of a step always has one
    evaluate_with: Literal["torch", "engine"] = "torch"  # engine: steps of binary weights are measured as they will run
    meter_every: int = 20  # updates between two looks at the latent weights
    save_seconds: float = 600.0  # between two checkpoints inside an epoch; every epoch ends with one
    tensorboard: bool = True

    def __post_init__(self) -> None:
        if not self.steps:
            raise UserError("a run needs at least one step")
        names = [step.name for step in self.steps]
        if len(set(names)) != len(names):
            raise UserError(f"two steps have the same name: {', '.join(names)}")
        if (
            self.batch < 1
            or self.part < 0
            or not 0 <= self.seed < 1 << 63
            or not 0 <= self.threads <= 1024
            or self.meter_every < 1
            or self.evaluate_every < 1
            or self.save_seconds < 0
            or self.epoch_images < 0
            or self.minutes < 0
        ):
            raise UserError(
                "batch, meter_every and evaluate_every must be 1 or more; part, save_seconds, epoch_images and minutes 0 or more; "
                "seed from 0 to below 2^63, threads from 0 to 1024"
            )
        if 0 < self.epoch_images < self.batch:
            raise UserError(
                f"epoch_images is {self.epoch_images}, less than a batch of {self.batch}; 0 means all images"
            )
        for step in self.steps:
            self.crop_size(step)
        for index, step in enumerate(self.steps):
            if step.teacher in names and step.teacher not in names[:index]:
                raise UserError(f"step {step.name!r}: teacher {step.teacher!r} is not a step before it")

    def crop_size(self, step: Step) -> tuple[int, int]:
        """Height and width of the images that `step` trains on."""
        height, width = (round(side * step.size) for side in self.network.image_size)
        stride = self.network.stride
        if height % stride or width % stride:
            raise UserError(
                f"step {step.name!r}: size {step.size:g} makes images of {height} x {width}, "
                f"but both must be multiples of {stride}, as {self.network.name} needs them"
            )
        return height, width
