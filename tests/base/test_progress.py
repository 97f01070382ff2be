"""How long jobs say how far they are, and the one loop that measures."""

import numpy as np
import pytest

from bcnn.base.console import Console
from bcnn.base.progress import bars, sentences, silent
from bcnn.base.scores import evaluate

LOGITS = np.array([[0, 1, 2], [3, 1, 2], [0, 5, 2], [0, 0, 0]], np.float32)
LABELS = np.array([2, 0, 0, 0])


def batches(order, size):
    for first in range(0, len(order), size):
        index = np.asarray(order[first : first + size])
        yield index.astype(np.uint8).reshape(-1, 1, 1, 1), index


def answer(pixels):
    return LOGITS[pixels[:, 0, 0, 0]]


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_scores_depend_neither_on_batches_nor_on_the_order(size, order):
    scores = evaluate(answer, batches(order, size), LABELS, 3)
    assert scores.confusion.tolist() == [[2, 1, 0], [0, 0, 0], [0, 0, 1]]  # a tie goes to the lowest class
    assert scores.top1 == 0.75
    assert scores.loss == pytest.approx(evaluate(answer, batches([0, 1, 2, 3], 4), LABELS, 3).loss)


def test_images_that_could_not_be_read_are_not_counted():
    assert evaluate(answer, batches([0, 2], 1), LABELS, 3).count == 2


def test_maps_of_one_pixel_are_logits_too():
    scores = evaluate(lambda pixels: answer(pixels).reshape(-1, 1, 1, 3), batches([0, 1], 2), LABELS, 3)
    assert scores.top1 == 1


def test_every_batch_is_shown_and_looked_at():
    shown, seen = [], []
    evaluate(answer, batches([3, 1, 0], 2), LABELS, 3, lambda *how: shown.append(how), "measuring",
             lambda *batch: seen.append(batch))  # fmt: skip
    assert shown == [("measuring", 2, 4), ("measuring", 1, 4)]
    assert [index.tolist() for index, _, _ in seen] == [[3, 1], [0]]
    assert [y.tolist() for _, _, y in seen] == [[0, 0], [2]]
    assert np.array_equal(seen[0][1], LOGITS[[3, 1]])


def test_progress_as_sentences_adds_up_by_what_is_done():
    said = []
    progress = sentences(said.append)
    progress("reading", 900, 2000)
    progress("looking", 0, 0)
    progress("reading", 100, 2000)
    assert said == ["reading: 900 of 2,000 images", "looking", "reading: 1,000 of 2,000 images"]


def test_bars_and_silence_leave_nothing_behind(capsys):
    with bars(Console(stderr=True)) as progress:
        progress("a [b]", 1, 2)
    silent("a", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal_shows_what_is_done(capsys):
    with bars(Console(stderr=True, force_terminal=True, width=80)) as progress:
        progress("measuring [x]", 1, 2)
        progress("measuring [x]", 1, 2)
    assert "measuring [x]" in capsys.readouterr().err
