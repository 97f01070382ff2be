"""What a person means by MODEL: text or object -> its kind, and where it is. The only place that decides it. No torch.

    imagenette                    a shipped model or a registered network: which of them first, the verb's row in `verbs` says
    mine.bcnn                     a packed file; ./imagenette and imagenette.bcnn are files, and so is whatever comes as a `Path`
    runs/photos, last.safetensors the folder of a run, a checkpoint: told from a packed file by what is in it, not by its name
    mine.toml, mine.json          a config of the paper's family
    mine.py:make                  a network of the user's own: a function without arguments that returns the module

A name stays that, whatever files there are. Nothing is opened here but a file's header, and no code is run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bcnn.base.errors import UserError, nearest
from bcnn.models.verbs import VERBS, Kind, Verb
from bcnn.packed import shipped

if TYPE_CHECKING:
    from torch import nn

    from bcnn.nets.network_spec import AnyNetwork

Model: TypeAlias = "str | Path | AnyNetwork | nn.Module"  # what a person may hand over


class Resolved(NamedTuple):
    """A MODEL whose kind is known."""

    kind: Kind
    name: str  # as it was given, for sentences
    path: Path = Path()  # of a packed file, a run, a checkpoint, a config or code
    function: str = ""  # of code
    given: Any = None  # a torch module or a config, if it came as an object


def resolve(what: Model, verb: str) -> Resolved:
    """What `what` means to a verb; a kind that the verb does not take is a `UserError` with the command to type instead."""
    row = VERBS[verb]
    found = _of_text(what, row) if isinstance(what, (str, Path)) else _of_object(what, verb)
    if found.kind in row.takes:
        return found
    import shlex

    command = row.instead[found.kind].format(what=shlex.quote(found.name))
    beside = f" (./{found.name} is the file or folder of that name)" if _shadows(found) else ""
    raise UserError(f"{found.name} is a {found.kind}{beside}, and {verb} takes {row.taken()}; instead: {command}")


def _of_text(what: str | Path, row: Verb) -> Resolved:
    path = Path(what)
    if isinstance(what, str) and not path.suffix and os.sep not in what:
        if found := _named(what, row):
            return found
        if not path.exists():
            raise _unknown(what, row)
    file, colon, function = str(what).rpartition(":")
    if colon and file.endswith(".py"):
        return Resolved(Kind.CODE, str(what), Path(file), function)
    if path.suffix == ".py" and Kind.CODE not in row.takes:
        return Resolved(Kind.CODE, f"{what}:FUNCTION", path)
    if path.suffix == ".py":
        raise UserError(f"which function of {what} makes the network? Say it as {what}:FUNCTION")
    return Resolved(_of_path(path, row), str(what), path)


def _named(what: str, row: Verb) -> Resolved | None:
    """A shipped model or a registered network; where both have the name, the verb says which is meant."""
    known = what in shipped.names()
    if known and row.trained:
        return Resolved(Kind.SHIPPED, what, shipped.find(what))
    from bcnn.nets.registry import ARCHITECTURES

    if what in ARCHITECTURES:
        return Resolved(Kind.NETWORK, what)
    return Resolved(Kind.SHIPPED, what, shipped.find(what)) if known else None


def _unknown(what: str, row: Verb) -> UserError:
    from bcnn.nets.registry import unknown

    if Kind.SHIPPED not in row.takes:
        return unknown(what)
    return UserError(f"no shipped model and no file is called {what!r}; {nearest(what, shipped.names())}")


def _of_path(path: Path, row: Verb) -> Kind:
    """By what is there; of what is not, by its name: whoever opens it says that it is missing."""
    if path.suffix in (".toml", ".json"):
        return Kind.CONFIG
    if path.is_dir():
        return Kind.RUN
    if path.suffix == ".bcnn" and Kind.PACKED in row.takes:
        return Kind.PACKED  # its reader says more of a file that is something else
    from bcnn.packed.container import format_of

    written = format_of(path)
    if written.startswith("bcnn-checkpoint"):
        return Kind.CHECKPOINT
    packed = written.isdecimal() or (Kind.PACKED in row.takes and path.suffix != ".safetensors")
    return Kind.PACKED if packed else Kind.CHECKPOINT


def _of_object(what: Any, verb: str) -> Resolved:
    from bcnn.nets.config import NetworkConfig
    from bcnn.nets.network_spec import Chosen

    if isinstance(what, (Chosen, NetworkConfig)):
        return Resolved(Kind.CONFIG, what.name, given=what)
    if any(f"{cls.__module__}.{cls.__name__}" == "torch.nn.modules.module.Module" for cls in type(what).__mro__):
        return Resolved(Kind.MODULE, type(what).__name__, given=what)
    raise UserError(f"{verb} takes {VERBS[verb].taken()}, not {type(what).__name__}")


def _shadows(found: Resolved) -> bool:
    return found.kind in (Kind.SHIPPED, Kind.NETWORK) and Path(found.name).exists()
