from itertools import pairwise

import pytest

from bcnn.base.errors import UserError
from bcnn.training import recipes
from bcnn.training.schedule import boundaries, learning_rate, temperature


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_every_recipe_is_complete_and_documented(name):
    config = recipes.recipe(name)
    assert config.recipe == name
    assert recipes.RECIPES[name].__doc__
    assert config.steps[0].weights == "real"
    assert config.steps[-1].weights == "binary"
    assert config.steps[-1].weight_decay == 0


def test_imagenet_is_the_papers_recipe():
    config = recipes.imagenet()
    assert (config.batch, config.part) == (128, 32)
    assert config.data.augment.flip
    assert [(s.name, s.weights, s.warmup, s.epochs, s.lr, s.weight_decay) for s in config.steps] == [
        ("step1", "real", 5, 20, 5e-4, 1e-5),
        ("step2", "binary", 5, 100, 5e-4, 0.0),
        ("step2-cycle2", "binary", 5, 100, 2.5e-4, 0.0),
    ]
    assert {(s.lr_first, s.lr_last, s.teacher, s.clip) for s in config.steps} == {
        (0.01, 0.001, "torchvision:resnet34", False)
    }
    assert recipes.imagenet_p2().network.branches == 2
    assert recipes.imagenet_p2().steps == config.steps


def test_imagenet_learning_rate_at_epoch_boundaries():
    step1, step2, cycle2 = (dict(boundaries(step)) for step in recipes.imagenet().steps)
    assert len(step1) == 26
    assert len(step2) == len(cycle2) == 106
    # Warm-up: 0.01 x 5e-4, then equal steps of 0.99 x 5e-4 / 5.
    assert [step1[e] for e in range(6)] == pytest.approx([5e-6, 1.04e-4, 2.03e-4, 3.02e-4, 4.01e-4, 5e-4], rel=1e-12)
    # Half wave: half way through, the mean of 1 and 0.001; at the end, 0.001.
    assert step1[15] == pytest.approx(5e-4 * 0.5005, rel=1e-12)
    assert step1[25] == pytest.approx(5e-7, rel=1e-12)
    assert step2[55] == pytest.approx(5e-4 * 0.5005, rel=1e-12)
    assert step2[105] == pytest.approx(5e-7, rel=1e-12)
    assert (cycle2[0], cycle2[5], cycle2[105]) == pytest.approx((2.5e-6, 2.5e-4, 2.5e-7), rel=1e-12)


def test_learning_rate_rises_then_falls_without_jumps():
    step = recipes.imagenet().steps[0]
    rates = [learning_rate(step, t / 100) for t in range(2501)]
    peak = rates.index(max(rates))
    assert peak == 500
    assert all(a < b for a, b in pairwise(rates[:501]))
    assert all(a > b for a, b in pairwise(rates[500:]))
    assert max(abs(a - b) for a, b in pairwise(rates)) < 1.1e-6


def test_temperature_grows_geometrically_over_the_step():
    step = recipes.imagenet().steps[0]
    assert temperature(step, 0) == 1.0
    assert temperature(step, 12.5) == pytest.approx(20**0.5)
    assert temperature(step, 25) == pytest.approx(20.0)


def test_unknown_recipe_suggests_the_nearest():
    with pytest.raises(UserError, match="did you mean 'imagenette'"):
        recipes.recipe("imagenete")
