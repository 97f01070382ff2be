"""The README is run: its Python blocks in order, its `bcnn` lines as printed, its paths and make targets looked up."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def shell_lines() -> list[str]:
    lines = "\n".join(blocks("sh")).splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all lines: later ones use the files that earlier ones leave."""
    return tmp_path_factory.mktemp("readme")


@pytest.mark.timeout(300)
def test_shell_and_python_blocks_run_in_the_order_of_the_page(folder: Path) -> None:
    page = re.findall(r"^```(sh|python)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in page} == {"sh", "python"}
    for language, text in page:
        if language == "python":
            run([sys.executable, "-c", text], folder)
            continue
        for line in text.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["bcnn"]:
                run([sys.executable, "-m", "bcnn", *words[1:]], folder)


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_every_other_shell_line_is_a_make_target_that_exists_or_git_or_pip() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in shell_lines():
        tool, *rest = line.split()
        assert tool in {"bcnn", "make", "git", "cd", "pip", "torchrun"}, line
        if tool == "make":
            assert re.search(rf"^{rest[0]}:", makefile, re.MULTILINE), line


def test_every_link_to_a_file_leads_to_one() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert links
    for link in links:
        if "://" not in link:
            assert (ROOT / link).exists(), link
