"""The table verb x kind: every cell is tried, those that work and those that say what to type instead."""

import shlex
from pathlib import Path

import pytest
import samples
import tiny_runs
from PIL import Image
from typer.testing import CliRunner

import bcnn
from bcnn.base.errors import UserError
from bcnn.cli import bench, convert, count, deploy, export, learn, predict, train  # noqa: F401  (they add their verbs)
from bcnn.cli.app import app
from bcnn.models import networks
from bcnn.models.bench import job
from bcnn.models.resolve import resolve
from bcnn.models.verbs import HOW, VERBS, Kind
from bcnn.nets.bcnn import Network

CODE = """import tiny_runs
import torch
from bcnn.nets.bcnn import Network

def make():
    print("the user's code runs")
    torch.manual_seed(0)
    return Network(tiny_runs.NETWORK).eval()
"""
RUNS_CODE = {"bench", "pack", "verify --checkpoint", "audit", "summary"}
# What every option of a cell's command needs besides the MODEL.
WORDS = {
    "predict": "predict photo.png -m {}",
    "eval": "eval {} --data digits",
    "verify": "verify {}",
    "convert": "convert {} -o out.bcnn",
    "export": "export {} --to web -o out.html",
    "info": "info {}",
    "bench": "bench {} --rounds 1",
    "learn --from": "learn photos --from {} --size 8 -o out.bcnn",
    "train --init": "train --data digits --recipe digits --init {} --dry-run",
    "train --network": "train --data digits --network {} --dry-run",
    "pack": "pack {} -o out.bcnn --random",
    "verify --checkpoint": "verify same.bcnn --checkpoint {}",
    "audit": "audit {} --size 8",
    "summary": "summary {} --size 8",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One of every kind, all of the same tiny network."""
    made = tmp_path_factory.mktemp("kinds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcnn.training.report.write", lambda folder: None)  # pictures have a test of their own
        tiny_runs.train(tiny_runs.config(), made / "run")
    bcnn.pack(made / "run", made / "mine.bcnn")
    (made / "mine.toml").write_text(_toml())
    (made / "mine.py").write_text(f"import sys\nsys.path.append({str(Path(tiny_runs.__file__).parent)!r})\n{CODE}")
    Image.fromarray(samples.image(8, 8)).save(made / "photo.png")
    for name in ("a", "b"):
        (made / "photos" / name).mkdir(parents=True)
        for index in range(12):
            Image.fromarray(samples.image(8, 8, index)).save(made / "photos" / name / f"{index}.png")
    return made


def _toml() -> str:
    from bcnn.nets import config

    return config.to_toml(tiny_runs.NETWORK)


def given(kind: Kind, folder: Path) -> object:
    return {
        Kind.SHIPPED: "digits",
        Kind.PACKED: str(folder / "mine.bcnn"),
        Kind.RUN: str(folder / "run"),
        Kind.CHECKPOINT: str(folder / "run" / "best.safetensors"),
        Kind.CONFIG: str(folder / "mine.toml"),
        Kind.NETWORK: "mobilenet-v1-cifar",
        Kind.CODE: f"{folder / 'mine.py'}:make",
        Kind.MODULE: Network(tiny_runs.NETWORK).eval(),
    }[kind]


@pytest.mark.parametrize("verb", VERBS)
def test_a_row_says_one_thing_of_every_kind(verb):
    row = VERBS[verb]
    assert set(row.takes) | set(row.instead) == set(Kind) == set(HOW)
    assert not set(row.takes) & set(row.instead)
    assert (Kind.CODE in row.takes) == (verb in RUNS_CODE)


@pytest.mark.parametrize(("verb", "kind"), [(verb, kind) for verb, row in VERBS.items() for kind in row.instead])
def test_the_command_to_type_instead_takes_the_kind(verb, kind, folder):
    what = given(kind, folder)
    if kind == Kind.SHIPPED and not VERBS[verb].trained:  # a bare name is an architecture's there
        assert resolve(what, verb).kind == Kind.NETWORK
        return
    with pytest.raises(UserError) as raised:
        resolve(what, verb)
    sentence = str(raised.value)
    assert f" is a {kind}, and {verb} takes a " in sentence
    command = sentence.partition("; instead: ")[2]
    if kind == Kind.MODULE:
        assert command == 'bcnn.pack(module, "model.bcnn")'
        return
    words = shlex.split(command)
    option = next((word for word in words if word in ("--init", "--network", "--from")), "")
    assert kind in VERBS[f"{words[1]} {option}".strip()].takes
    assert what in words


CELLS = [(verb, kind) for verb, row in VERBS.items() for kind in row.takes if verb in WORDS and kind != Kind.MODULE]


@pytest.mark.parametrize(("verb", "kind"), CELLS)
def test_a_verb_does_what_its_cell_says(verb, kind, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("photo.png", "photos"):
        (tmp_path / name).symlink_to(folder / name)
    what = given(kind, folder)
    code = 1 if verb == "audit" and kind == Kind.NETWORK else 0  # MobileNet's products are real
    if verb == "verify --checkpoint":
        bcnn.pack(what, "same.bcnn", random=True)
    words = WORDS[verb].format(what)
    if kind == Kind.NETWORK:
        words = words.replace("--size 8", "--size 32")
    if verb == "convert" and kind == Kind.SHIPPED:
        words += " --numbers float32"  # it is in integers
    done = CliRunner().invoke(app, shlex.split(words))
    assert done.exit_code == code, (done.output, done.exception)
    assert ("the user's code runs" in done.output) == (kind == Kind.CODE)
    if verb == "verify" and kind in (Kind.RUN, Kind.CHECKPOINT):
        assert "equal torch's" in done.output


@pytest.mark.parametrize("kind", VERBS["load"].takes)
def test_bcnn_load_opens_what_its_row_says(kind, folder):
    assert len(bcnn.load(given(kind, folder)).predict(str(folder / "photo.png"))[0]) == 5


@pytest.mark.parametrize("verb", [verb for verb, row in VERBS.items() if Kind.MODULE in row.takes])
def test_python_takes_a_module_and_a_config_object(verb, tmp_path):
    for what in (given(Kind.MODULE, tmp_path), tiny_runs.NETWORK):
        found = networks.network(resolve(what, verb), networks.Given((8, 8)))
        assert isinstance(found.module, Network)
        if verb == "pack":
            bcnn.pack(what, tmp_path / "x.bcnn", size=(8, 8), random=True)
        elif verb == "bench":
            assert job(what, given=networks.Given((8, 8))).program.shapes[0][:2] == (8, 8)
        elif verb == "verify --checkpoint":
            bcnn.pack(found.module, tmp_path / "x.bcnn", size=(8, 8))
            assert all(check.passed for check in bcnn.verify(tmp_path / "x.bcnn", found.module))


def test_help_says_where_a_users_code_runs():
    for verb in {verb.partition(" ")[0] for verb in VERBS} - {"load"}:
        text = CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "200"}).output
        runs = any(Kind.CODE in row.takes for name, row in VERBS.items() if name.partition(" ")[0] == verb)
        assert ("FILE.py:FUNCTION" in text) == runs, verb


def test_a_bare_name_is_the_trained_network_or_the_architecture_by_the_verb():
    for verb, row in VERBS.items():
        if row.trained:
            assert resolve("imagenette", verb).kind == Kind.SHIPPED
        else:
            assert resolve("imagenette", verb).kind == Kind.NETWORK


def test_random_weights_must_be_asked_for(tmp_path):
    for what in ("digits", tiny_runs.NETWORK):
        with pytest.raises(UserError, match=r"has no trained weights; .* --random \(in Python random=True\)"):
            bcnn.pack(what, tmp_path / "x.bcnn")
    with pytest.raises(UserError, match="the trained one is packed already: bcnn info digits"):
        bcnn.pack("digits", tmp_path / "x.bcnn")
    assert not (tmp_path / "x.bcnn").exists()
    assert bcnn.pack("digits", tmp_path / "x.bcnn", random=True).total == (tmp_path / "x.bcnn").stat().st_size


def test_a_name_wins_over_a_file_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "birealnet-18").mkdir()
    with pytest.raises(UserError, match=r"registered network \(\./birealnet-18 is the file or folder of that name\)"):
        resolve("birealnet-18", "predict")
    assert resolve("./birealnet-18", "predict").kind == Kind.RUN
    assert resolve(Path("birealnet-18"), "predict").kind == Kind.RUN


def test_a_checkpoint_is_told_from_a_packed_file_by_what_is_in_it(folder, tmp_path):
    (tmp_path / "a.bin").write_bytes((folder / "run" / "best.safetensors").read_bytes())
    (tmp_path / "b.safetensors").write_bytes((folder / "mine.bcnn").read_bytes())
    assert resolve(tmp_path / "a.bin", "info").kind == Kind.CHECKPOINT
    assert resolve(tmp_path / "b.safetensors", "info").kind == Kind.PACKED
    with pytest.raises(UserError, match=r"b.safetensors is a packed file, and pack takes .*; instead: bcnn info "):
        resolve(tmp_path / "b.safetensors", "pack")


def test_what_is_no_model_is_refused():
    with pytest.raises(UserError, match=r"load takes a shipped model, .*, not int"):
        bcnn.load(3)
