"""Config: Table 1, the plan, the checks, the files."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcnn import Level, NetworkConfig, UserError, preset
from bcnn.nets import config as configs


def test_plan_of_imagenet_is_table_1() -> None:
    plan = preset("imagenet").plan()
    assert [(b.name, b.stride, b.channels_in, b.channels, b.height, b.width) for b in plan] == [
        ("stem.0", 1, 4, 32, 224, 224),
        ("level1.0", 2, 32, 64, 112, 112),
        ("level2.0", 2, 64, 128, 56, 56),
        ("level3.0", 2, 128, 256, 28, 28),
        ("level3.1", 1, 256, 256, 28, 28),
        ("level4.0", 2, 256, 512, 14, 14),
        *((f"level4.{i}", 1, 512, 512, 14, 14) for i in range(1, 6)),
        ("level5.0", 2, 512, 1024, 7, 7),
        ("level5.1", 1, 1024, 1024, 7, 7),
    ]
    assert [b.name for b in plan if b.normal] == ["level3.1", *(f"level4.{i}" for i in range(1, 6)), "level5.1"]
    assert preset("imagenet").channels_out == 1024
    assert preset("imagenet-p2") == preset("imagenet").replace(name="imagenet-p2", branches=2)


def test_the_stem_is_never_a_normal_block() -> None:
    stem = NetworkConfig(stem=Level(2, 1, 1)).plan()[:2]
    assert [b.normal for b in stem] == [False, True]


@pytest.mark.parametrize(
    ("channels", "replicate", "expected"),
    [(4, 8, 32), (4, 1.5, 6), (3, 1.5, 5), (5, 1.5, 8), (8, 0.5, 4), (3, 0.1, 1), (4, 1, 4), (1, 0.01, 1)],
)
def test_replicated_rounds_to_the_nearest_channel_count(channels: int, replicate: float, expected: int) -> None:
    assert configs.replicated(channels, replicate) == expected


def test_width_multiplies_the_channels_of_every_level() -> None:
    narrow = preset("imagenet").scaled(0.5)
    assert [b.channels for b in narrow.plan()] == [b.channels // 2 for b in preset("imagenet").plan()]
    assert narrow.name == "imagenet-x0.5"


def test_without_intensity_the_stem_reads_three_channels() -> None:
    assert preset("cifar10").replace(intensity=False).plan()[0].channels_in == 3


@pytest.mark.parametrize("name", configs.PRESETS)
def test_every_preset_round_trips_through_both_formats(name: str, tmp_path: Path) -> None:
    config = preset(name)
    assert config.name == name
    for suffix, text in ((".json", configs.to_json(config)), (".toml", configs.to_toml(config))):
        path = tmp_path / f"c{suffix}"
        path.write_text(text, encoding="utf-8")
        assert configs.resolve(str(path)) == config


level = st.builds(
    Level,
    blocks=st.integers(1, 4),
    stride=st.integers(1, 3),
    replicate=st.one_of(st.integers(1, 9), st.floats(0.01, 20)),  # five levels of 20 stay below LARGEST
    filter=st.sampled_from([1, 3, 5]),
)


@st.composite
def any_config(draw: st.DrawFn) -> NetworkConfig:
    stem, levels = draw(level), tuple(draw(st.lists(level, max_size=4)))
    stride = 1
    for row in (stem, *levels):
        stride *= row.stride
    return NetworkConfig(
        name=draw(st.text(max_size=12)),
        image_size=(stride * draw(st.integers(1, 9)), stride * draw(st.integers(1, 9))),
        classes=draw(st.integers(1, 2000)),
        branches=draw(st.integers(1, 4)),
        prelu=draw(st.sampled_from(["module", "block"])),
        intensity=draw(st.booleans()),
        stem=stem,
        levels=levels,
    )


@given(any_config())
def test_any_config_round_trips_through_json_and_toml(config: NetworkConfig) -> None:
    import json
    import tomllib

    assert configs.from_dict(configs.to_dict(config)) == config
    assert configs.from_dict(json.loads(configs.to_json(config))) == config
    assert configs.from_dict(tomllib.loads(configs.to_toml(config))) == config


@given(any_config())
def test_any_plan_is_a_chain_that_ends_at_the_size_over_all_strides(config: NetworkConfig) -> None:
    plan = config.plan()
    assert plan[0].channels_in == config.channels_in
    for before, after in itertools.pairwise(plan):
        assert (before.channels, before.height, before.width) == (after.channels_in, after.height_in, after.width_in)
        assert after.channels >= 1
    assert plan[-1].height >= 1
    assert plan[-1].width >= 1


def test_one_number_is_a_square_image_and_missing_keys_take_the_defaults() -> None:
    assert configs.from_dict({"image_size": 64}) == NetworkConfig(image_size=(64, 64))
    assert configs.from_dict({"stem": {"replicate": 4}}).stem == Level(1, 1, 4)
    assert configs.from_dict({"levels": [{}]}).levels == (Level(),)


BAD = [
    ({"branches": 0}, "branches (P) must be a whole number >= 1, got 0"),
    ({"branches": -1}, "branches (P) must be a whole number >= 1, got -1"),
    ({"branches": 1.5}, "branches (P) must be a whole number >= 1, got 1.5"),
    ({"branches": True}, "branches (P) must be a whole number >= 1, got True"),
    ({"classes": 0}, "classes must be a whole number >= 1, got 0"),
    ({"name": 3}, "name must be text, got 3"),
    ({"prelu": "relu"}, "prelu must be 'module' or 'block', got 'relu'"),
    ({"intensity": 1}, "intensity must be true or false, got 1"),
    ({"image_size": -32}, "image_size height must be a whole number >= 1, got -32"),
    ({"image_size": [32]}, "image_size must be one number or [height, width], got (32,)"),
    ({"image_size": "big"}, "image_size must be one number or [height, width], got 'big'"),
    (
        {"image_size": [224, 230]},
        "image_size width 230 is not a multiple of 32, the product of all strides (S); the nearest accepted: 224 or 256",
    ),
    (
        {"image_size": 31},
        "image_size height 31 is not a multiple of 32, the product of all strides (S); the nearest accepted: 32",
    ),
    ({"stem": {"replicate": 0}}, "stem: replicate (R) must be a number > 0, got 0"),
    ({"stem": {"replicate": -2}}, "stem: replicate (R) must be a number > 0, got -2"),
    ({"stem": {"replicate": float("nan")}}, "stem: replicate (R) must be a number > 0, got nan"),
    ({"stem": {"replicate": "8"}}, "stem: replicate (R) must be a number > 0, got '8'"),
    ({"stem": {"replicate": 1e300}}, "stem: replicate (R) makes more than 16777216 channels, got 1e+300"),
    ({"levels": [{"replicate": 2**30}]}, "level1: replicate (R) makes more than 16777216 channels, got 1073741824"),
    ({"levels": [{"blocks": 10**9}]}, "level1: blocks must be at most 1000, got 1000000000"),
    ({"classes": 2**25}, "classes must be at most 16777216, got 33554432"),
    ({"stem": 8}, "stem must be a table of keys and values, got 8"),
    ({"levels": [{}, {"stride": 0}]}, "level2: stride (S) must be a whole number >= 1, got 0"),
    ({"levels": [{"stride": -2}]}, "level1: stride (S) must be a whole number >= 1, got -2"),
    ({"levels": [{"blocks": 0}]}, "level1: blocks must be a whole number >= 1, got 0"),
    ({"levels": [{"filter": 2}]}, "level1: filter (F) must be odd, so that it has a centre, got 2"),
    ({"levels": 5}, "levels must be a list of levels, got 5"),
    (
        {"levels": [{"strid": 2}]},
        "level1: unknown key 'strid'; did you mean 'stride'? known: blocks, filter, replicate, stride",
    ),
    (
        {"branch": 2},
        "config: unknown key 'branch'; did you mean 'branches'? "
        "known: branches, classes, image_size, intensity, levels, name, prelu, stem",
    ),
    ([], "config must be a table of keys and values, got []"),
]


@pytest.mark.parametrize(("data", "sentence"), BAD, ids=[s[:50] for _, s in BAD])
def test_bad_config_gets_one_sentence(data: object, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        configs.from_dict(data)
    assert str(error.value) == sentence


def test_replace_rejects_unknown_fields() -> None:
    with pytest.raises(UserError, match="unknown key 'widht'"):
        preset("cifar10").replace(widht=2)


@pytest.mark.parametrize("width", [0, -1, float("nan"), float("inf")])
def test_impossible_width_names_the_width(width: float) -> None:
    with pytest.raises(UserError, match=r"^width must be a number > 0, got"):
        preset("cifar10").scaled(width)


def test_a_level_that_is_not_a_level_is_named() -> None:
    with pytest.raises(UserError, match="level1 must be a Level, got 3"):
        NetworkConfig(levels=(3,))  # type: ignore[arg-type]


def test_unknown_preset_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown preset 'imagenet-2'; did you mean 'imagenet-p2'\? known: cifar10"):
        configs.resolve("imagenet-2")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read config .*none\.toml: No such file"):
        configs.resolve(str(tmp_path / "none.toml"))
    for name, content in (("a.toml", b"= 1"), ("a.json", b"{"), ("b.json", b"\xff\xfe"), ("d.json", b"[" * 100_000)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=f"{name} is not valid {name[2:].upper()}: "):
            configs.resolve(str(tmp_path / name))
    (tmp_path / "c.json").write_text('{"classes": 0}')
    with pytest.raises(UserError, match=r"c\.json: classes must be"):
        configs.resolve(str(tmp_path / "c.json"))
    (tmp_path / "c.yaml").write_text("classes: 1")
    with pytest.raises(UserError, match=r"c\.yaml is no config file: its name must end in \.json or \.toml"):
        configs.resolve(str(tmp_path / "c.yaml"))


def test_configs_are_frozen_and_hashable() -> None:
    config = preset("digits")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.classes = 3  # type: ignore[misc]
    assert hash(config) == hash(preset("digits"))
