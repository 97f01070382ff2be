"""Whoever normalises a byte gets the same float32: training, lowering, the benchmark in torch and the program."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcnn.base.affine import IMAGENET_MEAN, IMAGENET_STD, mean_std, normalise, scale_offset
from bcnn.base.errors import UserError
from bcnn.bench.pytorch import _FromBytes
from bcnn.data.config import DataConfig
from bcnn.lowering.lower import normalised
from bcnn.program.ops import Input
from bcnn.training.batches import Data, Split

SETTINGS = [
    (IMAGENET_MEAN, IMAGENET_STD),
    ((0.5, 0.5, 0.5), (0.25, 0.3, 0.35)),
    ((0.0, 1.0, 1 / 3), (1.0, 1 / 255, 1e-3)),
    ((0.4914, -0.1, 7.3), (0.247, 12.5, 3.0)),
]
BYTES = np.stack([np.arange(256), np.arange(256)[::-1], np.roll(np.arange(256), 77)], -1).astype(np.uint8)
threes = st.tuples(*[st.floats(-4, 4, width=64)] * 3)
deviations = st.tuples(*[st.floats(1e-3, 64, width=64)] * 3)


@pytest.mark.parametrize(("mean", "std"), SETTINGS)
def test_every_path_from_byte_to_network_gives_the_same_bits(mean, std):
    images = BYTES.reshape(1, 16, 16, 3)
    program = Input(16, 16, *scale_offset(mean, std)).run([images[0]])
    assert (normalise(images, mean, std)[0] == program).all()
    assert (normalised(images, mean, std)[0].permute(1, 2, 0).numpy() == program).all()
    none = Split(None, (), np.empty(0, np.int64))
    data = Data(DataConfig(source="digits"), (16, 16), ("a",), none, none, mean, std, ())
    assert (data.normalise(torch.from_numpy(images))[0].permute(1, 2, 0).numpy() == program).all()


def test_the_benchmark_in_torch_reads_the_same_bits():
    images = BYTES.reshape(1, 16, 16, 3)
    program = Input(16, 16, *scale_offset(IMAGENET_MEAN, IMAGENET_STD)).run([images[0]])
    for layout in (torch.contiguous_format, torch.channels_last):
        read = _FromBytes(torch.nn.Identity(), layout)(torch.from_numpy(images))
        assert (read[0].permute(1, 2, 0).numpy() == program).all()


@given(threes, deviations)
def test_scale_and_offset_are_rounded_once(mean, std):
    scale, offset = scale_offset(mean, std)
    assert scale.dtype == offset.dtype == np.float32
    for m, s, made, added in zip(mean, std, scale, offset, strict=True):
        assert made == np.float32(1 / (255 * s))
        assert added == np.float32(-m / s)


@given(threes, deviations)
def test_mean_and_std_of_a_scale_and_offset_give_them_again(mean, std):
    scale, offset = scale_offset(mean, std)
    again, shifted = scale_offset(*mean_std(scale, offset))
    assert (again == scale).all()
    assert (shifted == offset).all()


@pytest.mark.parametrize(
    ("mean", "std"),
    [((0.5,) * 2, (0.5,) * 3), ((0.5,) * 3, (0.5, 0.5, 0.0)), ((0.5, 0.5, float("nan")), (0.5,) * 3), ("abc", "def")],
)
def test_other_values_are_refused(mean, std):
    with pytest.raises(UserError, match="three finite numbers each and std above 0"):
        scale_offset(mean, std)
