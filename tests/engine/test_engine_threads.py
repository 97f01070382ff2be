"""Engines under load: many at once, from many threads, after fork; and the choice of the instruction set."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from programs import of_config

import bcnn
from bcnn import _core
from bcnn.base.errors import UserError
from bcnn.engine import Engine, isas

PROGRAM = of_config(bcnn.preset("digits"))
IMAGES = np.random.default_rng(0).integers(0, 256, (7, 8, 8, 3), dtype=np.uint8)
LOGITS = Engine(PROGRAM, threads=1).run(IMAGES)

pytestmark = pytest.mark.timeout(60)


def right(engine: Engine) -> bool:
    return bool((engine.run(IMAGES) == LOGITS).all() and (engine.run(IMAGES[:1]) == LOGITS[:1]).all())


def in_child(work: object) -> bool:
    """Run `work` in a forked child, which must end by itself."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 1  # type: ignore[operator]
        finally:
            os._exit(code)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def test_one_engine_serves_many_threads() -> None:
    engine = Engine(PROGRAM, threads=3)
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(30):
            if not right(engine):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_many_engines_come_and_go_in_many_threads() -> None:
    results: list[bool] = []

    def work() -> None:
        for threads in (1, 2, 3, 4, 2):
            results.append(right(Engine(PROGRAM, threads=threads)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_an_engine_that_has_run_works_in_a_forked_child_and_still_in_the_parent() -> None:
    engine = Engine(PROGRAM, threads=3)
    assert right(engine)
    for _ in range(5):
        assert in_child(lambda: right(engine) and right(Engine(PROGRAM, threads=2)))
        assert right(engine)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_other_threads_run_the_engine_leaves_the_child_able_to() -> None:
    engine = Engine(PROGRAM, threads=2)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            engine.run(IMAGES)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert all(in_child(lambda: right(engine)) for _ in range(10))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert right(engine)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_fork_of_a_fork_works_too() -> None:
    engine = Engine(PROGRAM, threads=2)
    assert right(engine)
    assert in_child(lambda: right(engine) and in_child(lambda: right(engine)) and right(engine))


def test_engines_left_alive_do_not_keep_the_interpreter_from_ending() -> None:
    code = (
        "import numpy as np, bcnn; from programs import of_config; from bcnn.engine import Engine;"
        "keep = Engine(of_config(bcnn.preset('digits')), threads=4);"
        "keep.run(np.zeros((1, 8, 8, 3), np.uint8)); print('done')"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path])}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=30)
    assert (out.returncode, out.stdout) == (0, "done\n"), out.stderr


# --- instruction sets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [isa.name for isa in isas() if isa.supported])
def test_the_forced_instruction_set_is_the_active_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Engine(PROGRAM, isa=name, threads=1).isa == name
    monkeypatch.setenv("BCNN_ISA", name)
    assert Engine(PROGRAM, threads=1).isa == name
    assert [isa.name for isa in isas() if isa.active] == [name]


def test_the_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCNN_ISA", "nonsense")
    assert Engine(PROGRAM, isa="scalar", threads=1).isa == "scalar"


def test_scalar_is_always_there_and_the_best_comes_first() -> None:
    assert isas()[-1].name == "scalar"
    assert isas()[-1].supported
    assert next(isa for isa in isas() if isa.supported).active


def test_an_unknown_instruction_set_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="isa: unknown instruction set 'avx3'; did you mean 'avx2'"):
        Engine(PROGRAM, isa="avx3")
    monkeypatch.setenv("BCNN_ISA", "")
    with pytest.raises(UserError, match="BCNN_ISA: unknown instruction set ''"):
        Engine(PROGRAM)


def test_an_instruction_set_this_machine_lacks_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "isas", lambda: [("future", False), ("scalar", True)])
    with pytest.raises(UserError, match="isa: this machine has no future; it supports scalar"):
        Engine(PROGRAM, isa="future")


@pytest.mark.parametrize("threads", [0, -1, 257, True, 1.5])
def test_a_wrong_number_of_threads_is_said_in_a_sentence(threads: object) -> None:
    with pytest.raises(UserError, match="threads is"):
        Engine(PROGRAM, threads=threads)  # type: ignore[arg-type]


def test_more_threads_than_rows_and_cores_is_fine() -> None:
    assert right(Engine(PROGRAM, threads=40))
