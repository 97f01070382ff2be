from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from bcnn.base import images
from bcnn.base.errors import UserError
from bcnn.data.config import Augment, DataConfig
from bcnn.data.decode import Unreadable
from bcnn.training import augment
from bcnn.training.batches import open_data

PLAIN = Augment(scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=False)


@pytest.fixture
def folder(tmp_path):
    """Two classes of photos of several sizes and kinds; returns the folder."""
    rng = np.random.default_rng(1)
    for split, count in (("train", 6), ("val", 3)):
        for name in ("ant", "cat"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (20 + i, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / name / f"{i}.png")
    return tmp_path


def opened(folder, size=(16, 16), **changes):
    return open_data(DataConfig(source=str(folder), workers=0, **changes), size)


def test_evaluation_pixels_are_the_runtimes(folder):
    data = opened(folder, crop=0.875)
    path = folder / "val" / "cat" / "1.png"
    assert np.array_equal(data.val.pixels[4], images.fit(images.open_rgb(path), (16, 16), 0.875))


def test_statistics_make_zero_mean_and_unit_variance(folder):
    data = opened(folder)
    x = data.normalise(torch.from_numpy(data.train.pixels))
    assert x.mean((0, 2, 3)).abs().max() < 1e-5
    assert (x.std((0, 2, 3)) - 1).abs().max() < 1e-3


def test_constant_images_do_not_divide_by_zero(tmp_path):
    for name in ("ant", "cat"):
        (tmp_path / name).mkdir()
        for i in range(3):
            Image.new("RGB", (8, 8), (7, 7, 7)).save(tmp_path / name / f"{i}.png")
    data = opened(tmp_path, (8, 8))
    assert torch.isfinite(data.normalise(torch.from_numpy(data.train.pixels))).all()


@pytest.mark.parametrize(
    ("mode", "value"), [("L", 90), ("I;16", 90 * 256), ("RGBA", (90, 90, 90, 255)), ("LA", (90, 255))]
)
def test_grey_rgba_and_16_bit_images_become_rgb(folder, mode, value):
    Image.new(mode, (24, 24), value).save(folder / "val" / "ant" / "0.png")
    data = opened(folder)
    assert (data.val.pixels[0] == 90).all()


def test_unreadable_images_are_named_skipped_and_counted(folder, capsys):
    broken = folder / "train" / "ant" / "2.png"
    broken.write_bytes(broken.read_bytes()[:300])  # truncated
    (folder / "train" / "cat" / "0.png").write_bytes(b"no image at all")
    data = opened(folder)
    assert len(data.train) == 10
    assert data.train.labels.tolist() == [0] * 5 + [1] * 5
    assert data.unreadable.summary() == "2 unreadable images skipped"
    assert str(broken) in capsys.readouterr().err.replace("\n", "")
    with pytest.raises(UserError, match="strict-data"):
        opened(folder, strict=True)


def test_every_image_unreadable_is_an_error(folder):
    for path in (folder / "train").rglob("*.png"):
        path.write_bytes(b"x")
    with pytest.raises(UserError, match="none of the 12"):
        opened(folder)


def test_an_epoch_visits_every_image_once_in_an_order_of_its_own(folder):
    data = opened(folder)
    orders = [np.concatenate([b.index for b in data.train_batches(epoch, 4, seed=0)]) for epoch in (0, 1)]
    assert sorted(orders[0].tolist()) == sorted(orders[1].tolist()) == list(range(12))
    assert orders[0].tolist() != orders[1].tolist()


def test_incomplete_last_batch_is_left_out(folder):
    assert [len(b.y) for b in opened(folder).train_batches(0, 5, seed=0)] == [5, 5]


def test_skipping_batches_gives_the_rest_of_the_same_epoch(folder):
    data = opened(folder)
    every, rest = list(data.train_batches(3, 4, seed=7)), list(data.train_batches(3, 4, seed=7, skip=1))
    assert len(rest) == 2
    for a, b in zip(every[1:], rest, strict=True):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.y, b.y)


def test_processes_share_a_batch_without_changing_it(folder):
    data = opened(folder)
    whole = list(data.train_batches(1, 4, seed=0))
    shares = [list(data.train_batches(1, 4, seed=0, rank=rank, world=2)) for rank in (0, 1)]
    for i, batch in enumerate(whole):
        assert torch.equal(batch.x, torch.cat([shares[0][i].x, shares[1][i].x]))


def test_processes_together_evaluate_every_image_exactly_once(folder):
    data = opened(folder)
    seen = [i for rank in range(4) for batch in data.val_batches(2, rank, 4) for i in batch.index]
    assert sorted(seen) == list(range(6))


def test_no_augmentation_returns_the_image_itself(folder):
    data = opened(folder, augment=PLAIN)
    batch = next(data.train_batches(0, 12, seed=0))
    expected = data.normalise(torch.from_numpy(data.train.pixels[batch.index]))
    assert (batch.x - expected).abs().max() < 1e-5  # bilinear weights of 0 and 1, to rounding


def test_flip_and_shift_move_pixels_where_they_say():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    flipped = augment.cut(x, torch.tensor([[0.0, 0, 1, 1, 1]]), (4, 4))
    assert torch.allclose(flipped, x.flip(3), atol=1e-5)
    shifted = augment.cut(x, torch.tensor([[0.25, 0, 1, 1, 0]]), (4, 4))  # one row down: zeros come in at the bottom
    assert torch.allclose(shifted[0, 0, :3], x[0, 0, 1:], atol=1e-5)
    assert shifted[0, 0, 3].abs().max() < 1e-5


def test_boxes_stay_in_the_image_and_cover_the_asked_area():
    draws = augment.draw(Augment(), 2000, seed=0, epoch=0)
    boxes = augment.boxes(draws, 1.0)
    y, x, height, width, flip = boxes.T
    assert y.min() >= 0
    assert x.min() >= 0
    assert (y + height).max() <= 1 + 1e-6
    assert (x + width).max() <= 1 + 1e-6
    assert (height * width).min() > 0.05
    assert set(flip.tolist()) == {0.0, 1.0}
    assert np.array_equal(draws, augment.draw(Augment(), 2000, seed=0, epoch=0))
    assert not np.array_equal(draws, augment.draw(Augment(), 2000, seed=0, epoch=1))


def test_fixed_variants_come_back_every_k_epochs():
    settings = Augment(fixed=2)
    draws = [augment.draw(settings, 5, seed=0, epoch=epoch) for epoch in range(4)]
    assert np.array_equal(draws[0], draws[2])
    assert np.array_equal(draws[1], draws[3])
    assert not np.array_equal(draws[0], draws[1])


@pytest.mark.parametrize("workers", [0, 2])
def test_streaming_gives_the_same_images_in_the_same_order_as_memory(folder, workers):
    memory = opened(folder, augment=PLAIN)
    stream = open_data(replace(memory.config, memory_mb=0, workers=workers), (16, 16))
    assert stream.train.pixels is None
    for a, b in zip(memory.train_batches(0, 4, seed=0), stream.train_batches(0, 4, seed=0), strict=True):
        assert torch.equal(a.y, b.y)
        assert a.index.tolist() == b.index.tolist()
    for a, b in zip(memory.val_batches(4), stream.val_batches(4), strict=True):
        assert np.array_equal(a.index, b.index)
        assert torch.allclose(a.x * torch.tensor(memory.std).reshape(3, 1, 1) + torch.tensor(memory.mean).reshape(3, 1, 1),
                              b.x * torch.tensor(stream.std).reshape(3, 1, 1) + torch.tensor(stream.mean).reshape(3, 1, 1),
                              atol=1e-5)  # fmt: skip


def test_streaming_puts_the_next_image_in_place_of_an_unreadable_one(folder):
    for path in (folder / "train" / "ant" / "2.png", folder / "val" / "cat" / "0.png"):
        path.write_bytes(b"broken")
    data = opened(folder, memory_mb=0)
    batches = list(data.train_batches(0, 4, seed=0))
    assert [len(b.y) for b in batches] == [4, 4, 4]
    assert 2 not in np.concatenate([b.index for b in batches])
    assert sum(len(b.y) for b in data.val_batches(4)) == 5
    assert len(data.unreadable) == 2


def test_crops_have_the_asked_ratio_in_pixels_whatever_the_shape_of_the_image():
    settings = Augment(scale=(0.1, 0.2), ratio=(1.0, 1.0))
    for aspect in (0.5, 1.0, 2.0):
        _, _, height, width, _ = augment.boxes(augment.draw(settings, 100, seed=0, epoch=0), aspect).T
        assert np.allclose(width * aspect / height, 1, atol=1e-5)


def test_streaming_cuts_boxes_that_leave_the_image():
    image = Image.new("RGB", (10, 10), (200, 0, 0))
    box = np.array([0.5, 0.0, 1.0, 1.0, 0.0], np.float32)
    cut = augment.cut_image(image, box, (10, 10), outside=(1, 2, 3))
    assert (cut[:5] == (200, 0, 0)).all()
    assert (cut[5:] == (1, 2, 3)).all()


def test_strict_stops_at_the_first_unreadable_image():
    with pytest.raises(UserError, match="cannot read"):
        Unreadable(strict=True).add("a.png", "cannot read image a.png")


@pytest.mark.parametrize(
    "change", [{"scale": (0.0, 1.0)}, {"scale": (0.9, 0.5)}, {"ratio": (0.0, 1.0)}, {"shift": 1.0}, {"fixed": -1}]
)
def test_augmentation_out_of_range_is_refused(change):
    with pytest.raises(UserError, match="augment"):
        Augment(**change)


@pytest.mark.parametrize("change", [{"hold_out": 1.0}, {"crop": 0.0}, {"stored": 0.5}, {"workers": -1}])
def test_data_settings_out_of_range_are_refused(change):
    with pytest.raises(UserError, match=r"data\."):
        DataConfig(**change)


def test_a_much_smaller_cut_averages_instead_of_skipping_pixels():
    x = torch.zeros(1, 1, 8, 8)
    x[..., ::4] = 1  # a quarter of the columns: bilinear reading of every fourth pixel would see none or all of them
    whole = torch.tensor([[0.0, 0.0, 1.0, 1.0, 0.0]])
    assert torch.allclose(augment.cut(x, whole, (2, 2)), torch.full((1, 1, 2, 2), 0.25))
