"""Which network: the data that a run's config and a checkpoint hold, and the module it stands for. No torch until one is built.

The paper's networks are a `NetworkConfig`, every field of them free. Any other registered network is a `Chosen`: its name and what
was chosen of it. As plain data the first is the table of its fields, the second what `registry.from_config` reads:
`{"network": "birealnet-20-cifar", "classes": 10, "size": [32, 32], "width": 0.5}`. So a checkpoint of either says which it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcnn.base.dataclass_io import shown
from bcnn.base.errors import UserError
from bcnn.nets import config as configs
from bcnn.nets.config import PRESETS, NetworkConfig, preset
from bcnn.nets.registry import ARCHITECTURES, Size, architecture, from_config, unknown

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Chosen:
    """A registered network of another paper, with its choices."""

    name: str
    classes: int
    image_size: Size
    choices: Mapping[str, Any] = field(default_factory=dict)  # checked where the module is built

    def __post_init__(self) -> None:
        architecture(self.name).config(self.classes, self.image_size)

    @property
    def stride(self) -> int:
        """Image height and width must be multiples of it."""
        return architecture(self.name).multiple

    def replace(self, **changes: Any) -> Chosen:
        """A copy with other classes, another size, or other choices."""
        return _chosen({**to_plain(self), **{"size" if key == "image_size" else key: v for key, v in changes.items()}})


AnyNetwork = NetworkConfig | Chosen


def to_plain(network: AnyNetwork) -> dict[str, Any]:
    """Plain data that `from_plain` reads back to an equal value."""
    if isinstance(network, NetworkConfig):
        return configs.to_dict(network)
    return {
        "network": network.name,
        "classes": network.classes,
        "size": list(network.image_size),
        **network.choices,
    }


def from_plain(data: Any) -> AnyNetwork:
    """The inverse of `to_plain`; a table that names one of the paper's networks may change fields of it."""
    if not isinstance(data, dict) or "network" not in data:
        return configs.from_dict(data)
    name = data["network"]
    if not isinstance(name, str):
        raise UserError(f"a network's config needs its name under 'network', got {shown(name)}")
    if name not in PRESETS:
        return _chosen(data)
    changes = {"image_size" if key == "size" else key: value for key, value in data.items() if key != "network"}
    return preset(name).replace(**changes)


def _chosen(data: dict[str, Any]) -> Chosen:
    choices = dict(data)
    table = architecture(choices.pop("network")).config(choices.pop("classes", None), choices.pop("size", None))
    height, width = table["size"]
    return Chosen(table["network"], table["classes"], (height, width), choices)


def resolve(name_or_path: str) -> AnyNetwork:
    """What a user types: a registered network's name, or a config file that ends in .json or .toml."""
    path = Path(name_or_path)
    if path.suffix in (".json", ".toml"):
        return configs.read(path)
    if name_or_path in ARCHITECTURES:
        return from_plain({"network": name_or_path})
    if path.exists() or len(path.parts) > 1:
        raise UserError(f"{path} is no config file: its name must end in .json or .toml")
    raise unknown(name_or_path)


def build(network: AnyNetwork) -> nn.Module:
    """The torch module, with random weights and in training mode. Its `config` is `network`."""
    if isinstance(network, NetworkConfig):
        from bcnn.nets.bcnn import Network

        return Network(network)
    try:
        module = from_config(to_plain(network))
    except UserError:
        raise
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError, OverflowError) as error:
        chosen = ", ".join(f"{key}={value!r}" for key, value in network.choices.items())
        raise UserError(f"cannot build {network.name} with {chosen}: {error}") from None
    module.__dict__["config"] = network  # not a module or tensor of it, so not through its own __setattr__
    return module


def config_of(module: nn.Module) -> AnyNetwork | None:
    """Which network a module is, if `build` made it."""
    found = module.__dict__.get("config")
    return found if isinstance(found, NetworkConfig | Chosen) else None
