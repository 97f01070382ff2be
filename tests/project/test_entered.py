"""A reader can follow a file's opening and a photo's way in one sitting: few files, few functions."""

import pytest
from tools.release.entered import walk

from bcnn.packed import shipped

LIMITS = {"open": (15, 90), "engine": (4, 13), "predict": (6, 20)}  # files, named functions


@pytest.mark.parametrize("name", shipped.names())
def test_opening_and_predicting_enter_few_files_and_functions(name):
    for step, found in walk(name).items():
        files, functions = LIMITS[step]
        assert len({file for file, _ in found}) <= files, (step, sorted(found))
        assert len(found) <= functions, (step, sorted(found))
        assert found
