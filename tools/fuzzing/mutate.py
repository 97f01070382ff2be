"""Whether the tests notice small wrong changes: each of `tools.fuzzing.mutations` in a copy of the sources, its tests there.

    python -m tools.fuzzing.mutate                   all of them, some minutes
    python -m tools.fuzzing.mutate files.py pool     those whose file or tests have such a word in them

Every mutation must be found: its tests fail with it, and pass without it. One whose text is no longer in its file, or is
there more than once, no longer applies: it is listed, and counts as a failure until it is rewritten. Exit code 0 if all is
well. Run it by hand after changes to what it watches; the native modules must have been built (only native/pool.cpp is
compiled anew, by its own test).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import NoReturn

import pytest
from tools.fuzzing.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "native", "tools", "bench", "pyproject.toml")
PRELOADED = (
    "numpy",
    "torch",
    "hypothesis",
    "PIL.Image",
    "safetensors.torch",
    "sklearn.datasets",
    "typer.testing",
    "rich.table",
)
ELSEWHERE = 99


def preload() -> None:
    """What the tests import besides what is tested: once here, so that each of some eighty runs does not pay for it again."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def passes(folder: Path, mutation: Mutation) -> bool | None:
    """Whether the tests pass in `folder`; None if none was run."""
    words = ["-x", "-q", "-p", "no:cacheprovider", "-o", "timeout=250", mutation.tests]
    words += ["-k", mutation.only] if mutation.only else []
    child = os.fork()
    if child == 0:
        run(folder, words)
    deadline = time.monotonic() + 300
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False  # it hangs: noticed
        time.sleep(0.05)
    code = os.waitstatus_to_exitcode(done[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what the tests may have left running
    if code == 5:
        return None
    if code == ELSEWHERE:
        raise RuntimeError(
            "bcnn is imported from elsewhere: run this where it is built beside its sources, not installed"
        )
    if code not in (0, 1, 2):
        raise RuntimeError(f"pytest gave {code} for {' '.join(words)}")
    return code == 0


def run(folder: Path, words: list[str]) -> NoReturn:
    """The tests, in a child that has imported nothing of ours yet."""
    code = 3  # an internal error, as pytest has it
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        os.chdir(folder)
        places = [str(folder / "src"), str(folder / "tests")]
        sys.path[:0] = places
        sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != ROOT]
        os.environ |= {"PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tools", "bcnn")]:
            del sys.modules[name]
        sys.modules["__main__"] = types.ModuleType("__main__")  # processes that tests start would run this file again
        found = importlib.util.find_spec("bcnn")
        ours = found is not None and str(found.origin).startswith(str(folder))
        code = int(pytest.main(words)) if ours else ELSEWHERE
    finally:
        os._exit(code)


def applies(mutation: Mutation) -> str:
    """Empty, or why the mutation cannot be made any more."""
    file = ROOT / mutation.file
    if not file.is_file():
        return f"there is no {mutation.file}"
    count = file.read_text(encoding="utf-8").count(mutation.old)
    return "" if count == 1 else f"{mutation.file} has {mutation.old!r} {count} times, not once"


def verdict(folder: Path, mutation: Mutation, sound: dict[tuple[str, str], bool | None]) -> str:
    """Empty if the mutation is found, else what is wrong."""
    if reason := applies(mutation):
        return f"no longer applies: {reason}"
    tests = mutation.tests, mutation.only
    if tests not in sound:
        sound[tests] = passes(folder, mutation)
    if sound[tests] is None:
        return f"no longer applies: no test in {mutation.tests} is called {mutation.only!r}"
    if not sound[tests]:
        return f"{mutation.tests} {mutation.only!r} fails without it, too"
    file = folder / mutation.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        return "SURVIVES" if passes(folder, mutation) else ""
    finally:
        file.write_text(text, encoding="utf-8")


def main(words: list[str]) -> int:
    chosen = [m for m in MUTATIONS if not words or any(word in f"{m.file} {m.tests} {m.only}" for word in words)]
    sound: dict[tuple[str, str], bool | None] = {}
    wrong = 0
    preload()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for part in COPIED:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, folder / part)
        for mutation in chosen:
            began = time.monotonic()
            what = verdict(folder, mutation, sound)
            wrong += bool(what)
            change = f"{mutation.file}: {mutation.old.strip()!r} -> {mutation.new.strip()!r}"
            print(f"{what or 'found':<8}  {time.monotonic() - began:5.1f} s  {change}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} found")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
