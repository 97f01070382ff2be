"""What fuzzers begin with is what it says: the whole files open, the wrong ones are one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import corpus
import pytest

from bcnn.base.errors import UserError
from bcnn.learning import class_centroids
from bcnn.learning.classifier_ops import taken_off
from bcnn.nets import config as configs
from bcnn.packed import card, container, packfile
from bcnn.training import checkpoint, settings

PACKED = corpus.packed()


@pytest.mark.parametrize("name", PACKED)
def test_packed_files_of_odd_programs_open_and_stay_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.bcnn"
    path.write_bytes(PACKED[name])
    program = packfile.read(path)
    packfile.save(program, tmp_path / "again.bcnn", test_seeds=())
    assert (tmp_path / "again.bcnn").read_bytes() == PACKED[name]


def test_the_corpus_has_the_odd_programs_and_what_learn_leaves() -> None:
    assert corpus.MAKERS.keys() == PACKED.keys()
    assert all(len(content) < 1 << 20 for content in PACKED.values())


def test_what_learn_leaves_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.bcnn"
    path.write_bytes(PACKED["learned"])
    program = packfile.read(path)
    assert card.of(program) is not None
    assert taken_off(program) is not None
    assert class_centroids.of(program, 7) is not None


@pytest.mark.parametrize(("name", "content"), corpus.containers().items())
def test_containers_open_or_are_one_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    if name in (*PACKED, "bytes", "floats"):
        container.read_container(path)
        return
    with pytest.raises(UserError):
        container.read_container(path)


def test_configs_and_checkpoints_open(tmp_path: Path) -> None:
    for name, content in corpus.networks().items():
        path = tmp_path / f"{name}.json"
        path.write_bytes(content)
        if name != "wrong":
            configs.read(path)
    with pytest.raises(UserError):
        configs.read(tmp_path / "wrong.json")
    for name, content in corpus.tables().items():
        (tmp_path / "a.toml").write_bytes(content)
        assert configs.read(tmp_path / "a.toml") == configs.preset(name)
    for content in corpus.checkpoints().values():
        (tmp_path / "a.safetensors").write_bytes(content)
        checkpoint.read(tmp_path / "a.safetensors")
    assert settings.from_dict(json.loads(corpus.settings()["tiny"]))
