import json

import pytest

from bcnn.base.errors import UserError
from bcnn.training import recipes
from bcnn.training.config import Step, TrainConfig
from bcnn.training.settings import from_dict, override, to_dict


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_config_survives_json(name):
    config = recipes.recipe(name)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_any_field_can_be_set():
    config = override(
        recipes.digits(),
        [
            "batch=32",
            "steps.step2.lr=1e-3",
            "steps.0.clip=true",
            "steps.*.warmup=3",
            "data.augment.scale=[0.5, 1]",
            "data.source=2024",
            "network.branches=2",
            "network.image_size=16",
        ],
    )
    assert config.batch == 32
    assert [s.lr for s in config.steps] == [recipes.digits().steps[0].lr, 1e-3]
    assert [s.clip for s in config.steps] == [True, False]
    assert [s.warmup for s in config.steps] == [3, 3]
    assert config.data.augment.scale == (0.5, 1.0)
    assert config.data.source == "2024"
    assert (config.network.branches, config.network.image_size) == (2, (16, 16))


def test_a_preset_name_stands_for_a_whole_network():
    assert override(recipes.digits(), ["network=cifar10"]).network.image_size == (32, 32)


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ("batch", "expected key=value"),
        ("bach=3", "did you mean 'batch'"),
        ("batch=many", "batch must be a whole number"),
        ("steps.*.lr=NaN", "steps.0.lr must be a number, got 'NaN'"),
        ("steps.*.lr=Infinity", "steps.0.lr must be a number, got 'Infinity'"),
        ("batch=1.5", "batch must be a whole number"),
        ("batch=true", "batch must be a whole number"),
        ("steps.0.lr=fast", "steps.0.lr must be a number"),
        ("steps.0.clip=1", "steps.0.clip must be true or false"),
        ("steps.0.weights=ternary", "must be one of real, binary, scaled, tanh"),
        ("steps.step9.lr=1", "no item 'step9'; did you mean"),
        ("steps.7.lr=1", "no item '7'"),
        ("steps=[]", "at least one step"),
        ("data.augment.scale=[1]", "must be a list of 2"),
        ("data.augment.scale=0.5", "must be a list"),
        ("network.branches=0", "branches"),
        ("network.brances=2", "did you mean 'branches'"),
        ("network=nothing", "unknown network"),
        ("seed.more=1", "nothing below"),
        ("seed=9223372036854775808", "seed from 0 to below 2^63".replace("^", r"\^")),
        ("threads=1025", "threads from 0 to 1024"),
        ("data.workers=1025", "data.workers must be from 0 to 1024"),
        ("data.stored=17", "data.stored must be from 1 to 16"),
        ("data.crop=0.049", "data.crop must be from 0.05 to 1"),  # a smaller one could not be packed
        ("steps.0.lr=1e999", "steps.0.lr must be a finite number, got inf"),
    ],
)
def test_wrong_setting_is_explained(assignment, sentence):
    with pytest.raises(UserError, match=sentence.replace("(", r"\(")):
        override(recipes.digits(), [assignment])


@pytest.mark.parametrize(
    "change",
    [{"name": "a/b"}, {"name": "last"}, {"name": "best"}, {"name": "x" * 65}, {"warmup": 0, "epochs": 0}, {"lr": 0.0}, {"weight_decay": -1.0}, {"matching": 1.0},
     {"temperature": (2.0, 1.0)}],
)  # fmt: skip
def test_step_out_of_range_is_refused(change):
    with pytest.raises(UserError, match="step"):
        Step(**change)


def test_numbers_of_a_config_that_are_none_are_refused():
    plain = to_dict(recipes.digits())
    plain["steps"][0]["lr"] = float("nan")  # as json.loads reads it from run.json
    with pytest.raises(UserError, match=r"steps\.0\.lr must be a finite number, got nan"):
        from_dict(plain)


def test_steps_need_names_of_their_own_and_teachers_before_them():
    base = recipes.digits()
    with pytest.raises(UserError, match="same name"):
        TrainConfig("x", base.network, base.data, (Step(), Step()))
    with pytest.raises(UserError, match="not a step before it"):
        TrainConfig("x", base.network, base.data, (Step(teacher="step2"), Step(name="step2")))
