"""`TrainConfig` <-> plain data, and `--set key=value` for any field of it, checked against the field's type. No torch.

Keys are dotted: `batch=64`, `data.augment.flip=false`, `network.branches=2`. A step is named by its position, its name or `*`
for all: `steps.1.lr=1e-3`, `steps.step2.lr=1e-3`, `steps.*.teacher=none`.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any, TypeVar

from bcnn.errors import UserError, nearest
from bcnn.nets import config as network_config
from bcnn.train.config import TrainConfig

T = TypeVar("T")


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Plain data that `from_dict` reads back to an equal config."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return plain


def from_dict(data: Any) -> TrainConfig:
    return _build(TrainConfig, data, "")


def typed(cls: type[T], data: Any, where: str) -> T:
    """Any other dataclass from plain data of unknown origin, every field checked against its annotation."""
    return _build(cls, data, where)


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
        from_dict(data)  # a wrong value is reported with the assignment that brought it
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
                found.append(([*path, step], node[step]))
        places = found
    return [path for path, _ in places]


def _select(node: Any, part: str, key: str) -> list[Any]:
    if isinstance(node, dict):
        if part not in node:
            raise UserError(f"--set {key}: unknown key {part!r}; {nearest(part, node)}")
        return [part]
    if isinstance(node, list):
        names = [item.get("name") if isinstance(item, dict) else None for item in node]
        if part == "*":
            return list(range(len(node)))
        if part in names:
            return [names.index(part)]
        if part.isdigit() and int(part) < len(node):
            return [int(part)]
        known = [str(name) for name in names if name] or [str(i) for i in range(len(node))]
        raise UserError(f"--set {key}: no item {part!r}; {nearest(part, known)}, or a position below {len(node)}, or *")
    raise UserError(f"--set {key}: there is nothing below {node!r}")


def _build(cls: type[T], data: Any, where: str) -> T:
    """A dataclass from plain data, every field checked against its annotation."""
    if cls is network_config.NetworkConfig:  # it checks itself; a preset's name or a file stands for all of it
        try:
            return typing.cast(
                T, network_config.resolve(data) if isinstance(data, str) else network_config.from_dict(data)
            )
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{where or 'config'} must be a table of keys and values, got {data!r}")
    hints = typing.get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            raise UserError(f"{where or 'config'}: unknown key {key!r}; {nearest(str(key), known)}")
    for needed in dataclasses.fields(cls):  # type: ignore[arg-type]
        has_default = needed.default is not dataclasses.MISSING or needed.default_factory is not dataclasses.MISSING
        if not has_default and needed.name not in data:
            raise UserError(f"{where or 'config'} lacks {needed.name!r}")
    return cls(**{key: _value(hints[key], value, f"{where}.{key}".lstrip(".")) for key, value in data.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(type[Any], hint), value, where)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        if value not in arguments:
            raise UserError(f"{where} must be one of {', '.join(map(str, arguments))}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where} must be a list, got {value!r}")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_value(arguments[0], item, f"{where}.{i}") for i, item in enumerate(value))
        if len(value) != len(arguments):
            raise UserError(f"{where} must be a list of {len(arguments)}, got {value!r}")
        return tuple(_value(h, v, f"{where}.{i}") for i, (h, v) in enumerate(zip(arguments, value, strict=True)))
    if origin in (list, dict):
        if not isinstance(value, origin):
            raise UserError(f"{where} must be a {'list' if origin is list else 'table'}, got {value!r}")
        if origin is list:
            return [_value(arguments[0], item, f"{where}.{i}") for i, item in enumerate(value)]
        return {str(key): _value(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # a folder may be called 2024
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise UserError(f"{where} must be {words.get(hint, str(hint))}, got {value!r}")
    return value
