"""The version stands once, and asking for it loads nothing else."""

import subprocess
import sys
import tomllib

import paths

import bcnn
from bcnn.base.version import __version__

ROOT = paths.ROOT


def test_the_package_the_build_and_the_makefile_read_the_same_file():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["metadata"]["version"]
    assert build["input"] == "src/bcnn/base/version.py"
    assert build["input"] in (ROOT / "Makefile").read_text()  # a new version makes an install stale
    assert f'__version__ = "{__version__}"' in (ROOT / build["input"]).read_text()
    assert bcnn.__version__ == __version__


def test_import_bcnn_loads_no_room_but_the_version():
    code = "import sys, bcnn; print(*sorted(name for name in sys.modules if name.split('.')[0] == 'bcnn'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["bcnn", "bcnn.base", "bcnn.base.version"]
