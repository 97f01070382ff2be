import pickle

import numpy as np
import pytest

from bcnn.base.errors import UserError
from bcnn.data import cifar, sources


def write_cifar10(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name in [*cifar.TRAIN["cifar-10"], "test_batch"]:
        data = rng.integers(0, 256, (4, 3072), dtype=np.uint8)
        (folder / name).write_bytes(pickle.dumps({b"data": data, b"labels": [0, 1, 2, 9]}, protocol=2))
    names = [f"class{i}".encode() for i in range(10)]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
    return folder


def test_cifar10_batches_become_pixels_and_names(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-py")
    found = sources.find(str(tmp_path))  # the folder that holds the batches' folder
    assert found.train.items.shape == (20, 32, 32, 3)
    assert len(found.val) == 4
    assert found.classes[9] == "class9"
    raw = pickle.loads((tmp_path / "cifar-10-batches-py" / "data_batch_1").read_bytes(), encoding="bytes")
    assert found.train.items[1, 2, 3].tolist() == [int(raw[b"data"][1, c * 1024 + 2 * 32 + 3]) for c in range(3)]


def test_the_batches_have_a_split_called_test_and_no_other(tmp_path):
    folder = str(write_cifar10(tmp_path))
    asked, usual = sources.find(folder, split="test"), sources.find(folder)
    assert np.array_equal(asked.val.items, usual.val.items)
    with pytest.raises(UserError, match="has no split 'val'"):
        sources.find(folder, split="val")


def test_cifar100_uses_fine_labels(tmp_path):
    data = np.zeros((2, 3072), np.uint8)
    for name in ("train", "test"):
        batch = {b"data": data, b"fine_labels": [99, 0], b"coarse_labels": [1, 2]}
        (tmp_path / name).write_bytes(pickle.dumps(batch))
    found = sources.find(str(tmp_path))
    assert len(found.classes) == 100
    assert found.train.labels.tolist() == [99, 0]


class Evil:
    def __reduce__(self):
        return print, ("this must never run",)


def test_pickle_that_would_run_code_is_refused(tmp_path, capsys):
    write_cifar10(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(UserError, match="print"):
        sources.find(str(tmp_path))
    assert "never run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [b"", b"not a pickle", pickle.dumps([1]), pickle.dumps({b"data": np.zeros((2, 5), np.uint8), b"labels": [0, 0]}),
     pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]})],
)  # fmt: skip
def test_damaged_batch_is_named(tmp_path, content):
    write_cifar10(tmp_path)
    (tmp_path / "data_batch_2").write_bytes(content)
    with pytest.raises(UserError, match="data_batch_2 is not a CIFAR batch"):
        sources.find(str(tmp_path))


def test_label_out_of_range_is_an_error(tmp_path):
    write_cifar10(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}))
    with pytest.raises(UserError, match="outside 0 to 9"):
        sources.find(str(tmp_path))
