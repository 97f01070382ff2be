"""What a run says about its data, as frozen dataclasses. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from bcnn.base.errors import UserError
from bcnn.program.program import SMALLEST_CROP


@dataclass(frozen=True)
class Augment:
    """How a training image is varied. The defaults are the paper's (sec. 5.1): random resized crop and horizontal flip.

    Reading: the paper names the random resized crop without its ranges; these are the ones every ImageNet recipe uses.

    >>> import bcnn
    >>> bcnn.Augment(scale=(0.5, 1.0)).scale
    (0.5, 1.0)
    """

    scale: tuple[float, float] = (0.08, 1.0)  # area of the crop, as a share of the image
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width / height of the crop
    shift: float = 0.0  # the crop is moved by up to this share of the image, zeros outside (the CIFAR habit: 4 / 32)
    flip: bool = True
    fixed: int = 0  # 0: fresh in every epoch; K: each image has K fixed variants, so that teacher outputs can be stored

    def __post_init__(self) -> None:
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise UserError(f"augment.scale must be [low, high] with 0 < low <= high <= 1, got {list(self.scale)}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise UserError(f"augment.ratio must be [low, high] with 0 < low <= high, got {list(self.ratio)}")
        if not 0 <= self.shift < 1:
            raise UserError(f"augment.shift must be from 0 to below 1, got {self.shift}")
        if self.fixed < 0:
            raise UserError(f"augment.fixed must be 0 or a count of variants, got {self.fixed}")


@dataclass(frozen=True)
class DataConfig:
    """Where the images are and how they become pixels.

    >>> import bcnn
    >>> bcnn.DataConfig(source="photos", augment=bcnn.Augment(flip=False)).crop
    0.875
    """

    source: str = ""  # "digits", or a folder: train/CLASS/*.jpg with val or test beside it, or CIFAR's python batches
    evaluate: str = ""  # the folder that accuracy is measured on: val or test; none: val, or a part of train
    hold_out: float = 0.0  # > 0: measure on this share of the training images instead, to choose settings
    share: float = 1.0  # of the images, in each class: a run of few minutes does not read more than it has time for
    crop: float = 0.875  # of evaluation: shorter side resized to size / crop, centre kept (224 / 256), see images.fit
    stored: float = 1.0  # a data set kept in memory is stored at this multiple of the network's input size
    memory_mb: int = 2048  # a data set up to this size is decoded once; a larger one streams through `workers`
    workers: int = 4
    mean: tuple[float, ...] = ()  # of red, green, blue in 0 ... 1, to normalise with; none: of the training images
    std: tuple[float, ...] = ()
    strict: bool = False  # stop at the first unreadable image instead of skipping it
    augment: Augment = Augment()

    def __post_init__(self) -> None:
        if not 0 <= self.hold_out < 1:
            raise UserError(f"data.hold_out must be from 0 to below 1, got {self.hold_out}")
        if not 0 < self.share <= 1:
            raise UserError(f"data.share must be above 0 and at most 1, got {self.share}")
        if not SMALLEST_CROP <= self.crop <= 1:  # what a packed file may hold
            raise UserError(f"data.crop must be from {SMALLEST_CROP} to 1, got {self.crop}")
        if not 1 <= self.stored <= 16:
            raise UserError(f"data.stored must be from 1 to 16, got {self.stored}")
        if not 0 <= self.workers <= 1024 or self.memory_mb < 0:  # each worker is a process
            raise UserError("data.workers must be from 0 to 1024, data.memory_mb 0 or more")
        if len(self.mean) != len(self.std) or len(self.mean) not in (0, 3) or any(s <= 0 for s in self.std):
            raise UserError("data.mean and data.std must be three numbers each, the second above 0, or none")
