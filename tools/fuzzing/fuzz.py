"""Coverage-guided fuzzing of everything that opens a file: bytes -> its content, or one sentence. Nothing else may happen.

    pip install atheris            libFuzzer for Python; Linux on x86-64
    python -m tools.fuzzing.fuzz packed --runs 100000

Targets: `container` (its reader alone), `packed` (a whole packed file), `program` (the op list inside one, with its hashes made
right again, so that what stands behind the hash is reached), `network` and `settings` (configs), `checkpoint`. The seeds are
those of tests/helpers/corpus.py. An exception other than `UserError`, more than a minute or two gigabytes is a finding:
the fuzzer stops, and leaves the input in crash-*, timeout-* or oom-* in --finds, to become a test. `--keep` names a folder that
grows with what reached new code, for the next run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))
with atheris.instrument_imports(include=["bcnn"]):
    import corpus
    import tampered_files

    from bcnn.base.console import visible
    from bcnn.base.errors import UserError
    from bcnn.nets import config as configs
    from bcnn.packed import container, packfile
    from bcnn.training import settings

Target = Callable[[bytes, Path], object]


def packed(data: bytes, path: Path) -> object:
    path.write_bytes(data)
    return packfile.open_packed(path)


def plain_container(data: bytes, path: Path) -> object:
    path.write_bytes(data)
    return container.read_container(path)


def program(data: bytes, path: Path) -> object:
    """The text of a packed file's op list in a file that is right in everything else."""
    base = path.with_name("base").read_bytes()
    path.write_bytes(tampered_files.forged(*tampered_files.parts(base), text=data.decode("utf-8", "replace")))
    return packfile.open_packed(path)


def network(data: bytes, path: Path) -> object:
    path.with_suffix(".json").write_bytes(data)
    return configs.read(path.with_suffix(".json"))


def run_settings(data: bytes, path: Path) -> object:
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return settings.from_dict(plain)


def checkpoint(data: bytes, path: Path) -> object:
    from bcnn.training import checkpoint

    path.write_bytes(data)
    return checkpoint.read(path)


def texts(seeds: corpus.Corpus, folder: Path) -> corpus.Corpus:
    """The op lists of packed files; the file of `every-op` is the base of `program`."""
    made = {}
    for name, content in seeds.items():
        made[name] = zlib.decompress(tampered_files.parts(content)[2]["program"])
    (folder / "base").write_bytes(seeds["every-op"])
    program(made["every-op"], folder / "input")  # opens, or these are no op lists
    return made


TARGETS: dict[str, tuple[Target, Callable[[], corpus.Corpus]]] = {
    "container": (plain_container, corpus.containers),
    "packed": (packed, corpus.packed),
    "program": (program, corpus.packed),
    "network": (network, corpus.networks),
    "settings": (run_settings, corpus.settings),
    "checkpoint": (checkpoint, corpus.checkpoints),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=0, help="stop after so long, whatever --runs says")
    parser.add_argument("--seed", type=int, default=1, help="the same seed tries the same inputs")
    parser.add_argument("--keep", type=Path, help="folder of inputs that reached new code")
    parser.add_argument("--finds", type=Path, default=Path("."), help="folder for what went wrong")
    arguments = parser.parse_args()
    target, make = TARGETS[arguments.target]
    memory = Path("/dev/shm")  # files that never meet a disk
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)
        seeds = make()
        if target is program:
            seeds = texts(seeds, folder)
        (folder / "seeds").mkdir()
        for seed, content in seeds.items():
            (folder / "seeds" / seed).write_bytes(content)

        def one(data: bytes) -> None:
            try:
                target(data, folder / "input")
            except UserError as error:
                sentence = str(error)
                if (
                    not sentence
                    or len(sentence) > 2000 + len(name)
                    or visible(sentence) != sentence
                    or "\n" in sentence
                ):
                    raise AssertionError(f"no sentence for a terminal: {sentence!a}") from error

        folders = [str(arguments.keep)] if arguments.keep else []
        words = [f"-runs={arguments.runs}", f"-seed={arguments.seed}", "-timeout=60", "-rss_limit_mb=2048"]
        words += [f"-max_total_time={arguments.seconds}"]
        longest = max(map(len, seeds.values())) + 100
        words += [f"-max_len={longest}", f"-artifact_prefix={arguments.finds}/", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *words, *folders, str(folder / "seeds")], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
