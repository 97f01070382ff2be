"""Small networks and programs that several test files use."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from bcnn.nets.bcnn import Network
from bcnn.nets.config import Level, NetworkConfig
from bcnn.program import program as p
from bcnn.program.bits import pack_bits

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TINY = NetworkConfig(
    name="tiny", image_size=(8, 8), classes=3, stem=Level(1, 1, 2), levels=(Level(2, 2, 2), Level(1, 2, 1.5))
)


def network(config: NetworkConfig = TINY, seed: int = 0) -> Network:
    """A network in eval mode whose batch norms and slopes are as unlike their initial values as training could make them."""
    torch.manual_seed(seed)
    made = Network(config)
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.normal_()  # negative scales, too
                module.weight[::5] = 0
                module.bias.normal_()
                module.running_mean.normal_(0, 3)
                module.running_var.uniform_(1, 40)
            elif isinstance(module, nn.PReLU):
                module.weight.normal_(0.25, 1)  # negative slopes and slopes above 1, too
    return made.eval()


def image(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small multiples of 1/8: sums and products of a few of them are exact in float32."""
    return rng.integers(-16, 17, shape).astype(np.float32) / np.float32(8)


def branch(rng: np.random.Generator, k: int, o: int, shift: tuple[int, int] = (0, 0)) -> p.Branch:
    weight = pack_bits(rng.integers(0, 2, (o, k)).astype(bool))
    return p.Branch(floats(rng, k), weight, floats(rng, o), floats(rng, o), shift)


def program(*ops: p.Op, height: int = 4, width: int = 4, intensity: bool = False) -> p.Program:
    """`ops` after an Input that maps byte u to (u - 128) / 8, exactly."""
    third = np.full(3, 0.25, np.float32) if intensity else None
    first = p.Input(height, width, np.full(3, 1 / 8, np.float32), np.full(3, -16, np.float32), third)
    return p.Program((first, *ops), tuple(f"op{index}" for index in range(len(ops) + 1)))
