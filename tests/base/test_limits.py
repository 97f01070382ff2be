"""What a program may cost an engine: small files that ask for much are refused or planned in little memory."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import programs
import pytest

from bcnn.base.errors import UserError
from bcnn.engine import Engine
from bcnn.program import ops
from bcnn.program.program import Limits, Program

FIRST = np.array([0], np.int32)


def program(*made: ops.Op, limits: Limits | None = None) -> Program:
    return Program(made, ("",) * len(made), limits=limits or Limits())


def gated(side: int, limits: Limits | None = None) -> Program:
    """A map of one channel that is read again after all of it was: it must be kept, with a cache line for each pixel."""
    image = programs.Draw(0).input(side, side)
    made = (ops.Select(0, FIRST), ops.GlobalAvgPool(1), ops.Pointwise(1, 1, (ops.Gate(2),)))
    return program(image, *made, limits=limits)


def test_an_engine_that_would_take_gigabytes_is_refused_with_the_limit() -> None:
    with pytest.raises(
        UserError, match=r"takes [\d,]{13} bytes of an engine's memory; the limit is 2,147,483,648 \(raise it with"
    ):
        Engine(gated(6000), threads=1)
    allowed = Engine(gated(6000, Limits(arena_bytes=1 << 40)), threads=1)  # memory is taken by the first run
    assert allowed.peak_memory > 1 << 31


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_least_memory_is_never_more_than_least_time_takes(threads: int) -> None:
    made = [gated(64), *(programs.random_program(seed, 33, 20, ops=12) for seed in range(40))]
    for one in made:
        usual, least = (Engine(one, threads=threads, least_memory=choice) for choice in (False, True))
        assert least.peak_memory <= usual.peak_memory


LONG = """
import resource
import numpy as np
import programs
from bcnn.engine import Engine
from bcnn.program import ops
from bcnn.program.program import Program
made = [programs.Draw(0).input(1 << 14, 1), ops.Select(0, np.array([0], np.int32))]
made += [ops.MaxPool(i + 1, ops.Window()) for i in range(1200)]
program = Program(tuple(made), ("",) * len(made))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (250 << 20), resource.RLIM_INFINITY))
image = np.random.default_rng(0).integers(0, 256, (1, 1 << 14, 1, 3), np.uint8)
print(*{Engine(program, threads=1, least_memory=least).run(image).tobytes() == Engine(
    Program(tuple(made[:2]), ("",) * 2), threads=1).run(image).tobytes() for least in (False, True)})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_ops_on_many_rows_are_planned_in_little_memory() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", LONG], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
