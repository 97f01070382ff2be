"""For tests of training."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def no_pictures() -> Iterator[None]:
    """Runs draw no pictures: those take longer than a small run and have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcnn.training.report.write", lambda folder: None)
        yield
