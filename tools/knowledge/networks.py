"""The structures that are trained here. chip_size.py prints what they take in C."""

from __future__ import annotations

from bcnn.nets.config import Level, NetworkConfig, preset


def narrow(name: str, replicate: float) -> NetworkConfig:
    """`tinyimagenet`'s strides for two classes at 96 x 96; the stem makes `replicate` times four channels."""
    levels = (Level(1), Level(2), Level(6), Level(2, stride=1))
    return NetworkConfig(name=name, image_size=(96, 96), classes=2, stem=Level(1, 2, replicate), levels=levels)


# 1.25 times as wide as `tinyimagenet`: 3.5 million binary weights, below 1 MB packed.
WIDE = preset("tinyimagenet").scaled(1.25)

NETWORKS: dict[str, NetworkConfig] = {
    "backbone": WIDE.replace(name="backbone", classes=275),
    "imagenette": WIDE.replace(name="imagenette", classes=10, image_size=(128, 128)),
    "person": narrow("person", 4),
    "person-small": narrow("person-small", 2.5),
    "cifar10": preset("cifar10").scaled(4 / 3).replace(name="cifar10"),
    "cifar10-small": preset("cifar10").scaled(2 / 3).replace(name="cifar10-small"),
}
