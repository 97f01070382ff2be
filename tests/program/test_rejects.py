"""The key `rejects` of a packed file: written where it is true, refused where it makes no sense."""

import dataclasses

import pytest
import samples
import tampered_files

from bcnn.base.errors import UserError
from bcnn.engine import Engine
from bcnn.packed import card, packfile


@pytest.fixture
def model(tmp_path):
    packfile.save(
        dataclasses.replace(samples.every_op(("cat", "dog", "none of these")), rejects=True), tmp_path / "m.bcnn"
    )
    return tmp_path / "m.bcnn"


def test_a_file_that_rejects_is_read_back_as_one(model):
    program = packfile.read(model)
    assert program.rejects is True
    assert card.classes(program) == Engine(program).classes == ("cat", "dog")
    assert program.labels[-1] == "none of these"


def test_a_file_that_does_not_reject_has_no_such_key(model, tmp_path):
    packfile.save(samples.every_op(), tmp_path / "plain.bcnn")
    _, program, _ = tampered_files.parts((tmp_path / "plain.bcnn").read_bytes())
    assert "rejects" not in program
    assert packfile.read(tmp_path / "plain.bcnn").rejects is False


@pytest.mark.parametrize("value", [1, "yes", None, [True]])
def test_anything_but_true_or_false_is_refused(model, value):
    header, program, data = tampered_files.parts(model.read_bytes())
    model.write_bytes(tampered_files.forged(header, {**program, "rejects": value}, data))
    with pytest.raises(UserError, match="rejects must be true or false"):
        packfile.read(model)


def test_none_of_no_classes_is_refused(model):
    header, program, data = tampered_files.parts(model.read_bytes())
    model.write_bytes(tampered_files.forged(header, {**program, "labels": []}, data))
    with pytest.raises(UserError, match="rejects is True with 0 labels"):
        packfile.read(model)


def test_a_map_of_labels_cannot_reject():
    with pytest.raises(UserError, match="rejects is True with 3 labels"):
        dataclasses.replace(samples.program(), labels=("a", "b", "c"), rejects=True)
