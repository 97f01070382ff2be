"""The verbs summary, tables and audit, as a user meets them."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bcnn import preset
from bcnn.cli import main
from bcnn.counting.conventions import CONVENTIONS
from bcnn.counting.counts import count
from bcnn.nets import config as configs
from bcnn.nets.bcnn import Network
from bcnn.nets.registry import ARCHITECTURES
from bcnn.program.counts import Counts
from bcnn.training import checkpoint


class Run:
    """Runs `bcnn ARGS` in this process; remembers what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setattr("bcnn.cli.app.out._width", 120)

    def __call__(self, *args: str, code: int = 0) -> str:
        self.monkeypatch.setattr(sys, "argv", ["bcnn", *args])
        with pytest.raises(SystemExit) as exit:
            main()
        captured = self.capsys.readouterr()
        assert exit.value.code in ((0, None) if code == 0 else (code,)), captured.err
        return captured.err if code == 2 else captured.out


@pytest.fixture
def bcnn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(monkeypatch, capsys)


@pytest.mark.parametrize("code", ["import bcnn", "from bcnn.cli import main; main()"])
def test_importing_and_summary_import_no_torch(code: str) -> None:
    script = f"""
import atexit, sys
sys.argv = ["bcnn", "summary", "imagenet"]
atexit.register(lambda: print("loaded", [m for m in ("torch", "numpy", "PIL", "sklearn", "matplotlib") if m in sys.modules]))
{code}
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "loaded []"


def test_summary_of_imagenet_shows_the_paper_s_totals(bcnn: Run) -> None:
    lines = bcnn("summary").splitlines()
    total = next(line for line in lines if line.startswith("total")).split()
    assert total == ["total", "1000x1x1", "9.04M", "1.15M", "2.41G", "36.4M", "62.7M", "19.6M", "15.7M", "16.4M", "5.70M", "84.2M", "131M"]  # fmt: skip
    assert sum(line.startswith(("stem.", "level")) for line in lines) == 13


@pytest.mark.parametrize("columns", ["80", "100", "120"])
def test_summary_fits_the_terminal_in_one_line_a_block(
    bcnn: Run, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setattr("bcnn.cli.app.out._width", int(columns))
    lines = bcnn("summary", "imagenet-p2").splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert "…" not in "".join(lines)
    assert [line.split()[0] for line in lines if line.startswith("level4")] == [f"level4.{i}" for i in range(6)]


def test_json_is_exact_down_to_every_module(bcnn: Run) -> None:
    data = json.loads(bcnn("summary", "imagenet-p2", "--json"))
    assert data["counts"]["binary_params"] == 18_085_888
    assert data["counts"]["adds"] == 109_634_560
    assert (data["convention"], data["operations"]) == ("paper", 208_150_528)
    assert configs.from_dict(data["config"]) == preset("imagenet-p2")
    stem = data["counts"]["children"][1]["children"][0]
    assert [module["name"] for module in stem["children"]] == [f"stem.0.{n}" for n in ("conv1", "depthwise", "conv3", "pool", "identity", "add")]  # fmt: skip
    assert stem["children"][0]["binary_macs"] == 2 * 32 * 32 * 224 * 224


def test_csv_is_exact_and_adds_up(bcnn: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(bcnn("summary", "cifar10", "--csv"))))
    total = rows.pop()
    assert total["block"] == "total"
    for column in ("binary params", "real params", "binary MACs", "adds", "weight bytes", "map bytes"):
        assert int(total[column]) == sum(int(row[column]) for row in rows)
    assert int(total["binary MACs"]) == 77_856_768


def test_markdown_has_a_row_a_block_and_the_total(bcnn: Run) -> None:
    lines = [line for line in bcnn("summary", "digits", "--markdown").splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 1 + 5 + 1 + 1  # header and rule, input, blocks, decoder, total
    assert all(line.count("|") == 14 for line in lines)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_every_convention_is_counted_and_explained_in_the_help(bcnn: Run, convention: str) -> None:
    data = json.loads(bcnn("summary", "digits", "--json", "--convention", convention))
    assert data["operations"] == sum(map(CONVENTIONS[convention], count(preset("digits")).leaves()))
    assert f"{convention}: " in bcnn("summary", "--help")


def test_options_change_the_config(bcnn: Run) -> None:
    data = json.loads(bcnn("summary", "cifar10", "--branches", "3", "--width", "0.5", "--size", "64", "--json"))
    expected = preset("cifar10").replace(branches=3, image_size=64).scaled(0.5)
    assert configs.from_dict(data["config"]) == expected
    assert {k: data["counts"][k] for k in vars(Counts())} == vars(count(expected).counts)


def test_summary_reads_a_config_file(bcnn: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\nclasses = 7\nimage_size = 64\n')
    assert json.loads(bcnn("summary", str(tmp_path / "mine.toml"), "--json"))["counts"]["name"] == "mine"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            ["summary", "imagenett"],
            "bcnn: unknown network 'imagenett'; did you mean 'imagenette' or 'imagenet' or 'imagenet-p2'? `bcnn networks` lists all ",
        ),
        (["audit", "cifar"], "bcnn: unknown network 'cifar'; did you mean 'cifar10' or "),
        (["summary", "--size", "100"], "bcnn: image_size height 100 is not a multiple of 32, "),
        (["summary", "--branches", "0"], "bcnn: branches (P) must be a whole number >= 1, got 0"),
        (["summary", "--width", "0"], "bcnn: width must be a number > 0, got 0.0"),
        (["summary", "--convention", "react"], "bcnn: unknown convention 'react'; did you mean 'reactnet'? known: ace"),
        (["summary", "none.json"], "bcnn: cannot read config none.json: No such file or directory"),
        (["summary", "--json", "--csv"], "bcnn: choose one output format: --json, --markdown or --csv"),
        (["audit", "digits", "--weights", "reel"], "bcnn: unknown weights 'reel'; did you mean 'real'? known: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence_and_exit_code_2(bcnn: Run, args: list[str], sentence: str) -> None:
    err = bcnn(*args, code=2)
    assert err.startswith(sentence)
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[stem]\nreplicate = -1", "stem: replicate (R) must be a number > 0, got -1"),
        ("[[levels]]\nstride = 0", "level1: stride (S) must be a whole number >= 1, got 0"),
        ("branches = -3", "branches (P) must be a whole number >= 1, got -3"),
        ("colour = 1", "config: unknown key 'colour'; "),
        ("classes =", "is not valid TOML: "),
    ],
)
def test_bad_config_file_is_one_sentence_and_exit_code_2(bcnn: Run, tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    err = bcnn("summary", str(path), code=2)
    assert err.startswith(f"bcnn: {path}")
    assert sentence in err
    assert err.count("\n") == 1


def test_networks_lists_every_registered_one(bcnn: Run) -> None:
    lines = bcnn("networks").splitlines()
    assert [line.split()[0] for line in lines] == [*ARCHITECTURES]
    assert "birealnet-20-cifar     32x32  Bi-Real units in ResNet-20" in "\n".join(lines)


def test_tables_print_in_three_formats(bcnn: Run) -> None:
    text = bcnn("tables")
    assert all(f"Table {n}: " in text for n in (2, 3, 4, 5))
    assert "109.64 e6" in text
    assert "XNOR-Net" in text
    assert ",NO\n" not in bcnn("tables", "--csv")
    assert "| Sign | 15.65 e6 | 15.65 e6 | 31.31 e6 | 31.31 e6 | yes |" in bcnn("tables", "--markdown")
    assert "BCNN P=2,ours,71.2,3.45,208.15,yes" in bcnn("tables", "--csv")


def test_audit_passes_with_binary_weights_and_fails_with_real_ones(bcnn: Run) -> None:
    assert "all 13 matrix-matrix products are 1 x 1 bit" in bcnn("audit", "digits")
    out = bcnn("audit", "digits", "--weights", "real", code=1)
    assert "13 of 13 products are not 1 x 1 bit, the first in stem.0.conv1.branches.0: 1 x 32" in out


def test_audit_of_a_trained_network_uses_its_weights_and_its_mode(bcnn: Run, tmp_path: Path) -> None:
    network = Network(preset("digits"), "real")
    meta = checkpoint.Meta((0.5,) * 3, (0.25,) * 3, tuple("0123456789"), 1.0)
    for mode in ("real", "binary"):
        file = checkpoint.Checkpoint(network.config, mode, network.state_dict(), meta)
        checkpoint.save(tmp_path / f"{mode}.safetensors", file)
    assert "all 13 matrix-matrix products are 1 x 1 bit" in bcnn("audit", str(tmp_path / "binary.safetensors"))
    assert "13 of 13 products are not 1 x 1 bit" in bcnn("audit", str(tmp_path / "real.safetensors"), code=1)
    assert "all 13" in bcnn("audit", str(tmp_path / "real.safetensors"), "--weights", "binary")
    (tmp_path / "last.safetensors").write_bytes((tmp_path / "binary.safetensors").read_bytes())
    assert "all 13" in bcnn("audit", str(tmp_path))
    assert "no checkpoint at nowhere.safetensors" in bcnn("audit", "nowhere.safetensors", code=2)


def test_audit_of_a_preset_is_not_misled_by_a_folder_of_its_name(
    bcnn: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "all 13" in bcnn("audit", "digits")
    assert "as trained, else binary" in bcnn("audit", "--help")


@pytest.mark.parametrize("verb", ["summary", "audit"])
def test_a_name_with_brackets_is_text_and_not_markup(bcnn: Run, tmp_path: Path, verb: str) -> None:
    (tmp_path / "a.toml").write_text('name = "[/x]"\nimage_size = 8\nlevels = [{}]\n')
    assert "[/x]" in bcnn(verb, str(tmp_path / "a.toml"))


@pytest.mark.parametrize(
    "verb",
    [
        "summary",
        "networks",
        "tables",
        "audit",
        "train",
        "eval",
        "pack",
        "info",
        "verify",
        "predict",
        "bench",
        "approximate",
    ],
)
def test_help_has_examples(bcnn: Run, verb: str) -> None:
    assert "Examples" in bcnn(verb, "--help")
    assert f"bcnn {verb}" in bcnn(verb, "-h")
