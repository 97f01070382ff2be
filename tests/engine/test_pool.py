"""The pool of threads where the operating system shows its rare sides; see native/test/pool_test.cpp."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

NATIVE = ROOT / "native"
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or ""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pool") / "pool_test"
    sources = [NATIVE / "pool.cpp", NATIVE / "test" / "pool_test.cpp"]
    flags = ["-std=c++17", "-O1", "-rdynamic", f"-I{NATIVE}", "-o", made, *sources, "-lpthread", "-ldl"]
    subprocess.run([COMPILER, *map(str, flags)], check=True)
    return made


@pytest.mark.skipif(sys.platform != "linux" or not COMPILER, reason="needs a compiler on Linux")
@pytest.mark.parametrize("what", ["wake", "create"])
def test_no_wake_up_is_lost_and_a_thread_that_cannot_be_made_is_an_exception(program: Path, what: str) -> None:
    done = subprocess.run([program, what], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


LIMITED = """
import resource
import numpy as np
import bcnn
engine = bcnn.load("digits", threads=200)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), resource.RLIM_INFINITY))  # room for a dozen stacks
image = np.zeros((1, 8, 8, 3), np.uint8)
try:
    engine.run(image)
except MemoryError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(engine.run(image).shape)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_engine_without_room_for_its_threads_says_so_and_works_once_there_is_room() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("cannot start thread ")
    assert first.endswith(" of 200: Resource temporarily unavailable; ask for fewer threads")
    assert second == "(1, 10)"
