"""A MODEL as a torch network, with all that packing, counting, auditing and timing need of it.

A config or a registered network gets random weights; a file of Python is code and is run; nothing else here runs any.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bcnn.base.errors import UserError, nearest
from bcnn.models.resolve import Resolved
from bcnn.models.verbs import Kind
from bcnn.nets import network_spec
from bcnn.nets.config import NetworkConfig
from bcnn.nets.network_spec import AnyNetwork
from bcnn.nets.registry import Size

if TYPE_CHECKING:
    from torch import nn

    from bcnn.base.affine import Floats3

SIZE = (224, 224)


@dataclass(frozen=True, eq=False)
class Found:
    """A network in evaluation mode, and what it reads: (u / 255 - mean) / std of images of `size`."""

    name: str
    module: nn.Module
    size: Size
    mean: Floats3
    std: Floats3
    labels: tuple[str, ...] = ()
    crop: float = 1.0
    provenance: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what was decided for the user


@dataclass(frozen=True)
class Given:
    """What the user says besides; None: what belongs to the network, else the defaults."""

    size: Size | None = None
    mean: Floats3 | None = None
    std: Floats3 | None = None
    labels: tuple[str, ...] | None = None


def network(what: Resolved, given: Given | None = None, **choices: Any) -> Found:
    """The torch network that was resolved. `choices` are those of a registered network, such as its width. Needs torch."""
    given = given or Given()
    if what.kind in (Kind.NETWORK, Kind.CONFIG):
        return _untrained(config_of(what, given, choices), given)
    if choices:
        raise UserError(f"{what.name} has no {' and no '.join(choices)} to choose: only a registered network has")
    if what.kind == Kind.CODE:
        return of_module(call(what.path, what.function), what.name, given)
    if what.kind == Kind.MODULE:
        return of_module(what.given, what.name, given)
    return trained(what.path, given)


def config_of(what: Resolved, given: Given, choices: Mapping[str, Any] = MappingProxyType({})) -> AnyNetwork:
    """A registered network, or a config, as it was asked for. Without torch."""
    config: AnyNetwork = what.given or network_spec.resolve(what.name)
    fields = {**choices, "image_size": given.size} if given.size else dict(choices)
    width = fields.pop("width", None) if isinstance(config, NetworkConfig) else None
    config = config.replace(**fields) if fields else config
    return config.scaled(width) if width is not None and isinstance(config, NetworkConfig) else config


def _untrained(config: AnyNetwork, given: Given) -> Found:
    import torch

    from bcnn.base.affine import IMAGENET_MEAN, IMAGENET_STD

    torch.manual_seed(0)
    module = network_spec.build(config).eval()
    mean, std, labels = given.mean or IMAGENET_MEAN, given.std or IMAGENET_STD, given.labels or ()
    provenance = {"config": {"network": network_spec.to_plain(config)}}
    notes = (f"the weights of {config.name} are random: it was not trained",)
    return Found(config.name, module, config.image_size, mean, std, labels, 1.0, provenance, notes)


def trained(path: str | Path, given: Given | None = None) -> Found:
    """A checkpoint, or the last one of a run folder."""
    from bcnn.training.checkpoint import load

    if given and (given.mean or given.std or given.labels):
        raise UserError(f"{path} has the mean, std and labels that it was trained with; leave them out")
    module, meta = load(path)
    config = network_spec.config_of(module)
    assert config is not None  # `build` made it
    size = (given and given.size) or config.image_size
    return Found(config.name, module, size, meta.mean, meta.std, meta.labels, meta.crop, meta.provenance)


def of_module(module: nn.Module, name: str, given: Given | None = None) -> Found:
    """Any torch module."""
    from bcnn.base.affine import IMAGENET_MEAN, IMAGENET_STD

    given = given or Given()
    notes: list[str] = []
    config = network_spec.config_of(module)
    size = given.size or (None if config is None else config.image_size)
    if size is None:
        size = SIZE
        notes.append(f"no size was said: images of {size[0]} x {size[1]} (--size 32, --size 180x240)")
    if module.training:
        notes.append(f"{name} is in training mode: put into evaluation mode")
    if given.mean is None and given.std is None:
        notes.append("no mean and std were said: those of ImageNet (--mean, --std)")
    mean, std, labels = given.mean or IMAGENET_MEAN, given.std or IMAGENET_STD, given.labels or ()
    provenance: dict[str, Any] = {"network": Path(name).name}
    if config is not None:  # which network it is: so the packed file can be trained again
        provenance["config"] = {"network": network_spec.to_plain(config)}
    _try(module.eval(), name, size)
    return Found(name, module, size, mean, std, labels, 1.0, provenance, tuple(notes))


def _try(module: nn.Module, name: str, size: Size) -> None:
    """One pass before anything looks into it, so that what fails in it is the user's to read."""
    import torch

    try:
        with torch.no_grad():
            module(torch.randn(1, 3, *size))
    except Exception as error:
        shown = f"{size[0]} x {size[1]}"
        raise UserError(
            f"{name} fails on an image of 3 x {shown}: {type(error).__name__}: {error}; give its size with "
            "--size, and let a network of grey images read x.mean(1, keepdim=True)"
        ) from error


def call(file: Path, function: str) -> nn.Module:
    """What the function makes. The file may import its neighbours, as a script may."""
    from torch import nn

    if not file.is_file():
        raise UserError(f"there is no file {file}")
    name = f"bcnn_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # of a name that ends in .py there always is one
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    sys.modules[name] = code  # dataclasses look themselves up there
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        spec.loader.exec_module(code)
        make = getattr(code, function, None)
        if not callable(make):
            own = [key for key, value in vars(code).items() if inspect.isfunction(value) or inspect.isclass(value)]
            raise UserError(f"{file} has no function {function!r}; {nearest(function, own)}")
        made = make()
    except UserError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise UserError(f"{file}:{function} failed: {type(error).__name__}: {error}{_where(error, file)}") from error
    finally:
        sys.path.remove(str(file.parent.resolve()))
    if not isinstance(made, nn.Module):
        raise UserError(f"{file}:{function} must return a torch.nn.Module, it returned a {type(made).__name__}")
    return made


def _where(error: Exception, file: Path) -> str:
    """The last line of the user's file that was running."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line else ""
