"""Dataclasses <-> plain data (what JSON and TOML hold), with an error sentence for everything that does not fit. No torch.

`to_plain` turns tuples into lists and dataclasses into tables; `build` is its inverse and checks every value against the type of its
field. A type that is written in a way of its own (a preset's name for a whole network) gets a reader: `readers={Type: function}`.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bcnn.base.errors import UserError, nearest

T = TypeVar("T")
Readers = Mapping[Any, Callable[[Any, str], Any]]  # by type: value, place -> what it stands for

WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "a table of keys and values",
    type(None): "nothing",
}


def to_plain(value: Any) -> Any:
    """Tables, lists, texts and numbers that `build` reads back to an equal value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list | tuple) else value


def build(cls: type[T], data: Any, where: str = "config", readers: Readers = types.MappingProxyType({})) -> T:
    """A dataclass from a table: keys left out take their defaults, unknown ones and wrong values are a `UserError`."""
    return typing.cast(T, _build(cls, data, "", where, readers))


def known_keys(data: Any, cls: type, where: str) -> dict[str, Any]:
    """A copy of `data`, once it is a table whose keys are all fields of `cls`."""
    if not isinstance(data, dict):
        raise UserError(f"{where} must be {WORDS[dict]}, got {shown(data)}")
    known = {field.name for field in dataclasses.fields(cls)}
    for key in data:
        if key not in known:
            raise UserError(f"{where}: unknown key {shown(key)}; {nearest(str(key)[:80], known)}")
    return dict(data)


def shown(value: Any, most: int = 200) -> str:
    """A value as an error shows it: printable, and of a length that fits a sentence."""
    text = repr(value)
    text = text if text.isprintable() else ascii(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def told(error: Exception, most: int = 300) -> str:
    """What another library says of a file: printable and of a length that fits a sentence, whatever it quotes from the file."""
    text = str(error)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= most else text[: most - 3] + "..."


def _build(cls: Any, data: Any, path: str, where: str, readers: Readers) -> Any:
    place = path or where
    data = known_keys(data, cls, place)
    for field in dataclasses.fields(cls):
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and field.name not in data:
            raise UserError(f"{place} lacks {field.name!r}")
    hints = typing.get_type_hints(cls)
    return cls(**{key: _value(hints[key], item, f"{path}.{key}".lstrip("."), readers) for key, item in data.items()})


def _value(hint: Any, value: Any, path: str, readers: Readers) -> Any:
    if hint in readers:
        return readers[hint](value, path)
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, path, path, readers)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        if value not in arguments:
            raise UserError(f"{path} must be one of {', '.join(map(str, arguments))}, got {shown(value)}")
        return value
    if origin is tuple:
        return _tuple(arguments, value, path, readers)
    if origin is list:
        _check(list, value, path)
        return [_value(arguments[0], item, f"{path}.{i}", readers) for i, item in enumerate(value)]
    if origin is dict:
        _check(dict, value, path)
        return {key: _value(arguments[1], item, f"{path}.{key}", readers) for key, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53:
        return float(value)
    _check(hint, value, path)
    return value


def _tuple(arguments: tuple[Any, ...], value: Any, path: str, readers: Readers) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise UserError(f"{path} must be a list, got {shown(value)}")
    hints = arguments[:1] * len(value) if len(arguments) == 2 and arguments[1] is Ellipsis else arguments
    if len(value) != len(hints):
        raise UserError(f"{path} must be a list of {len(hints)}, got {shown(value)}")
    return tuple(_value(h, v, f"{path}.{i}", readers) for i, (h, v) in enumerate(zip(hints, value, strict=True)))


def _check(hint: Any, value: Any, path: str) -> None:
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise UserError(f"{path} must be {WORDS.get(hint, str(hint))}, got {shown(value)}")
    if hint is float and not math.isfinite(value):  # JSON as Python reads it has NaN and Infinity
        raise UserError(f"{path} must be a finite number, got {value}")
