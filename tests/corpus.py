"""Where fuzzers begin: small files of every kind that is opened here, made by functions, so that they follow the formats.

Used by `python -m tools.fuzz` and by test_corpus.py. Packed files hold odd programs (thin, long, one channel, channel counts
around words); what a later limit refuses to pack is left out.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import programs
import samples
import tiny
from bcnn.deploy import packfile
from bcnn.errors import UserError
from bcnn.nets import config as configs
from bcnn.program import ops
from bcnn.program.program import Program

Corpus = dict[str, bytes]


def _pools(count: int, height: int, width: int) -> Program:
    """A chain of ops that do next to nothing, on a map of any shape."""
    draw = programs.Draw(0)
    made: list[ops.Op] = [draw.input(height, width)]
    made += [ops.MaxPool(index, ops.Window()) for index in range(count)]
    made += [ops.GlobalAvgPool(count), ops.Linear(count + 1, draw.floats(4, 2), draw.floats(2))]
    return Program(tuple(made), tuple(f"op{i}" for i in range(len(made))))


MAKERS: dict[str, Callable[[], Program]] = {
    "every-op": samples.every_op,
    "network": lambda: programs.of_config(tiny.NETWORK),
    "any-ops": lambda: programs.random_program(1, ops=6),
    "one-pixel": lambda: programs.random_program(2, height=1, width=1, ops=3, most_channels=33),
    "many-ops": lambda: programs.random_program(3, height=2, width=2, ops=40, most_channels=5),
    "words": lambda: programs.random_program(4, height=3, width=3, ops=5, most_channels=65),
    "long": lambda: _pools(300, 2, 2),
    "thin": lambda: _pools(3, 4096, 1),
}


def packed() -> Corpus:
    """Whole packed files, without test vectors: those cost a run of each program."""
    made: Corpus = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.bcnn"
        for name, maker in MAKERS.items():
            try:
                packfile.save(maker(), path, test_seeds=())
            except UserError:
                continue
            made[name] = path.read_bytes()
    return made


def containers() -> Corpus:
    """Headers at the edge of what the container allows, with the right length in front."""

    def joined(header: str, data: bytes = b"") -> bytes:
        return struct.pack("<Q", len(header.encode())) + header.encode() + data

    def tensor(dtype: str, shape: list[int], offsets: list[int]) -> str:
        return json.dumps({"__metadata__": {}, "a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}})

    return {
        "nothing": b"",
        "empty": joined("{}"),
        "metadata": joined('{"__metadata__":{"format":"2"}}', b"x"),
        "bytes": joined(tensor("U8", [3], [0, 3]), b"abc"),
        "floats": joined(tensor("F32", [1, 2], [0, 8]), b"\0" * 8),
        "huge": joined(tensor("F32", [1 << 27, 1 << 27], [0, 8]), b"\0" * 8),
        "negative": joined(tensor("U8", [-1], [0, 3]), b"abc"),
        "twice": joined('{"__metadata__":{},"a":{},"a":{}}'),
        "deep": joined("[" * 2000 + "]" * 2000),
        "long-claim": struct.pack("<Q", 1 << 60) + b"{}",
        **packed(),
    }


def networks() -> Corpus:
    """Configs of networks as JSON."""
    made = {name: configs.to_json(configs.preset(name)).encode() for name in configs.PRESETS}
    return {
        **made,
        "small": configs.to_json(tiny.NETWORK).encode(),
        "square": b'{"image_size": 32}',
        "wrong": b'{"image_size": [1e300, null], "levels": [[]], "stem": 3, "classes": true}',
    }


def settings() -> Corpus:
    """Configs of runs as JSON, as run.json keeps them."""
    from bcnn.train import settings

    return {"tiny": json.dumps(settings.to_dict(tiny.config())).encode(), "nothing": b"{}"}


def checkpoints() -> Corpus:
    import torch

    from bcnn.nets.bcnn import Network
    from bcnn.train import checkpoint

    torch.manual_seed(0)
    meta = checkpoint.Meta((0.5,) * 3, (0.5,) * 3, ("a", "b"), 1.0)
    state = Network(tiny.NETWORK).state_dict()
    small = {name: tensor for name, tensor in state.items() if tensor.numel() < 20}
    made: Corpus = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        for name, tensors in (("whole", state), ("few", small), ("none", {})):
            checkpoint.save(path, checkpoint.Checkpoint(tiny.NETWORK, "binary", tensors, meta, progress={"step": 0}))
            made[name] = path.read_bytes()
    return made
