"""The commit that a file names is that of our own checkout, or none."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bcnn.base
from bcnn.base.provenance import FILE_IN_CHECKOUT, commit, versions
from bcnn.base.version import __version__

SOURCE = Path(bcnn.base.__path__[0])


def git(folder, *words):
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder, *tracked):
    """A repository with one commit of the files that are `tracked`."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    (folder / "theirs.txt").write_text("theirs")
    git(folder, "add", "theirs.txt", *tracked)
    git(folder, "commit", "-qm", "one")
    return git(folder, "rev-parse", "HEAD")


def installed(site):
    """A package of ours at `site`, as far as `commit` needs it."""
    (site / "bcnn").mkdir(parents=True)
    (site / "bcnn/__init__.py").touch()
    shutil.copytree(SOURCE, site / "bcnn/base", ignore=shutil.ignore_patterns("__pycache__"))
    return site / "bcnn"


def test_in_a_checkout_it_is_the_commit_and_a_plus_after_a_change(tmp_path):
    package = installed(tmp_path / "src")
    head = repository(tmp_path, "src")
    assert (tmp_path / FILE_IN_CHECKOUT).is_file()
    assert commit(package=package) == head
    assert commit(digits=7, package=package) == head[:7]
    (package / "base/new.py").touch()
    assert commit(package=package) == head + "+"
    (package / "base/new.py").unlink()
    (package / "base/version.py").write_text("changed")
    assert commit(digits=7, package=package) == head[:7] + "+"


def test_what_lies_outside_the_package_is_no_change(tmp_path):
    package = installed(tmp_path / "src")
    head = repository(tmp_path, "src")
    (tmp_path / "theirs.txt").write_text("changed")
    assert commit(package=package) == head


@pytest.mark.parametrize("site", [".venv/lib/python3.12/site-packages", "src"])
def test_inside_a_repository_of_somebody_else_there_is_none(tmp_path, site):
    package = installed(tmp_path / site)
    theirs = repository(tmp_path)
    assert commit(package=package) == ""
    # The same, by the package that lies there.
    code = "from bcnn.base import provenance; print(provenance.__file__, repr(provenance.commit()))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(package.parent), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(package / "base/provenance.py"), "''"]
    assert git(package, "rev-parse", "HEAD") == theirs  # git itself would have given theirs


def test_a_copy_that_somebody_else_tracks_at_another_place_has_none(tmp_path):
    package = installed(tmp_path / "third_party")
    repository(tmp_path, "third_party")
    assert commit(package=package) == ""


def test_without_a_repository_or_without_git_there_is_none(tmp_path, monkeypatch):
    package = installed(tmp_path / "src")
    assert commit(package=package) == ""
    repository(tmp_path, "src")
    assert commit(package=package)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(package=package) == ""


def test_a_git_hook_of_another_repository_changes_nothing(tmp_path, monkeypatch):
    package = installed(tmp_path / "ours/src")
    head = repository(tmp_path / "ours", "src")
    repository(tmp_path / "theirs")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "theirs/.git"))
    assert commit(package=package) == head


def test_versions_name_what_is_installed_and_nothing_else():
    found = versions("numpy", "no-such-package")
    assert found["bcnn"] == __version__
    assert list(found) == ["bcnn", "numpy", "python"]
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", found["python"])
