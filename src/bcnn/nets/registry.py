"""Every network by name: name -> config -> torch module. Listing imports no torch; building imports the one file it needs.

A config is plain data, `{"network": "birealnet-18", "classes": 10, "size": [64, 64], "pad": "before"}`: what a checkpoint stores
and `from_config` rebuilds. Beside classes and size it holds choices of the network's function (`width`, `bases` ...), rules of
its binary convolutions (`binary_conv.Rules`: `pad`, `activation` ...) or, for the paper's, fields of its `NetworkConfig`.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bcnn.base.dataclass_io import shown
from bcnn.base.errors import UserError, nearest
from bcnn.nets.config import PRESETS, NetworkConfig, preset

if TYPE_CHECKING:
    from torch import nn

Size = tuple[int, int]  # height, width


@dataclass(frozen=True)
class Architecture:
    """A network that can be built by name."""

    name: str
    description: str
    function: str  # "file:function" under nets
    size: Size
    classes: int
    multiple: int  # height and width of an image are multiples of it
    fixed: Mapping[str, Any] = field(default_factory=dict)  # choices that the name itself makes

    def config(self, classes: int | None = None, size: Size | int | None = None, **choices: Any) -> dict[str, Any]:
        """The choices as plain data; what is not given takes the defaults."""
        classes = self.classes if classes is None else classes
        sides = self.size if size is None else (size, size) if isinstance(size, int) else size
        whole = isinstance(sides, (tuple, list)) and len(sides) == 2 and all(isinstance(side, int) for side in sides)
        multiple = (
            1 if self.name in PRESETS else self.multiple
        )  # with other levels a preset has another: it checks itself
        if not whole or any(side < 1 or side % multiple for side in sides):
            raise UserError(
                f"size of {self.name} must be height and width in multiples of {multiple}, got {shown(size)}"
            )
        if not isinstance(classes, int) or classes < 1:
            raise UserError(f"classes of {self.name} must be a whole number >= 1, got {shown(classes)}")
        return {"network": self.name, "classes": classes, "size": list(sides), **choices}

    def build(self, classes: int | None = None, size: Size | int | None = None, **choices: Any) -> nn.Module:
        """The torch module, with random weights and in training mode."""
        data = self.config(classes, size, **choices)
        function = self._function()
        known = self._choices(function)
        for choice in choices:
            if choice not in known:
                raise UserError(f"{self.name} has no choice {shown(choice)}; {nearest(choice[:80], known)}")
        module: nn.Module = function(classes=data["classes"], size=tuple(data["size"]), **self.fixed, **choices)
        return module

    def choices(self) -> list[str]:
        """What `build` takes besides classes and size. Imports torch."""
        return self._choices(self._function())

    @property
    def network_config(self) -> NetworkConfig | None:
        """Of the paper's own networks."""
        return preset(self.name) if self.name in PRESETS else None

    def _function(self) -> Callable[..., Any]:
        file, _, function = self.function.partition(":")
        made: Callable[..., Any] = getattr(importlib.import_module(f"bcnn.nets.{file}"), function)
        return made

    def _choices(self, function: Callable[..., Any]) -> list[str]:
        from bcnn.nets.binary_conv import Rules

        names = list(inspect.signature(function).parameters)
        if "rules" in names:
            names += [rule.name for rule in dataclasses.fields(Rules)]
        if "fields" in names:
            names += [
                each.name for each in dataclasses.fields(NetworkConfig) if each.name not in ("name", "image_size")
            ]
        hidden = {"classes", "size", "rules", "fields", *self.fixed}
        return [name for name in names if name not in hidden]


def _paper() -> Iterator[Architecture]:
    for name, make in PRESETS.items():
        config = make()
        description = (make.__doc__ or "").partition("\n")[0].rstrip(".")
        yield Architecture(
            name, description, "bcnn:bcnn", config.image_size, config.classes, config.stride, {"name": name}
        )


def _forms(name: str, description: str, function: str, cifar_multiple: int = 8, **fixed: Any) -> Iterator[Architecture]:
    """The 224 x 224 form, whose last map is a 32nd of the image, and the one for 32 x 32 images."""
    yield Architecture(name, description, function, (224, 224), 1000, 32, {**fixed, "form": "imagenet"})
    text, cifar = f"{description}; for 32 x 32", {**fixed, "form": "cifar"}
    yield Architecture(f"{name}-cifar", text, function, (32, 32), 10, cifar_multiple, cifar)


def _rivals() -> Iterator[Architecture]:
    yield Architecture("bnn-vgg", "BNN: VGG, all weights and activations binary", "bnn:bnn_vgg", (32, 32), 10, 8)
    yield from _forms("bnn-r18", "BNN: ResNet-18, all weights and activations binary", "bnn:bnn_resnet18")
    yield Architecture(
        "xnornet-alexnet", "XNOR-Net: AlexNet, scale mean |w|", "xnornet:xnornet_alexnet", (224, 224), 1000, 1
    )
    yield from _forms("xnornet-r18", "XNOR-Net: ResNet-18, scale mean |w|", "xnornet:xnornet_resnet18")
    yield Architecture("xnornet-nin", "XNOR-Net: network in network", "xnornet:xnornet_nin", (32, 32), 10, 4)
    yield Architecture("xnornet-vgg", "XNOR-Net: VGG-small", "xnornet:xnornet_vgg", (32, 32), 10, 8)
    yield from _forms("xnornetpp-r18", "XNOR-Net++: ResNet-18, learned scale", "xnornetpp:xnornetpp_resnet18")
    for depth in (18, 34):
        text = f"ABC-Net: ResNet-{depth}, 5 x 5 bases"
        yield from _forms(f"abcnet-r{depth}", text, "abcnet:abcnet", depth=depth)
    for depth in (18, 34, 50, 152):
        text = f"Bi-Real Net {depth}: a real shortcut around every binary convolution"
        yield from _forms(f"birealnet-{depth}", text, "birealnet:birealnet", depth=depth)
    text = "Bi-Real units in ResNet-20; for 32 x 32"
    yield Architecture("birealnet-20-cifar", text, "birealnet:birealnet20", (32, 32), 10, 4)
    for depth in (18, 34):
        text = f"Group-Net: ResNet-{depth}, 5 bases with gates"
        yield from _forms(f"groupnet-r{depth}", text, "groupnet:groupnet", depth=depth)
    for which in ("22", "29", "42", "59", "a", "b", "c"):
        text = f"MeliusNet {which}: dense and improvement blocks"
        yield from _forms(f"meliusnet-{which}", text, "meliusnet:meliusnet", which=which)
    for which, doubling in (("a", "binary"), ("b", "real, 4 groups"), ("c", "real")):
        text = f"ReActNet-{which.upper()}: MobileNet's plan, channels doubled by a 1x1 convolution ({doubling})"
        yield from _forms(f"reactnet-{which}", text, "reactnet:reactnet", 16, which=which)
    yield from _forms("reactnet-r18", "ReActNet: Bi-Real Net 18 with RSign and RPReLU", "reactnet:reactnet_resnet18")
    yield from _forms("real2bin-r18", "Real-to-Binary Net: ResNet-18, gated", "real_to_bin:real2bin_resnet18")
    yield from _forms("mobilenet-v1", "MobileNetV1, real", "mobilenet:mobilenet", 16)
    for depth in (18, 34):
        yield from _forms(f"resnet-{depth}", f"ResNet-{depth}, real", "resnet:resnet", depth=depth)
    yield from _forms("regnetx-400mf", "RegNetX-400MF, real", "regnet:regnetx_400mf", 16)


ARCHITECTURES: dict[str, Architecture] = {each.name: each for each in (*_paper(), *_rivals())}


def architecture(name: str) -> Architecture:
    """A registered network; an unknown name suggests the nearest."""
    if name not in ARCHITECTURES:
        raise unknown(name)
    return ARCHITECTURES[name]


def unknown(name: str) -> UserError:
    return UserError(f"unknown network {shown(name)}; {nearest(name[:80], ARCHITECTURES, '`bcnn networks`')}")


def build(name: str, classes: int | None = None, size: Size | int | None = None, **choices: Any) -> nn.Module:
    return architecture(name).build(classes, size, **choices)


def from_config(config: Mapping[str, Any]) -> nn.Module:
    """The module that `Architecture.config` describes, with random weights."""
    choices = dict(config)
    name = choices.pop("network", None)
    if not isinstance(name, str):
        raise UserError(f"a network's config needs its name under 'network', got {shown(name)}")
    return build(name, choices.pop("classes", None), choices.pop("size", None), **choices)
