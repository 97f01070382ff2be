"""`TrainConfig` <-> plain data, and `--set key=value` for any field of it, checked against the field's type. No torch.

Keys are dotted: `batch=64`, `data.augment.flip=false`, `network.branches=2`; `network=NAME` is another network. A step is named by its position, its name or `*`
for all: `steps.1.lr=1e-3`, `steps.step2.lr=1e-3`, `steps.*.teacher=none`.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from bcnn.base import dataclass_io
from bcnn.base.errors import UserError, nearest
from bcnn.nets import network_spec
from bcnn.nets.registry import architecture
from bcnn.training.config import TrainConfig

T = TypeVar("T")


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Plain data that `from_dict` reads back to an equal config."""
    table: dict[str, Any] = dataclass_io.to_plain(config)
    table["network"] = network_spec.to_plain(config.network)
    return table


def from_dict(data: Any) -> TrainConfig:
    return dataclass_io.build(TrainConfig, data, readers=READERS)


def typed(cls: type[T], data: Any, where: str) -> T:
    """Any other dataclass from plain data of unknown origin, every field checked against its annotation."""
    try:
        return dataclass_io.build(cls, data, where, readers=READERS)
    except UserError as error:
        raise UserError(str(error) if str(error).startswith(where) else f"{where}.{error}") from None


def override(config: TrainConfig, assignments: list[str]) -> TrainConfig:
    """The config with every `key=value` of `assignments` applied in order."""
    data = to_dict(config)
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"--set {assignment}: expected key=value")
        for path in _paths(data, key.strip()):
            *parents, last = path
            node = data
            for name in parents:
                node = node[name]
            node[last] = _parse(text.strip())
        data = to_dict(from_dict(data))  # a wrong value is reported with the assignment that brought it
    return from_dict(data)


def _parse(text: str) -> Any:
    """JSON where it is JSON (numbers, true, lists), else the text itself. 1e-3 and 5 keep their types."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return {"True": True, "False": False}.get(text, text)


def _no_number(text: str) -> float:
    """NaN and Infinity, which Python's JSON would take: no setting means them."""
    raise ValueError(text)


def _paths(data: Any, key: str) -> list[list[Any]]:
    """The places in plain data that a dotted key means; unknown ones name the nearest known."""
    places: list[tuple[list[Any], Any]] = [([], data)]
    for part in key.split("."):
        found: list[tuple[list[Any], Any]] = []
        for path, node in places:
            for step in _select(node, part, key):
                found.append(([*path, step], node.get(step) if isinstance(node, dict) else node[step]))
        places = found
    return [path for path, _ in places]


def _select(node: Any, part: str, key: str) -> list[Any]:
    if isinstance(node, dict):
        known = {*node}
        if isinstance(node.get("network"), str):  # a registered network: its choices, which only its code knows
            known |= {*architecture(node["network"]).choices()}
        if part not in known:
            raise UserError(f"--set {key}: unknown key {part!r}; {nearest(part, known)}")
        return [part]
    if isinstance(node, list):
        names = [item.get("name") if isinstance(item, dict) else None for item in node]
        if part == "*":
            return list(range(len(node)))
        if part in names:
            return [names.index(part)]
        if part.isdigit() and int(part) < len(node):
            return [int(part)]
        items = [str(name) for name in names if name] or [str(i) for i in range(len(node))]
        raise UserError(f"--set {key}: no item {part!r}; {nearest(part, items)}, or a position below {len(node)}, or *")
    raise UserError(f"--set {key}: there is nothing below {node!r}")


def _network(data: Any, where: str) -> network_spec.AnyNetwork:
    """It checks itself; a registered name or a file stands for all of it."""
    try:
        return network_spec.resolve(data) if isinstance(data, str) else network_spec.from_plain(data)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _text(data: Any, where: str) -> str:
    """A folder may be called 2024."""
    if isinstance(data, bool) or not isinstance(data, str | int | float):
        raise UserError(f"{where} must be text, got {dataclass_io.shown(data)}")
    return str(data)


READERS: dataclass_io.Readers = {network_spec.AnyNetwork: _network, str: _text}
