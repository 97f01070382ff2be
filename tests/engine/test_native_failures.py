"""Every allocation and every thread of the native engine fails in turn: a MemoryError, nothing leaks, the engine still works.

A process of its own loads native/test/failing.cpp before everything else. Half of the time one allocation fails and the next
works again, half of the time all do from some point on.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from test_pool import COMPILER, NATIVE

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not COMPILER,
    reason="needs a compiler and glibc, whose functions it stands before",
)

SCRIPT = """
import ctypes, gc, sys
import numpy as np
import programs
from bcnn.engine import Engine

failing = ctypes.CDLL(sys.argv[1])
for name in ("failing_stop", "failing_live"):
    getattr(failing, name).restype = ctypes.c_long
failing.failing_start.argtypes = (ctypes.c_long, ctypes.c_long)
program = programs.random_program(int(sys.argv[2]), height=9, width=7, ops=8, most_channels=40)
images = np.random.default_rng(0).integers(0, 256, (3, 9, 7, 3), np.uint8)
expected, maps = Engine(program, threads=1).run(images), Engine(program, threads=1).maps(images[0])

WORK = {
    "make": lambda engine: Engine(program, threads=3),
    "make small": lambda engine: Engine(program, threads=2, least_memory=True),
    "one": lambda engine: engine.run(images[:1]),
    "batch": lambda engine: engine.run(images),
    "maps": lambda engine: engine.maps(images[0]),
    "profile": lambda engine: engine.profile(images[0], 2),
}


def check(engine):
    assert np.array_equal(engine.run(images[:1]), expected[:1])
    assert np.array_equal(engine.run(images), expected)
    assert all(np.array_equal(a, b) for a, b in zip(engine.maps(images[0]), maps, strict=True))


def attempt(name, first, after):
    '''Whether the work was refused, of how many allocations and threads; everything made is given back.'''
    engine = Engine(program, threads=3)
    made, sentence = None, ""
    failing.failing_start(first, after)
    try:
        made = WORK[name](engine)
    except MemoryError as error:
        sentence = str(error)
    finally:
        count = failing.failing_stop()
    check(made if isinstance(made, Engine) else engine)
    check(engine)
    return sentence, count


for name in WORK:
    for lasting in (False, True):
        attempt(name, 0, 0)
        gc.collect()
        before = failing.failing_live()
        first, refused, sentences = 1, 0, set()
        while True:
            sentence, count = attempt(name, first, 1 << 40 if lasting else first + 1)
            refused += bool(sentence)
            sentences.add(sentence)
            gc.collect()
            assert failing.failing_live() == before, (name, lasting, first, failing.failing_live() - before)
            if count < first:
                break
            # Not every one is refused: a sort does without the memory it would like to have.
            first += 1 if first < 60 else int(sys.argv[3])
        assert all(not s or (s.isprintable() and "memory" in s or s.startswith("cannot start thread")) for s in sentences), sentences
        print(name, lasting, count, refused, sorted(sentences), flush=True)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("failing") / "failing.so"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-o", made, NATIVE / "test" / "failing.cpp", "-ldl"]
    subprocess.run([COMPILER, *map(str, flags)], check=True)
    return made


@pytest.mark.parametrize("seed", [5])
def test_every_allocation_and_thread_that_fails_is_a_sentence_and_nothing_is_lost(library: Path, seed: int) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LD_PRELOAD": str(library)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(library), str(seed), "23"],
        env=env, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rows = done.stdout.splitlines()
    assert len(rows) == 12
    assert "cannot start thread 3 of 3: Resource temporarily unavailable; ask for fewer threads" in done.stdout
    assert all("not enough memory" in row for row in rows if not row.startswith("profile"))
