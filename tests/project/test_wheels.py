"""`make wheels`, as far as no compiler is needed: what is built with, what counts as clean, what is said when something is missing."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tools.release import wheel_check, wheels


@pytest.mark.parametrize("machine", wheels.MACHINES)
def test_the_compiler_aims_at_the_machine_and_an_old_glibc(machine: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    environment = wheels._compiler(machine, tmp_path)
    assert f"c++ -target {machine}-linux-gnu.2.17" in Path(environment["CXX"]).read_text(encoding="utf-8")
    assert os.access(environment["CXX"], os.X_OK)
    assert environment["_PYTHON_HOST_PLATFORM"] == f"linux-{machine}"
    assert environment["SETUPTOOLS_EXT_SUFFIX"].endswith(f"-{machine}-linux-gnu.so")


def test_libraries_of_the_building_machine_in_a_wheel_are_seen(tmp_path: Path) -> None:
    for names, wanted in (
        (["bcnn/a.py", "bcnn-0.dist-info/WHEEL"], ["bcnn"]),
        (["bcnn/a.py", "bcnn.libs/x.so"], ["bcnn", "bcnn.libs"]),
    ):
        with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
            for name in names:
                archive.writestr(name, "")
        assert wheels._libraries(tmp_path / "a.whl") == wanted


def test_a_wheel_is_run_where_no_compiler_is_found(tmp_path: Path) -> None:
    path = wheel_check._bare(tmp_path)["PATH"]
    assert all(shutil.which(compiler, path=path) is None for compiler in ("cc", "c++", "gcc", "g++", "clang"))


def test_without_qemu_the_arm_wheel_is_said_not_to_have_run(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(wheel_check.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    said = wheel_check.check(tmp_path / "a.whl", "aarch64", tmp_path)
    assert said == "a.whl: not run, qemu-user is missing: apt-get install qemu-user-static"


def test_a_wheel_that_does_not_verify_stops_the_build(tmp_path: Path, monkeypatch: Any) -> None:
    def run(command: list[str], environment: dict[str, str]) -> str:
        return "pass  file          fine\nFAIL  engine neon   op 3 differs\n" if "verify" in command else ""

    monkeypatch.setattr(wheel_check.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(wheel_check, "_native", lambda wheel, work: (["python"], {}))
    monkeypatch.setattr(wheel_check, "_run", run)
    with pytest.raises(SystemExit, match=r"a\.whl does not verify: FAIL  engine neon"):
        wheel_check.check(tmp_path / "a.whl", "x86_64", tmp_path)


def test_a_command_that_fails_is_named(capfd: Any) -> None:
    with pytest.raises(SystemExit, match="failed, see above"):
        wheel_check._run(["sh", "-c", "echo broken; exit 3"], dict(os.environ))
    assert "broken" in capfd.readouterr().err
