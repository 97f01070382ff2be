"""What each verb does with each kind of MODEL: the one table that the resolver asks, and that docs/model.md shows. No torch.

A row has a cell for every kind: what the verb does with it, or else the command to type instead. A bare name means the trained
network where something is run, and the architecture where something is built or counted. A user's code runs only in the
verbs that take a `CODE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a MODEL can be."""

    SHIPPED = "shipped model"
    PACKED = "packed file"
    RUN = "run folder"
    CHECKPOINT = "checkpoint"
    CONFIG = "config file"
    NETWORK = "registered network"
    CODE = "function in a Python file"
    MODULE = "torch module"


HOW = {  # how each is given
    Kind.SHIPPED: "a name that `bcnn models` lists",
    Kind.PACKED: "a file that `bcnn pack`, `learn`, `convert` or `train` wrote, `.bcnn`",
    Kind.RUN: "a folder that `bcnn train` made; its last checkpoint",
    Kind.CHECKPOINT: "a file `.safetensors` of a run",
    Kind.CONFIG: "a file `.toml` or `.json`, or in Python a `NetworkConfig`",
    Kind.NETWORK: "a name that `bcnn networks` lists",
    Kind.CODE: "a Python file and a function in it that returns a torch module",
    Kind.MODULE: "a `torch.nn.Module`, in Python only",
}


class Verb(NamedTuple):
    """A row of the table."""

    trained: bool  # what a bare name means first: the trained network, else the architecture
    takes: Mapping[Kind, str]  # what it does
    instead: Mapping[Kind, str]  # for every other kind a command, in which {what} is what was given

    def taken(self) -> str:
        """The kinds that it takes, as the help and the error say them."""
        *most, last = (f"a {kind}" for kind in self.takes if kind != Kind.MODULE)
        return f"{', '.join(most)} or {last}"


K = Kind
INFO, PACK = "bcnn info {what}", "bcnn pack {what} -o model.bcnn"
INIT, TRAIN = "bcnn train --init {what} --data PHOTOS", "bcnn train --network {what} --data PHOTOS"
IN_PYTHON = 'bcnn.pack(module, "model.bcnn")'
# What has no trained weights yet, or has them in code of the user's own.
UNTRAINED = {K.CONFIG: TRAIN, K.NETWORK: TRAIN, K.CODE: PACK, K.MODULE: IN_PYTHON}


def _files(does: str) -> dict[Kind, str]:
    """A verb about packed files: a run or a checkpoint is packed on the way, which needs torch."""
    return {K.SHIPPED: does, K.PACKED: does, K.RUN: f"packs it and {does}", K.CHECKPOINT: f"packs it and {does}"}


def _networks(does: str, random: str) -> dict[Kind, str]:
    """A verb about torch networks; the weights of a config or a registered network are random."""
    trained, untrained = dict.fromkeys((K.RUN, K.CHECKPOINT), does), dict.fromkeys((K.CONFIG, K.NETWORK), random)
    return {**trained, **untrained, K.CODE: f"calls the function and {does}", K.MODULE: does}


VERBS: dict[str, Verb] = {
    "predict": Verb(True, _files("runs it"), UNTRAINED),
    "eval": Verb(
        True,
        dict.fromkeys((K.SHIPPED, K.PACKED), "measures it in the engine")
        | dict.fromkeys((K.RUN, K.CHECKPOINT), "measures it in torch"),
        UNTRAINED,
    ),
    "verify": Verb(
        True,
        dict.fromkeys((K.SHIPPED, K.PACKED), "checks it")
        | dict.fromkeys((K.RUN, K.CHECKPOINT), "packs it and checks that against torch"),
        UNTRAINED,
    ),
    "convert": Verb(True, _files("converts it"), UNTRAINED),
    "export": Verb(True, _files("exports it"), UNTRAINED),
    "info": Verb(True, _files("shows it"), UNTRAINED),
    "load": Verb(True, _files("opens it"), UNTRAINED),
    "bench": Verb(
        True,
        dict.fromkeys((K.SHIPPED, K.PACKED), "times it") | _networks("times it", "times it with random weights"),
        {},
    ),
    "learn --from": Verb(
        True,
        dict.fromkeys((K.SHIPPED, K.PACKED), "learns on its features"),
        {**UNTRAINED, K.RUN: PACK, K.CHECKPOINT: PACK},
    ),
    "train --init": Verb(
        True, dict.fromkeys((K.SHIPPED, K.PACKED, K.RUN, K.CHECKPOINT), "starts from its weights"), UNTRAINED
    ),
    "train --network": Verb(
        False,
        dict.fromkeys((K.CONFIG, K.NETWORK), "trains it"),
        {
            **dict.fromkeys((K.SHIPPED, K.PACKED, K.RUN, K.CHECKPOINT), INIT),
            K.CODE: PACK,
            K.MODULE: IN_PYTHON,
        },
    ),
    "pack": Verb(
        False,
        _networks("packs it", "packs random weights, with --random only"),
        dict.fromkeys((K.SHIPPED, K.PACKED), INFO),
    ),
    "verify --checkpoint": Verb(
        False,
        _networks("compares it with the file", "compares its random weights with the file"),
        dict.fromkeys((K.SHIPPED, K.PACKED), "bcnn verify {what}"),
    ),
    "audit": Verb(
        False,
        _networks("audits it", "audits it with random weights"),
        dict.fromkeys((K.SHIPPED, K.PACKED), INFO),
    ),
    "summary": Verb(False, _networks("counts it", "counts it"), dict.fromkeys((K.SHIPPED, K.PACKED), INFO)),
}
