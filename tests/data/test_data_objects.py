import io

import numpy as np
import pytest
from PIL import Image

from bcnn.base.errors import UserError
from bcnn.data import objects
from bcnn.data.config import DataConfig
from bcnn.training.batches import open_data


def pixels(value, height=12, width=10):
    return np.full((height, width, 3), value, np.uint8)


class TorchLike:
    """What torch.utils.data.Dataset is made of: len and [i]."""

    classes = ("dark", "light")

    def __len__(self):
        return 20

    def __getitem__(self, i):
        if i >= 20:
            raise IndexError
        return np.moveaxis(pixels(20 if i < 10 else 200), 2, 0) / 255, int(i >= 10)


class ClassLabel:
    names = ("dark", "light")


class HuggingFaceLike:
    """Items are dicts, [name] is a column, features tell what the columns are."""

    features = {"photo": type("Image", (), {})(), "kind": ClassLabel()}  # noqa: RUF012

    def __init__(self, count=20):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        if i == "kind":
            return [int(j >= self.count // 2) for j in range(self.count)]
        return {"photo": Image.fromarray(pixels(20 if i < self.count // 2 else 200)), "kind": int(i >= self.count // 2)}


IMAGES = np.stack([pixels(20)] * 10 + [pixels(200)] * 10)
NAMES = ["dark"] * 10 + ["light"] * 10


@pytest.mark.parametrize(
    "dataset",
    [
        (IMAGES, NAMES),
        (IMAGES[..., 0], NAMES),
        ([Image.fromarray(image) for image in IMAGES], NAMES),
        TorchLike(),
        HuggingFaceLike(),
    ],
    ids=["array", "grey array", "pictures", "torch", "hugging face"],
)
def test_whatever_holds_images_and_labels_becomes_the_same_data(dataset):
    source = objects.source_of(dataset)
    assert source.classes == ("dark", "light")
    assert (len(source.train), len(source.val)) == (16, 4)
    data = open_data(DataConfig(stored=1.0, crop=1.0), (8, 8), source)
    assert data.train.pixels.shape == (16, 8, 8, 3)
    assert (data.train.pixels[:, 0, 0, 0] > 100).tolist() == (data.train.labels == 1).tolist()
    assert data.val.pixels.shape == (4, 8, 8, 3)


def test_whole_number_labels_get_the_names_given():
    labels = [0] * 10 + [1] * 10
    assert objects.source_of((IMAGES, labels)).classes == ("0", "1")
    assert objects.source_of((IMAGES, labels), classes=("night", "day")).classes == ("night", "day")


def test_a_dict_of_splits_is_evaluated_on_its_validation_split_and_never_on_test():
    splits = {"train": HuggingFaceLike(20), "Validation": HuggingFaceLike(6), "test": HuggingFaceLike(8)}
    assert len(objects.source_of(splits).val) == 6
    del splits["Validation"]
    assert (len(objects.source_of(splits).train), len(objects.source_of(splits).val)) == (16, 4)


def test_validation_images_can_be_given():
    source = objects.source_of((IMAGES, NAMES), validation=(IMAGES[5:15], NAMES[5:15]))
    assert (len(source.train), len(source.val)) == (20, 10)


def test_images_that_were_not_decoded_are_read():
    buffer = io.BytesIO()
    Image.fromarray(pixels(7)).save(buffer, "PNG")
    assert np.asarray(objects.picture({"bytes": buffer.getvalue()})).tolist() == pixels(7).tolist()


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (3, "give a folder"),
        ((IMAGES, NAMES[:3]), "20 images and 3 labels"),
        ((IMAGES, ["a"] * 20), "needs two or more"),
        ([], "empty"),
        ([3, 4], r"must be \(image, label\)"),
        ({"test": TorchLike()}, "needs 'train'"),
        ((IMAGES, [0] * 19 + [-1]), "labels must be from 0"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(dataset, says):
    with pytest.raises(UserError, match=says):
        objects.source_of(dataset)


def test_normalised_floats_are_refused():
    with pytest.raises(UserError, match="before they are normalised"):
        objects.picture(np.full((4, 4, 3), -1.5))
