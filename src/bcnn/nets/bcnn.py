"""The network (Fig. 2): intensity channel, stem, levels of building blocks, decoder.

image N,3,H,W (normalised RGB) -> logits N,classes
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bcnn.base.errors import UserError
from bcnn.nets import latent, layers
from bcnn.nets.blocks import Decoder as Decoder  # every network ends in one; it is imported from here, too
from bcnn.nets.config import NetworkConfig, preset

# Reading: the paper does not say how intensity is made; these are the luma weights of ITU-R BT.601, 3 MACs a pixel.
INTENSITY = (0.299, 0.587, 0.114)


class Intensity(nn.Module):
    """N,3,H,W -> N,4,H,W: R, G, B and their weighted sum (sec. 4.1).

    Reading: it is taken of the normalised channels, so that it needs no statistics of its own.
    """

    def forward(self, x: Tensor) -> Tensor:
        r, g, b = x.unbind(1)
        intensity = r * INTENSITY[0] + g * INTENSITY[1] + b * INTENSITY[2]
        return torch.cat([x, intensity.unsqueeze(1)], dim=1)


class Network(nn.Module):
    """A network as its config says. `stem` and `level1` ... are sequences of building blocks.

    `weights` switches what every binary convolution does with its latent weights: "real" is step 1 of the training,
    "binary" step 2 and everything after it, see `binarize.WEIGHTS` for the others. Switching changes no parameter.
    """

    def __init__(self, config: NetworkConfig, weights: str = "binary") -> None:
        super().__init__()
        self.config = config
        self.stride = config.stride  # a plain number: torch.compile cannot trace how the config makes it
        self.intensity = Intensity() if config.intensity else None
        for shape in config.plan():
            level, _, index = shape.name.partition(".")
            if index == "0":
                self.add_module(level, nn.Sequential())
            self.get_submodule(level).add_module(index, layers.Block(shape))
        self.decoder = Decoder(config.channels_out, config.classes)
        self.weights = weights

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1] != 3 or x.shape[2] % self.stride or x.shape[3] % self.stride:
            raise UserError(f"images must be N,3,H,W with H and W multiples of {self.stride}, got {tuple(x.shape)}")
        if self.intensity is not None:
            x = self.intensity(x)
        for level in self.levels():
            x = level(x)
        out: Tensor = self.decoder(x)
        return out

    def levels(self) -> Iterator[nn.Module]:
        """Stem and levels in order."""
        for name, module in self.named_children():
            if name == "stem" or name.startswith("level"):
                yield module

    @property
    def weights(self) -> str:
        return latent.weights_of(self)

    @weights.setter
    def weights(self, mode: str) -> None:
        latent.set_weights(self, mode)

    def set_temperature(self, temperature: float) -> None:
        """Of weights "tanh", in every binary convolution."""
        latent.set_temperature(self, temperature)

    def fold_scale(self) -> None:
        """Weights "scaled" become "binary" with the scale inside batch norm; any other mode stays as it is."""
        if self.weights == "scaled":
            for module in self.modules():
                if isinstance(module, layers.Branch):
                    module.fold_scale()
            self.weights = "binary"

    def binary_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The +-1 tensor of every binary convolution by parameter name, whatever `weights` is set to."""
        return latent.binary_weights(self)


def bcnn(name: str, classes: int, size: tuple[int, int], **fields: Any) -> Network:
    """The preset of that name with fields of its config changed."""
    return Network(preset(name).replace(classes=classes, image_size=size, **fields))
