import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.data import sources, summary


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


def test_a_test_folder_is_not_looked_at_during_training_but_measured_on_afterwards(folder):
    (folder / "val").rename(folder / "test")
    found = sources.find(str(folder))
    assert all(path.parent.parent.name == "train" for path in found.val.items)
    assert found.unused == ("test",)
    assert "measure on it once, at the end" in found.notes[-1]
    assert len(sources.find(str(folder), training=False).val) == 4
    assert len(sources.find(str(folder), split="test").val) == 4
    with pytest.raises(UserError, match="no split 'val'"):
        sources.find(str(folder), split="val")


@pytest.mark.parametrize(
    ("train", "val"), [("Training", "VALID"), ("TRAIN", "Validation"), ("training", "Val"), ("train", "valid")]
)
def test_splits_are_known_by_any_of_their_names_in_any_case(folder, train, val):
    (folder / "train").rename(folder / "t")
    (folder / "t").rename(folder / train)
    (folder / "val").rename(folder / "v")
    (folder / "v").rename(folder / val)
    found = sources.find(str(folder))
    assert found.classes == ("ant", "cat")
    assert (len(found.train), len(found.val)) == (10, 4)
    assert found.evaluation == f"folder {val}"


def test_a_split_beside_class_folders_is_no_class(tmp_path):
    for name in ("ant", "cat", "Test/ant", "Test/cat"):
        for i in range(5):
            photo(tmp_path / name / f"{i}.png")
    found = sources.find(str(tmp_path))
    assert found.classes == ("ant", "cat")
    assert found.unused == ("Test",)
    assert len(found.train) + len(found.val) == 10


def test_two_folders_that_mean_the_same_split_are_an_error(folder):
    photo(folder / "Valid" / "ant" / "0.png")
    with pytest.raises(UserError, match="both mean val"):
        sources.find(str(folder))


def test_the_split_to_measure_on_can_be_chosen_for_training_too(folder):
    photo(folder / "TEST" / "ant" / "0.png")
    assert len(sources.find(str(folder), split="test").val) == 1
    assert sources.find(str(folder)).unused == ("TEST",)


def test_classes_are_told_with_images_of_each_side_and_what_looks_wrong(folder):
    for i in range(40):
        photo(folder / "train" / "ant" / f"more{i}.png")
    for file in (folder / "val" / "cat").iterdir():
        file.unlink()
    found = sources.find(str(folder))
    lines = summary.table(found)
    assert lines[0].split() == ["class", "training", "evaluation"]
    assert [line.split() for line in lines[1:3]] == [["ant", "45", "2"], ["cat", "5", "0"]]
    assert lines[-1] == "accuracy is measured on: folder val"
    assert "'cat' has no image" in found.notes[0]
    tiny, few = summary.warnings(found)
    assert tiny.startswith("fewer than 20 training images: 'cat' (5)")
    assert few.startswith("2 evaluation images are few")


def test_of_many_classes_the_first_and_the_smallest_are_told(tmp_path):
    for i in range(50):
        for j in range(1 if i == 49 else 3):
            photo(tmp_path / f"class{i:02}" / f"{j}.png")
    lines = summary.table(sources.find(str(tmp_path)))
    assert len(lines) < 25
    assert any(line.startswith("class49") for line in lines)


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
    with pytest.raises(UserError, match="no split 'other'"):
        sources.find(str(tmp_path), split="other", training=False)


def test_files_whose_names_are_no_text_are_images_like_others(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for file in (b"a.png", b"\xff.png", b"c.png"):
            Image.new("RGB", (4, 4)).save(os.path.join(os.fsencode(tmp_path / name), file), "PNG")
    found = sources.find(str(tmp_path))
    assert len(found.train) + len(found.val) == 6


def test_photos_in_a_phones_format_are_named_not_passed_over(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.HEIC").write_bytes(b"x")
    with pytest.raises(
        UserError, match=r"no image in them.*2 files such as .*one\.HEIC are not read \(\.heic\): convert"
    ):
        sources.find(str(tmp_path))
    for name in ("cat", "dog"):
        for i in range(3):
            Image.new("RGB", (8, 8)).save(tmp_path / name / f"{i}.png")
    assert any("2 files such as" in note for note in sources.find(str(tmp_path)).notes)


def test_a_share_of_the_images_is_of_every_class_on_both_sides(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(50):
            Image.new("RGB", (8, 8)).save(tmp_path / name / f"{i}.png")
    found = sources.find(str(tmp_path))
    some = sources.part(found, 0.5)
    assert np.bincount(some.train.labels).tolist() == [20, 20]
    assert np.bincount(some.val.labels).tolist() == [5, 5]
    assert set(some.train.items) <= set(found.train.items)
    assert "50% of the images" in some.notes[-1]


def test_a_folder_that_may_not_be_looked_into_is_not_an_empty_one(folder, monkeypatch):
    real = os.scandir

    def scandir(path="."):
        if os.fspath(path).endswith("cat"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for find in (sources.find, images.chosen):
        with pytest.raises(UserError, match=r"cannot look into folder .*cat: Permission denied$"):
            find(str(folder))


def test_an_image_that_is_too_large_does_not_end_the_look_at_headers(folder):
    from bcnn.training.plan import typical_side

    path = folder / "train" / "cat" / "0.png"
    raw = path.read_bytes()
    header = raw[12:16] + struct.pack(">II", 20_000, 20_000) + raw[24:29]
    path.write_bytes(raw[:12] + header + struct.pack(">I", zlib.crc32(header)) + raw[33:])
    assert typical_side(sources.find(str(folder))) == 10
