"""What a wheel without torch does: every verb about packed files, in a process where torch cannot be imported."""

import subprocess
import sys

import pytest
import samples
from PIL import Image

HEAD = """
import sys
sys.modules["torch"] = None  # importing it fails
from bcnn.cli import main
sys.argv = ["bcnn", *sys.argv[1:]]
main()
"""
VERBS = (
    "predict photos/0/0.png -m digits --json",
    "eval digits --data photos --json",
    "verify digits --data photos",
    "verify mine.bcnn",
    "convert digits -o floats.bcnn --numbers float32",
    "export digits --to c -o c",
    "export digits --to web -o page.html",
    "info digits",
    "info",
    "learn photos --from digits --size 8 -o learned.bcnn",
    "models",
    "tables",
    "networks",
    "summary digits",
)


def run(words, folder):
    return subprocess.run([sys.executable, "-c", HEAD, *words.split()], cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from bcnn.packed import shipped

    made = tmp_path_factory.mktemp("wheel")
    for name in map(str, range(10)):
        (made / "photos" / name).mkdir(parents=True)
        for index in range(4):
            Image.fromarray(samples.image(8, 8, index)).save(made / "photos" / name / f"{index}.png")
    (made / "mine.bcnn").write_bytes(shipped.find("digits").read_bytes())
    (made / "run").mkdir()
    return made


@pytest.mark.parametrize("words", VERBS)
def test_a_verb_runs_without_torch(words, folder):
    done = run(words, folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", ["predict photos -m run", "info run", "convert run -o x.bcnn", "export run --to c"])
def test_a_run_says_that_packing_it_takes_torch(words, folder):
    done = run(words, folder)
    assert done.returncode == 2
    assert (
        "run is a run folder: to pack it takes torch; pip install 'bcnn[train]', or give a packed file" in done.stderr
    )
    assert "Traceback" not in done.stderr
