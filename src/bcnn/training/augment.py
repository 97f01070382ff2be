"""Random resized crop and flip (sec. 5.1): which crop each image gets in each epoch, and cutting a whole batch at once.

A crop is a box y, x, height, width in shares of the image; a flip turns its left and right. Boxes are drawn for all images of
an epoch from (seed, epoch) alone, so they depend neither on batches nor on processes nor on where a run was interrupted.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from bcnn.data.config import Augment

Draws = NDArray[np.float64]  # N, (area, ratio, y, x, shift in y, shift in x, flip)
Boxes = NDArray[np.float32]  # N, (y, x, height, width, flip)


def generator(*key: int) -> np.random.Generator:
    """A random source that is a function of its key and of nothing else."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def draw(augment: Augment, count: int, seed: int, epoch: int) -> Draws:
    """The random numbers of `count` images: all that a crop depends on besides the shape of its image."""
    if augment.fixed:
        epoch %= augment.fixed
    random = generator(seed, 1, epoch)
    area = random.uniform(*augment.scale, count)
    ratio = np.exp(random.uniform(math.log(augment.ratio[0]), math.log(augment.ratio[1]), count))
    y, x = random.uniform(0, 1, (2, count))
    shift_y, shift_x = random.uniform(-augment.shift, augment.shift, (2, count))
    flip = random.integers(0, 2, count) if augment.flip else np.zeros(count)
    return np.stack([area, ratio, y, x, shift_y, shift_x, flip], axis=1)


def boxes(draws: Draws, aspect: float) -> Boxes:
    """The boxes of images of one shape, `aspect` = width / height.

    Reading: a crop that does not fit in the image is shortened to fit, where other recipes draw again; one draw keeps it
    a plain function of the random numbers.
    """
    area, ratio, y, x, shift_y, shift_x, flip = draws.T
    ratio = ratio / aspect  # in shares of the image
    height, width = np.minimum(1, np.sqrt(area / ratio)), np.minimum(1, np.sqrt(area * ratio))
    box = [y * (1 - height) + shift_y, x * (1 - width) + shift_x, height, width, flip]
    return np.stack(box, axis=1).astype(np.float32)


def cut(x: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Normalised images N,C,H,W -> their boxes as N,C,size, bilinear; outside the image is 0, the mean colour."""
    while min(x.shape[2] // size[0], x.shape[3] // size[1]) >= 2 and x.shape[2] % 2 == x.shape[3] % 2 == 0:
        x = F.avg_pool2d(x, 2)  # bilinear reads four pixels: of a much larger image it would skip the others
    # affine_grid's coordinates run from -1 to 1 over the image: a box [a, a + s] has centre 2a + s - 1 and half length s.
    y, left, height, width, flip = boxes.unbind(1)
    zero = torch.zeros_like(y)
    theta = torch.stack(
        [width * (1 - 2 * flip), zero, 2 * left + width - 1, zero, height, 2 * y + height - 1], dim=1
    ).reshape(-1, 2, 3)
    grid = F.affine_grid(theta, [len(x), x.shape[1], *size], align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def cut_image(
    image: Image.Image, box: Boxes, size: tuple[int, int], outside: tuple[int, int, int]
) -> NDArray[np.uint8]:
    """The same for one image of any size, for data that streams: H,W,3. `outside` is the mean colour."""
    y, x, height, width, flip = (float(v) for v in box)
    edges = (x * image.width, y * image.height, (x + width) * image.width, (y + height) * image.height)
    if x < 0 or y < 0 or x + width > 1 or y + height > 1:
        left, top, right, bottom = (round(e) for e in edges)
        canvas = Image.new("RGB", (right - left, bottom - top), outside)
        canvas.paste(image, (-left, -top))
        image = canvas.resize(size[::-1], Image.Resampling.BILINEAR)
    else:
        image = image.resize(size[::-1], Image.Resampling.BILINEAR, box=edges)
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image, dtype=np.uint8)
