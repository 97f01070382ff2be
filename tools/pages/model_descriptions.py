"""What a person writes about each model that the package ships; everything else on its card is measured by `tools.release.ship`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

TINY_IMAGENET = Path(__file__).with_name("tinyimagenet.txt")  # class folder and a name for people, a line each


@dataclass(frozen=True)
class About:
    title: str
    about: str
    limits: str
    data: str
    licence: str
    names: dict[str, str] = field(default_factory=dict)  # class folder -> label for people, where they differ


MODELS = {
    "imagenette": About(
        title="Ten classes of photos",
        about="Says which of ten easily told things a photo shows: a tench (a fish), an English springer (a dog), a cassette player, "
        "a chain saw, a church, a French horn, a garbage truck, a gas pump, a golf ball or a parachute. The five-level structure of the paper "
        "at a width that trains on one CPU core.",
        limits="Knows these ten classes only: any other photo is put into one of them, often with a high probability. One centred object a "
        "photo; no boxes, no counting. The classes are ten of ImageNet's, photographed as its pictures are; drawings, dark or cluttered "
        "photos are outside of what it has seen.",
        data="Imagenette",
        licence="Imagenette is a subset of ImageNet chosen by fast.ai, here resized to 224 x 224. Its photos belong to their authors; ImageNet grants "
        "access for non-commercial research and education. The photos are not part of this package, only weights trained on them.",
        names={
            "n01440764": "tench",
            "n02102040": "English springer",
            "n02979186": "cassette player",
            "n03000684": "chain saw",
            "n03028079": "church",
            "n03394916": "French horn",
            "n03417042": "garbage truck",
            "n03425413": "gas pump",
            "n03445777": "golf ball",
            "n03888257": "parachute",
        },
    ),
    "cifar10": About(
        title="Ten classes of thumbnails",
        about="Tells ten kinds of vehicles and animals apart on 32 x 32 pixels.",
        limits="Made for thumbnails: a photo is shrunk to 32 x 32 pixels first, and little is left of a small object. Knows its ten classes only; "
        "anything else is put into one of them. The images were JPEG-compressed by a third party, so the figure is not strictly comparable to "
        "those published on the original CIFAR-10.",
        data="CIFAR-10 (JPEG)",
        licence="CIFAR-10 was collected by Alex Krizhevsky, Vinod Nair and Geoffrey Hinton as a labelled part of 80 Million Tiny Images, from the web "
        "and without a stated licence for the single images. The images are not part of this package, only weights trained on them.",
    ),
    "digits": About(
        title="Ten handwritten digits",
        about="Reads a handwritten digit from 8 x 8 grey pixels, light on dark. The network that `make quickstart` trains.",
        limits="Toy data: one centred digit, light strokes on a dark ground, 8 x 8 pixels. Photos of paper, dark ink or several digits do not work.",
        data="scikit-learn's digits",
        licence="Optical Recognition of Handwritten Digits by E. Alpaydin and C. Kaynak, from the UCI repository (CC BY 4.0), as included in scikit-learn.",
    ),
    "tinyimagenet": About(
        title="200 classes of small photos",
        about="The start for other classes: its features come from 100,000 photos of 200 kinds of animals, things, places and food, and "
        "`bcnn learn` and `bcnn train --init` go on from them.",
        limits="Made to learn from, not to be asked: it reads 80 x 80 pixels, has trained for a few hours, and is wrong more often than right about "
        "which of its 200 classes a photo shows. Anything else is put into one of them.",
        data="Tiny-ImageNet",
        licence="Tiny-ImageNet is a subset of ImageNet that Stanford's course CS231n resized to 64 x 64. Its photos belong to their authors; ImageNet grants "
        "access for non-commercial research and education. The photos are not part of this package, only weights trained on them.",
        names=dict(line.split(" ", 1) for line in TINY_IMAGENET.read_text(encoding="utf-8").splitlines()),
    ),
}
