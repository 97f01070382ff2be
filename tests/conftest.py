"""For all tests: a property is right or wrong, not slow. A machine that others keep busy must not fail one.

For those of hostile packed files: the bytes of one with every op, and what it means to refuse a file.
"""

import pytest
import samples
from hypothesis import settings

from bcnn.base.errors import UserError
from bcnn.packed import packfile

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "m.bcnn"
    packfile.save(samples.every_op(("a", "b", "c")), path)
    return path.read_bytes()


@pytest.fixture
def refused(tmp_path):
    """Writes bytes to a file and expects one sentence about it, with these words."""

    def check(content, *words):
        path = tmp_path / "bad.bcnn"
        path.write_bytes(content)
        with pytest.raises(UserError) as raised:
            packfile.open_packed(path)
        message = str(raised.value)
        assert "\n" not in message
        assert len(message) < 500 + len(str(path))
        assert message.isprintable()
        assert all(word in message for word in words), message
        return message

    return check
