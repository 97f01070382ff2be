"""Where fuzzers begin: small files of every kind that is opened here, made by functions, so that they follow the formats.

Used by `python -m tools.fuzzing.fuzz` and by test_corpus.py. Packed files hold odd programs (thin, long, one channel, channel counts
around words), in float and in integers, and what `bcnn learn` leaves in a file; what a later limit refuses to pack is left out.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import integer_programs
import numpy as np
import programs
import samples
import tiny_runs

from bcnn.base.errors import UserError
from bcnn.integers.quantize import fixed
from bcnn.learning import class_centroids
from bcnn.learning.classifier_ops import Head, put_on
from bcnn.learning.fit import Decoder, Scale
from bcnn.nets import config as configs
from bcnn.packed import card, packfile
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


def _learned() -> Program:
    """As `bcnn learn --none` writes it: a decoder on features, a card, and centres of photos that were never there."""
    draw, features, labels = programs.Draw(5), 7, ("cat", "dog", "none of these")
    whole = programs.random_program(5, ops=3)
    last = len(whole.ops) - 1
    c = whole.shapes[-1][2]
    seen = (*whole.ops, ops.GlobalAvgPool(last), ops.Select(last + 1, (np.arange(features) % c).astype(np.int32)))
    reader = Program(seen, tuple(f"op{i}" for i in range(len(seen))))
    scale = Scale(draw.floats(features), draw.floats(features))
    decoder = Decoder(draw.floats(features + 1, 3).astype(np.float64), draw.floats(3).astype(np.float64))
    photos = draw.floats(20, features)
    kept = class_centroids.remember(photos, np.arange(20) % 2, 2)
    said = card.Card(
        "two classes", "tells cats and dogs apart", "knows no others", "photos", "", list(labels), 20, 4, {}, 0.1, "a CPU",
        "2026-11-17", 0.75, None, [[2, 0, 0], [1, 1, 0], [0, 0, 0]], "scalar", "2026-11-17", [],
    )  # fmt: skip
    learned = {"from": "digits.bcnn", "size": [8, 8], "penalty": 0.1, "photos": 20}
    provenance = {"learned": learned, card.KEY: said.plain(), class_centroids.KEY: kept.plain()}
    return put_on(reader, Head(scale, decoder, True), labels, provenance, photos)


def _in_bytes() -> Program:
    """Converted with parameters of one byte."""
    images = [samples.image(*tiny_runs.NETWORK.image_size, seed) for seed in range(2)]
    return fixed(programs.of_config(tiny_runs.NETWORK), images, "int8").program


MAKERS: dict[str, Callable[[], Program]] = {
    "every-op": samples.every_op,
    "network": lambda: programs.of_config(tiny_runs.NETWORK),
    "any-ops": lambda: programs.random_program(1, ops=6),
    "one-pixel": lambda: programs.random_program(2, height=1, width=1, ops=3, most_channels=33),
    "many-ops": lambda: programs.random_program(3, height=2, width=2, ops=40, most_channels=5),
    "words": lambda: programs.random_program(4, height=3, width=3, ops=5, most_channels=65),
    "long": lambda: _pools(300, 2, 2),
    "thin": lambda: _pools(3, 4096, 1),
    "learned": _learned,
    "integers": samples.every_fixed_op,
    "integer-network": lambda: integer_programs.fixed_of_config(tiny_runs.NETWORK),
    "integer-bytes": _in_bytes,
    "integer-ops": lambda: integer_programs.random_fixed_program(6, ops=6),
    "integer-pixel": lambda: integer_programs.random_fixed_program(7, height=1, width=1, ops=4, most_channels=33),
    "integer-words": lambda: integer_programs.random_fixed_program(8, height=3, width=3, ops=20, most_channels=65),
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
        "small": configs.to_json(tiny_runs.NETWORK).encode(),
        "square": b'{"image_size": 32}',
        "wrong": b'{"image_size": [1e300, null], "levels": [[]], "stem": 3, "classes": true}',
    }


def tables() -> Corpus:
    """The same as TOML."""
    return {name: configs.to_toml(configs.preset(name)).encode() for name in configs.PRESETS}


def settings() -> Corpus:
    """Configs of runs as JSON, as run.json keeps them."""
    from bcnn.training import settings

    return {"tiny": json.dumps(settings.to_dict(tiny_runs.config())).encode(), "nothing": b"{}"}


def checkpoints() -> Corpus:
    import torch

    from bcnn.nets.bcnn import Network
    from bcnn.training import checkpoint

    torch.manual_seed(0)
    meta = checkpoint.Meta((0.5,) * 3, (0.5,) * 3, ("a", "b"), 1.0)
    state = Network(tiny_runs.NETWORK).state_dict()
    small = {name: tensor for name, tensor in state.items() if tensor.numel() < 20}
    made: Corpus = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        for name, tensors in (("whole", state), ("few", small), ("none", {})):
            checkpoint.save(
                path, checkpoint.Checkpoint(tiny_runs.NETWORK, "binary", tensors, meta, progress={"step": 0})
            )
            made[name] = path.read_bytes()
    return made
