"""Networks with the tricks people use: each is right or refused with a sentence, none is wrong and none gives a traceback."""

import copy
import re

import numpy as np
import pytest
import torch
from capture_corpus import CORPUS

from bcnn.base.errors import UserError
from bcnn.engine import Engine
from bcnn.lowering.check import check_images
from bcnn.lowering.lower import lower, normalised

torch.set_num_threads(1)
SIZE, MEAN, STD = (12, 10), (0.5, 0.4, 0.6), (0.25, 0.3, 0.2)
OFF = 2e-3  # of the largest logit
SHORT = ("signs", "counters")  # kinds of which some run always; the whole runs with `-m corpus`


def images():
    made = list(check_images(SIZE).values())
    rng = np.random.default_rng(11)
    for contrast in range(1, 13):
        made.append(
            (rng.integers(0, 256, (*SIZE, 3)) * contrast // 12 + 10 * rng.integers(0, 2)).clip(0, 255).astype(np.uint8)
        )
    return np.stack(made)


def verdict(make):
    """`right`, `wrong`, or the sentence of the refusal."""
    torch.manual_seed(0)
    network = make().eval()
    before = copy.deepcopy(network.state_dict())
    try:
        program = lower(network, MEAN, STD, size=SIZE, check=True)
    except UserError as error:
        return str(error)
    finally:
        assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
        assert not network.training
    given = images()
    with torch.no_grad():
        wanted = (
            torch.cat([network(normalised(image[None], MEAN, STD)) for image in given]).numpy().reshape(len(given), -1)
        )
    made = Engine(program).run(given).reshape(len(given), -1)
    if np.allclose(wanted.sum(1), 1):  # a softmax at the end is left out
        made = np.exp(made) / np.exp(made).sum(1, keepdims=True)
    off = np.abs(made - wanted).max(1) > OFF * np.abs(wanted).max(1)
    return "right" if off.sum() < 2 else "wrong"


ALL = [(kind, name) for kind, cases in CORPUS.items() for name in cases]
ALWAYS = [(kind, name) for kind in SHORT for name in list(CORPUS[kind])[:6]]


def check_case(kind, name):
    found = verdict(CORPUS[kind][name])
    assert found != "wrong"
    if found != "right":
        assert found.startswith("cannot ")
        assert re.search(r"line \d+ of \w+\.py", found), found


@pytest.mark.parametrize(("kind", "name"), ALWAYS)
def test_a_trick_is_lowered_right_or_refused_with_its_line(kind, name):
    check_case(kind, name)


@pytest.mark.corpus
@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_trick_of_the_corpus_is_lowered_right_or_refused(kind, name):
    check_case(kind, name)


@pytest.mark.parametrize("name", ["branch", "item", "noise", "counter", "average of images"])
def test_what_differs_from_pass_to_pass_is_never_lowered(name):
    assert verdict(CORPUS["counters"][name]).startswith("cannot record")
