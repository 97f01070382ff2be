"""A campaign of damaged files: each is opened, and gives its content or one sentence. Nothing else may happen.

    python -m tools.fuzzing.corruption_campaign --files 1000000 --state FOLDER

File number n is made from the seeds of tests/helpers/corpus.py by a generator seeded with n, so every file can be made again. A twentieth
of the files are forged: values of the op list exchanged or numbers changed, hashes made right again, so that what stands behind
the hashes is reached; one that opens is run by engine and interpreter, which must agree. Cards and memories of photos are forged
in the same way, and read. A damaged packed file that opens must be one of the seeds still. FOLDER keeps the counts after every thousand files (a killed campaign goes on where it was), and each
finding with its number. More than a minute for one file is a finding, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))
import corpus
import tampered_files

from bcnn.base.console import visible
from bcnn.base.errors import UserError
from bcnn.engine import Engine
from bcnn.learning import class_centroids
from bcnn.learning.classifier_ops import taken_off
from bcnn.learning.fit import Decoder
from bcnn.nets import config as configs
from bcnn.packed import card, container, packfile
from bcnn.program.interpret import interpret
from bcnn.training import checkpoint
from bcnn.training.run_folder import RunFolder

SAVED = 1000  # files between two writes of the state
EDGES = (0, 1, 127, 128, 255, 1 << 14, 65535, 65536, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, (1 << 64) - 1)
METRICS = b"""{"kind": "update", "updates": 5, "loss": 1.5}
{"kind": "epoch", "updates": 8, "epochs_done": 1, "accuracy": 0.5}
{"kind": "update", "updates": 9, "loss": null}
"""
MOST_WORK = 1_000_000  # multiply-accumulates of a forged program that the interpreter still runs


# --- damage -----------------------------------------------------------------------------------------------------------


def flipped(draw: random.Random, raw: bytearray, _: bytes) -> None:
    for _i in range(draw.choice((1, 1, 1, 2, 8))):
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)


def overwritten(draw: random.Random, raw: bytearray, _: bytes) -> None:
    width = min(draw.choice((1, 2, 4, 8)), len(raw))
    at = draw.randrange(len(raw) - width + 1)
    raw[at : at + width] = (draw.choice(EDGES) & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def shortened(draw: random.Random, raw: bytearray, _: bytes) -> None:
    del raw[draw.randrange(len(raw)) :]


def cut_out(draw: random.Random, raw: bytearray, _: bytes) -> None:
    at = draw.randrange(len(raw))
    del raw[at : at + draw.choice((1, 4, 8, 64, 512))]


def doubled(draw: random.Random, raw: bytearray, _: bytes) -> None:
    at, to = draw.randrange(len(raw)), draw.randrange(len(raw))
    raw[to:to] = raw[at : at + draw.choice((1, 4, 8, 64, 512))]


def exchanged(draw: random.Random, raw: bytearray, _: bytes) -> None:
    size = draw.choice((1, 8, 64))
    a, b = (draw.randrange(len(raw)) for _i in range(2))
    first, second = bytes(raw[a : a + size]), bytes(raw[b : b + size])
    raw[a : a + len(second)] = second
    raw[b : b + len(first)] = first


def spliced(draw: random.Random, raw: bytearray, other: bytes) -> None:
    at = draw.randrange(len(raw))
    raw[at:] = other[draw.randrange(len(other) + 1) :] if draw.random() < 0.5 else other[at:]


def number_changed(draw: random.Random, raw: bytearray, _: bytes) -> None:
    """Another number where the header, or the first JSON, has one."""
    digits = [i for i in range(min(len(raw), 4000)) if 48 <= raw[i] <= 57]
    if not digits:
        flipped(draw, raw, _)
        return
    at = draw.choice(digits)
    raw[at : at + 1] = str(draw.choice((*EDGES, -1, "1e999", "NaN", "null", '"1"', "[]"))).encode()


DAMAGES = (
    flipped,
    flipped,
    overwritten,
    shortened,
    cut_out,
    doubled,
    exchanged,
    spliced,
    number_changed,
    number_changed,
)


def damaged(draw: random.Random, seeds: list[bytes]) -> bytes:
    raw, other = bytearray(draw.choice(seeds)), draw.choice(seeds)
    for _ in range(draw.choice((1, 1, 2, 4))):
        if raw:
            draw.choice(DAMAGES)(draw, raw, other)
    return bytes(raw)


# --- forged op lists --------------------------------------------------------------------------------------------------


def places(node: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [here, *(place for key, child in items for place in places(child, (*here, key)))]


def parent_of(node: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        node = node[key]
    return node


def changed(draw: random.Random, program: Any) -> None:
    """Values of plain data exchanged, numbers among them changed."""
    for _ in range(draw.choice((1, 1, 2))):
        all_places = places(program)[1:]
        place = draw.choice(all_places)
        within, key = parent_of(program, place), place[-1]
        old = within[key]
        kind = draw.randrange(6)
        if isinstance(old, int) and kind < 3:
            within[key] = old + draw.choice((-2, -1, 1, 2))
        elif isinstance(old, int) and kind < 5:
            within[key] = draw.choice(EDGES)
        elif isinstance(old, list) and old and kind < 2:
            draw.shuffle(old)
        elif isinstance(old, list) and kind < 4:
            old.append(old[draw.randrange(len(old))] if old else 0)
        else:
            from_place = draw.choice(all_places)
            within[key] = json.loads(json.dumps(parent_of(program, from_place)[from_place[-1]]))


def forged(draw: random.Random, seeds: list[bytes]) -> bytes:
    header, program, data = tampered_files.parts(draw.choice(seeds))
    changed(draw, program)
    if draw.random() < 0.2:
        name = draw.choice([name for name in data if name not in ("program", "hashes")])
        if data[name]:
            raw = bytearray(data[name])
            overwritten(draw, raw, b"")
            data[name] = bytes(raw)
    return tampered_files.forged(header, program, data)


def forged_words(draw: random.Random, seed: bytes) -> bytes:
    """Another provenance: card, memory of photos, what was learned."""
    header, program, data = tampered_files.parts(seed)
    words = json.loads(zlib.decompress(data["provenance"]))
    changed(draw, words)
    text = bytearray(json.dumps(words).encode())
    if draw.random() < 0.3:
        number_changed(draw, text, b"")
    return tampered_files.forged(header, program, {**data, "provenance": zlib.compress(bytes(text))})


# --- opening ----------------------------------------------------------------------------------------------------------


class Campaign:
    """The seeds, a place for the file, and one way to make and open each kind."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "file"
        packed = corpus.packed()
        self.packed, self.learned = list(packed.values()), packed["learned"]
        self.containers = [*corpus.containers().values(), b"\0"]
        self.checkpoints = list(corpus.checkpoints().values())
        self.networks, self.tables = list(corpus.networks().values()), list(corpus.tables().values())
        self.runs = [b'{"config": ' + raw + b', "seed": 0}' for raw in corpus.settings().values()]
        self.forgeable = [
            raw for name, raw in packed.items() if name != "long"
        ]  # which takes long, and has one kind of op
        kinds: tuple[tuple[int, Callable[[random.Random], None]], ...] = (
            (50, self.packed_file), (5, self.forged_file), (2, self.words_file), (18, self.container_file),
            (10, self.checkpoint_file), (10, self.network_file), (5, self.run_file),
        )  # fmt: skip
        self.kinds = [kind for share, kind in kinds for _ in range(share)]

    def opened(self, raw: bytes) -> packfile.Packed:
        self.path.write_bytes(raw)
        return packfile.open_packed(self.path)

    def packed_file(self, draw: random.Random) -> None:
        packed = self.opened(damaged(draw, self.packed))
        packfile.save(packed.program, self.path, test_seeds=())
        assert self.path.read_bytes() in self.packed, "a damaged file opened as another program"

    def forged_file(self, draw: random.Random) -> None:
        program = self.opened(forged(draw, self.forgeable)).program
        work = sum(count.binary_macs + count.real_macs for count in program.counts())
        sizes = [height * width * channels for height, width, channels in program.shapes]
        if work + sum(sizes) > MOST_WORK:
            return
        height, width, _ = program.shapes[0]
        images = np.random.default_rng(draw.randrange(1 << 30)).integers(0, 256, (2, height, width, 3), np.uint8)
        with np.errstate(all="ignore"):
            expected = np.stack([interpret(program, image) for image in images]).reshape(2, -1)
        made = Engine(program, threads=draw.choice((1, 2))).run(images).reshape(2, -1)
        assert np.array_equal(made, expected, equal_nan=True), "engine and interpreter disagree"

    def words_file(self, draw: random.Random) -> None:
        """A card that reads, is shown; a memory that reads, gets a class more, as `bcnn learn --add` does it."""
        program = self.opened(forged_words(draw, self.learned)).program
        said, head = card.of(program), taken_off(program)
        assert said is None or visible(said.title) == said.title
        assert head is not None
        d = head.scale.scale.size
        kept = class_centroids.of(program, d)
        if kept is not None and len(kept.x) == 2:
            known = Decoder(head.decoder.weight[:d, :2], head.decoder.bias[:2])
            made = class_centroids.add(kept, known, np.ones((3, d), np.float32))
            assert np.isfinite(made.weight).all()

    def container_file(self, draw: random.Random) -> None:
        self.path.write_bytes(damaged(draw, self.containers))
        container.read_container(self.path)

    def checkpoint_file(self, draw: random.Random) -> None:
        self.path.write_bytes(damaged(draw, self.checkpoints))
        checkpoint.read(self.path)

    def network_file(self, draw: random.Random) -> None:
        suffix, seeds = draw.choice(((".json", self.networks), (".toml", self.tables)))
        path = self.path.with_suffix(suffix)
        path.write_bytes(damaged(draw, seeds))
        configs.read(path)

    def run_file(self, draw: random.Random) -> None:
        """run.json or metrics.jsonl of a run that is resumed."""
        run = RunFolder(self.path.parent)
        if draw.random() < 0.5:
            run.info.write_bytes(damaged(draw, self.runs))
            run.config()
        else:
            run.metrics.write_bytes(damaged(draw, [METRICS]))
            run.rewind_metrics(7, 1)

    def one(self, number: int) -> tuple[str, str]:
        """(kind, "opened" or "sentence") of file `number`; anything else is an exception."""
        draw = random.Random(number)
        kind = draw.choice(self.kinds)
        name = kind.__name__.removesuffix("_file")
        try:
            kind(draw)
        except UserError as error:
            sentence = str(error)
            if not sentence or len(sentence) > 2500 or visible(sentence) != sentence or "\n" in sentence:
                raise AssertionError(f"no sentence for a terminal: {sentence!a}") from error
            return name, "sentence"
        return name, "opened"


def hung(*_: object) -> None:
    raise TimeoutError("more than a minute")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000, help="number of the last file, and one more")
    parser.add_argument("--first", type=int, default=0, help="number of the first file, for a share of a campaign")
    parser.add_argument("--state", type=Path, required=True, help="folder of counts and findings")
    arguments = parser.parse_args()
    arguments.state.mkdir(parents=True, exist_ok=True)
    kept = arguments.state / "state.json"
    state = (
        json.loads(kept.read_text())
        if kept.is_file()
        else {"next": arguments.first, "seconds": 0, "slowest": [0, 0], "counts": {}}
    )
    memory = Path("/dev/shm")  # files that never meet a disk
    folder = (memory if class_centroids.is_dir() else arguments.state) / f"campaign-{os.getpid()}"
    folder.mkdir()
    campaign = Campaign(folder)
    signal.signal(signal.SIGALRM, hung)
    began = time.process_time()
    for number in range(state["next"], arguments.files):
        start = time.process_time()
        signal.alarm(60)
        try:
            kind, outcome = campaign.one(number)
        except Exception:
            kind, outcome = "any", "FINDING"
            (arguments.state / f"finding-{number}.txt").write_text(traceback.format_exc())
        signal.alarm(0)
        key = f"{kind} {outcome}"
        state["counts"][key] = state["counts"].get(key, 0) + 1
        state["slowest"] = max(state["slowest"], [round(time.process_time() - start, 3), number])
        if (number + 1) % SAVED == 0 or number + 1 == arguments.files:
            state["next"], state["seconds"] = number + 1, round(state["seconds"] + time.process_time() - began, 1)
            state["most_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            began = time.process_time()
            kept.with_suffix(".part").write_text(json.dumps(state, indent=1, sort_keys=True))
            kept.with_suffix(".part").replace(kept)
    print(kept.read_text())
    return int(any("FINDING" in key for key in state["counts"]))


if __name__ == "__main__":
    sys.exit(main())
