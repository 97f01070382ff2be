import os

import numpy as np
import pytest
from PIL import Image

from bcnn.data import sources
from bcnn.errors import UserError


def photo(path, size=(12, 10), value=100, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode in ("L", "I;16") else (value,) * len(mode)).save(path)


@pytest.fixture
def folder(tmp_path):
    for split, count in (("train", 5), ("val", 2)):
        for name in ("cat", "ant"):
            for i in range(count):
                photo(tmp_path / split / name / f"{i}.png")
    return tmp_path


def test_classes_are_folder_names_in_sorted_order(folder):
    found = sources.find(str(folder))
    assert found.classes == ("ant", "cat")
    assert (len(found.train), len(found.val)) == (10, 4)
    assert found.train.labels.tolist() == [0] * 5 + [1] * 5
    assert found.notes == ()


def test_a_test_folder_stands_in_for_val(folder):
    (folder / "val").rename(folder / "test")
    assert len(sources.find(str(folder)).val) == 4
    assert len(sources.find(str(folder), split="test").val) == 4
    with pytest.raises(UserError, match="no split 'val'"):
        sources.find(str(folder), split="val")


def test_missing_val_is_split_off_by_name_and_stays_when_images_are_added(tmp_path):
    for name in ("ant", "cat"):
        for i in range(10):
            photo(tmp_path / name / f"{i}.png")
    first = sources.find(str(tmp_path))
    assert (len(first.train), len(first.val)) == (16, 4)
    assert "split off" in first.notes[0]
    assert {p.name for p in first.train.items}.union(p.name for p in first.val.items) == {f"{i}.png" for i in range(10)}
    again = sources.find(str(tmp_path))
    assert list(again.val.items) == list(first.val.items)
    photo(tmp_path / "ant" / "new.png")
    more = sources.find(str(tmp_path))
    assert len(set(first.val.items) - set(more.val.items)) <= 1  # the new one can push out one, never reshuffle


def test_train_and_val_never_share_an_image():
    found = sources.find("digits", hold_out=0.25)
    seen = {image.tobytes() for image in found.train.items}
    assert len(found.train) + len(found.val) == 1438
    assert sum(image.tobytes() in seen for image in found.val.items) == 0


def test_empty_class_is_left_out_with_a_note_or_stops_a_strict_run(folder):
    (folder / "train" / "bee").mkdir()
    found = sources.find(str(folder))
    assert found.classes == ("ant", "cat")
    assert "'bee'" in found.notes[0]
    with pytest.raises(UserError, match="'bee'"):
        sources.find(str(folder), strict=True)


def test_class_missing_from_val_is_noted(folder):
    for file in (folder / "val" / "cat").iterdir():
        file.unlink()
    found = sources.find(str(folder))
    assert "'cat' has no image" in found.notes[0]
    assert found.val.labels.tolist() == [0, 0]


def test_class_that_only_val_has_is_an_error(folder):
    photo(folder / "val" / "dog" / "0.png")
    with pytest.raises(UserError, match="'dog'"):
        sources.find(str(folder))


def test_one_image_per_class_is_measured_on_itself(tmp_path):
    for name in ("ant", "cat"):
        photo(tmp_path / name / "0.png")
    found = sources.find(str(tmp_path))
    assert (len(found.train), len(found.val)) == (2, 2)
    assert "training images themselves" in found.notes[-1]


def test_folder_with_one_image_cannot_be_a_classifier(tmp_path):
    photo(tmp_path / "cat" / "0.png")
    with pytest.raises(UserError, match="needs two"):
        sources.find(str(tmp_path))


@pytest.mark.parametrize("name", ["", "no/such/folder"])
def test_data_that_is_not_there_says_what_to_give(name):
    with pytest.raises(UserError, match="digits"):
        sources.find(name)


def test_folder_without_classes_is_an_error(tmp_path):
    with pytest.raises(UserError, match="no class folders"):
        sources.find(str(tmp_path))


def test_digits_are_rgb_bytes_of_ten_classes():
    found = sources.find("digits")
    assert found.train.items.shape == (1438, 8, 8, 3)
    assert found.train.items.dtype == np.uint8
    assert found.train.items.max() == 255
    assert sorted(set(found.val.labels.tolist())) == list(range(10))


def test_a_folder_with_evaluation_images_alone_is_not_read_as_a_class(tmp_path):
    for split in ("val", "test"):
        photo(tmp_path / split / "ant" / "0.png")
    with pytest.raises(UserError, match=r"has no training images: expected .*train/CLASS/\*.jpg beside test/val"):
        sources.find(str(tmp_path))


def test_evaluation_images_alone_are_enough_to_evaluate(tmp_path):
    for split, count in (("val", 2), ("test", 1)):
        for name in ("ant", "bee"):
            for i in range(count):
                photo(tmp_path / split / name / f"{i}.png")
    found = sources.find(str(tmp_path), training=False)
    assert (found.classes, len(found.val)) == (("ant", "bee"), 4)
    assert len(sources.find(str(tmp_path), split="test", training=False).val) == 2
    with pytest.raises(UserError, match="other has no class folders"):
        sources.find(str(tmp_path), split="other", training=False)


def test_files_whose_names_are_no_text_are_images_like_others(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for file in (b"a.png", b"\xff.png", b"c.png"):
            Image.new("RGB", (4, 4)).save(os.path.join(os.fsencode(tmp_path / name), file), "PNG")
    found = sources.find(str(tmp_path))
    assert len(found.train) + len(found.val) == 6
