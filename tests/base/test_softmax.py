"""Probabilities of logits: one formula for predict, eval and the report."""

import numpy as np
import pytest

import bcnn
from bcnn.base.softmax import softmax


def test_two_equal_logits_share_evenly_whatever_their_size():
    assert (softmax(np.array([[0.0, 0.0], [1e30, 1e30], [-1e30, -1e30]], np.float32)) == 0.5).all()


def test_large_logits_do_not_overflow():
    assert softmax(np.array([[3e38, 0.0]], np.float32)).tolist() == [[1.0, 0.0]]


def test_it_is_computed_in_double_precision():
    logits = np.random.default_rng(0).normal(0, 8, (64, 10)).astype(np.float32)
    made = softmax(logits)
    assert made.dtype == np.float64
    assert made.sum(axis=1) == pytest.approx(1, abs=1e-15)
    for row, probabilities in zip(logits.astype(np.float64), made, strict=True):  # row by row gives the same bits
        assert (softmax(row) == probabilities).all()
        assert (np.diff(probabilities[np.argsort(row)]) >= 0).all()


def test_predict_shows_them_for_the_engines_logits():
    engine = bcnn.load("digits")
    images = np.random.default_rng(1).integers(0, 256, (5, 8, 8, 3), np.uint8)
    shown = [dict(answers) for answers in engine.predict(images, top=10)]
    assert shown == [dict(zip(engine.program.labels, row.tolist(), strict=True)) for row in softmax(engine(images))]
