"""What `bcnn learn` is made of: features, the fit, none of these, what a file remembers."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import photos
import pytest
import samples

from bcnn.base.errors import UserError
from bcnn.data import sources
from bcnn.engine import Engine, isas
from bcnn.integers.quantize import fixed
from bcnn.integers.synthetic_images import pictures
from bcnn.learning import choose, class_centroids, learn, rejection
from bcnn.learning.classifier_ops import Head, put_on, taken_off
from bcnn.learning.features import features, levels, limits
from bcnn.learning.fit import Decoder, Scale, fit, minimise
from bcnn.learning.photos import folder, folds, warnings
from bcnn.packed import card, packfile, shipped
from bcnn.program.interpret import interpret, interpret_maps

CIFAR = learn.Wishes("cifar10", (32, 32))
NUMBERS = ("int16", "float32")


def start(numbers, folder):
    """A start in either numbers: shipped models are in integers."""
    if numbers == "int16":
        return CIFAR
    packfile.save(samples.in_floats("cifar10"), folder / "float.bcnn")
    return dataclasses.replace(CIFAR, start=str(folder / "float.bcnn"))


def clouds(classes=3, count=30, features=5, seed=0):
    """Scaled features of classes that overlap a little."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), count)
    x = rng.normal(0, 1, (len(y), features)) + 2 * rng.normal(0, 1, (classes, features))[y]
    x = x.astype(np.float32)
    return Scale.of(x)(x), y


# --- features -------------------------------------------------------------------------------------------------------------


def test_features_are_mean_and_maximum_of_the_last_map_of_every_size():
    program = samples.in_floats("digits")
    reader, image = features(program, 8, 8), samples.image(8, 8)
    maps = interpret_maps(program, image)
    wanted = []
    for end in levels(program):
        wanted += [maps[end].mean(axis=(0, 1)), maps[end].max(axis=(0, 1))]
    assert [program.shapes[end][0] for end in levels(program)] == [8, 4, 2]
    assert np.allclose(
        Engine(reader).run(image[None])[0], np.concatenate(wanted), rtol=1e-5
    )  # means by another order of sums


def test_features_of_integers_are_those_of_their_maps_in_the_coarsest_levels_bits():
    program = packfile.read(shipped.find("digits"))
    reader, image = features(program, 8, 8), samples.image(8, 8)
    maps, bits = interpret_maps(program, image), [program.fractions[end] for end in levels(program)]
    assert len(set(bits)) > 1
    wanted = []
    for end in levels(program):
        unit = 2.0 ** program.fractions[end]
        wanted += [maps[end].mean(axis=(0, 1)) / unit, maps[end].max(axis=(0, 1)) / unit]
    got = Engine(reader).run(image[None])[0]
    assert np.array_equal(got, interpret(reader, image))
    assert np.abs(got - np.concatenate(wanted)).max() <= 2.0 ** -min(bits)  # rounded to the mean, and once more


@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_learned_file_has_the_features_of_what_it_was_learned_from(numbers):
    start = samples.in_floats("digits") if numbers == "float32" else packfile.read(shipped.find("digits"))
    reader = features(start, 16, 16)
    d = reader.shapes[-1][2]
    head = Head(Scale(np.ones(d, np.float32), np.zeros(d, np.float32)), Decoder.zero(d, 2), False)
    made = put_on(reader, head, ("a", "b"), {}, np.ones((1, d), np.float32))
    image = samples.image(16, 16)[None]
    assert np.array_equal(Engine(features(made, 16, 16)).run(image), Engine(reader).run(image))


def test_a_network_that_makes_a_map_cannot_be_learned_from():
    with pytest.raises(UserError, match="must have maps of more than one pixel, and end in classes"):
        levels(samples.program())


# --- fit ------------------------------------------------------------------------------------------------------------------


def test_the_gradient_is_zero_where_the_fit_ends():
    x, y = clouds()
    decoder = fit(x, y, 0.1, Decoder.zero(5, 3))
    shares = np.exp(decoder(x))
    shares /= shares.sum(axis=1, keepdims=True)
    gradient = x.T @ (shares - np.eye(3)[y]) / len(y) + 0.1 * decoder.weight
    assert np.abs(gradient).max() < 2e-3


def test_the_same_photos_give_the_same_decoder_wherever_the_fit_begins():
    x, y = clouds()
    one = fit(x, y, 0.1, Decoder.zero(5, 3))
    assert np.array_equal(one.weight, fit(x, y, 0.1, Decoder.zero(5, 3)).weight)
    other = fit(x, y, 0.1, Decoder(np.random.default_rng(1).normal(0, 1, (5, 3)), np.ones(3)))
    assert np.abs(one.weight - other.weight).max() < 0.02


def test_a_photo_of_twice_the_weight_counts_as_two():
    x, y = clouds()
    weights = np.where(np.arange(len(y)) % 3 == 0, 2.0, 1.0)
    twice = np.concatenate([np.arange(len(y)), np.flatnonzero(weights == 2)])
    one = fit(x, y, 0.1, Decoder.zero(5, 3), weights=weights)
    other = fit(x[twice], y[twice], 0.1, Decoder.zero(5, 3))
    assert np.abs(one.weight - other.weight).max() < 0.02


def test_a_strong_penalty_keeps_the_decoder_that_is_given():
    x, y = clouds()
    kept = fit(x, y, 0.1, Decoder.zero(5, 3))
    again = fit(x, (y + 1) % 3, 1e4, kept, kept)
    assert np.abs(again.weight - kept.weight).max() < 1e-3


def test_minimise_finds_the_bottom_of_a_long_valley():
    steep = np.array([1.0, 10.0, 1000.0])
    found = minimise(lambda at: (float(steep @ (at - 3) ** 2), 2 * steep * (at - 3)), np.zeros(3))
    assert np.allclose(found, 3, atol=1e-2)


def test_a_feature_that_never_changes_becomes_zero():
    x = np.array([[1, 5], [3, 5]], np.float32)
    assert Scale.of(x)(x).tolist() == [[-1, 0], [1, 0]]


# --- none of these --------------------------------------------------------------------------------------------------------


def test_the_share_of_known_photos_lost_to_none_is_the_one_asked_for():
    x, y = clouds(count=100)
    known = fit(x, y, 0.1, Decoder.zero(5, 3))
    decoder = rejection.from_known(known, rejection.threshold(known, x, lost=0.1))
    logits = np.concatenate([x, rejection.strangeness(x)], axis=1) @ decoder.weight + decoder.bias
    assert (logits.argmax(axis=1) == 3).mean() == pytest.approx(0.1, abs=0.01)


def test_what_lies_far_from_all_photos_is_none_of_these_however_sure_the_classes_are():
    x, y = clouds(count=100)
    known = fit(x, y, 0.1, Decoder.zero(5, 3))
    decoder = rejection.from_known(known, rejection.threshold(known, x))
    far = 20 * x
    logits = np.concatenate([far, rejection.strangeness(far)], axis=1) @ decoder.weight + decoder.bias
    assert (logits.argmax(axis=1) == 3).all()


# --- memory ---------------------------------------------------------------------------------------------------------------


def test_a_class_of_few_photos_is_remembered_as_it_is():
    x, _ = clouds(1, 2)
    kept = class_centroids.remember(x, np.zeros(2, np.int64), 1)
    assert kept.counts.sum() == 2
    stored = kept.x[0][kept.counts[0] > 0]
    assert np.abs(stored - x).max() <= class_centroids.STEP / 2


def test_memory_is_read_back_as_it_was_and_anything_else_counts_as_none():
    x, y = clouds()
    kept, program = class_centroids.remember(x, y, 3), samples.every_op()

    def stored(plain):
        return class_centroids.of(dataclasses.replace(program, provenance={class_centroids.KEY: plain}), 5)

    again = stored(kept.plain())
    assert np.array_equal(again.x, kept.x)
    assert np.array_equal(again.counts, kept.counts)
    plain = kept.plain()
    wrong = [None, [], {}, {**plain, "more": 1}, {**plain, "centres": "?"}, {**plain, "centres": plain["centres"][:-4]}]
    wrong += [
        {**plain, "counts": counts} for counts in ([], [[1, 2]], [[0] * 4] * 3, [[-1, 1, 1, 1]] * 3, [["a"] * 4] * 3)
    ]
    assert [stored(damaged) for damaged in wrong] == [None] * len(wrong)


def test_an_added_class_is_found_and_the_others_are_kept():
    x, y = clouds(4, 60)
    old = y < 3
    decoder = fit(x[old], y[old], 0.3, Decoder.zero(5, 3))
    before = (decoder(x[old]).argmax(axis=1) == y[old]).mean()
    more = class_centroids.add(class_centroids.remember(x[old], y[old], 3), decoder, x[~old][:20])
    assert (more(x[~old][20:]).argmax(axis=1) == 3).mean() > 0.6
    assert (more(x[old]).argmax(axis=1) == y[old]).mean() > before - 0.15


# --- photos to file -------------------------------------------------------------------------------------------------------


def test_a_fifth_of_every_class_is_in_each_fold_and_an_added_photo_keeps_most_of_them(tmp_path):
    found = sources.find(str(photos.folder(tmp_path, count=25))).train
    fold = folds(found)
    for label in range(3):
        assert np.bincount(fold[found.labels == label]).tolist() == [4] * 5


def test_learning_needs_a_few_photos_and_no_torch(tmp_path):
    photos.folder(tmp_path / "data")
    code = "import sys; from bcnn.data import sources; from bcnn.learning import learn\n"
    code += f"found = sources.find({str(tmp_path / 'data')!r})\n"
    code += "made = learn.learn(found, learn.Wishes('cifar10', (32, 32)), 'photos')\n"
    code += "assert made.scores.top1 > 0.9, made.scores.top1\n"
    code += "assert not {'torch', 'sklearn', 'matplotlib', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_two_runs_write_the_same_network_and_its_card_says_where_it_comes_from(tmp_path):
    found = sources.find(str(photos.folder(tmp_path / "data")))
    one, other = (learn.learn(found, CIFAR, "my photos").program for _ in range(2))
    for a, b in zip(one.ops, other.ops, strict=True):
        for x, y in zip(a.arrays(), b.arrays(), strict=True):
            assert np.array_equal(x, y)
    packfile.save(one, tmp_path / "m.bcnn")
    program = packfile.read(tmp_path / "m.bcnn")
    about = card.of(program)
    assert about.top1 == np.trace(np.array(about.confusion)) / about.images
    assert (about.data, about.folders, about.train_images, about.agreement) == (
        "my photos",
        ["blue", "green", "red"],
        30,
        None,
    )
    assert "cifar10.bcnn" in about.about
    assert program.provenance["learned"]["from"] == "cifar10.bcnn"
    assert str(tmp_path) not in str(program.provenance)


def test_the_size_is_chosen_among_those_that_the_network_can_read(tmp_path):
    found = sources.find(str(photos.folder(tmp_path)))
    made = learn.learn(found, learn.Wishes("cifar10"), "photos")
    assert [(size.height, size.width) for size in made.sizes] == [(32, 32), (64, 64)]
    assert made.program.shapes[0][:2] in [(32, 32), (64, 64)]


def test_a_larger_size_must_bring_a_point(tmp_path, monkeypatch):
    found = sources.find(str(photos.folder(tmp_path))).train
    program = packfile.read(shipped.find("digits"))
    for gain, wanted in ((0.009, 8), (0.011, 16)):
        shares = iter((0.8, 0.8 + gain))
        monkeypatch.setattr(choose, "penalty", lambda *_, shares=shares: (1.0, next(shares)))
        best, _ = choose.size(program, found, 3, learn.Unreadable(), lambda *_: None)
        assert best.height == wanted


@pytest.mark.parametrize("numbers", NUMBERS)
def test_other_photos_teach_none_of_these(tmp_path, numbers):
    found = sources.find(str(photos.folder(tmp_path / "data")))
    wishes = dataclasses.replace(start(numbers, tmp_path), others=str(photos.checks(tmp_path / "others")))
    made = learn.learn(found, wishes, "photos")
    assert made.others_refused == 1
    assert made.program.rejects
    engine = Engine(made.program)
    assert engine.classes == ("blue", "green", "red")
    assert engine.predict(tmp_path / "others" / "3.png")[0][0][0] == "none of these"
    assert engine.predict(tmp_path / "data" / "red" / "003.png")[0][0][0] == "red"


@pytest.mark.parametrize("parameters", ["int8", "int16"])
def test_what_is_learned_from_integers_is_in_integers_and_equals_its_definition(tmp_path, parameters):
    program = fixed(samples.in_floats("cifar10"), pictures(32, 32, 4), parameters).program
    packfile.save(program, tmp_path / "start.bcnn")
    found = sources.find(str(photos.folder(tmp_path / "data")))
    wishes = learn.Wishes(str(tmp_path / "start.bcnn"), (48, 40), none=True)  # at another size, with two classes less
    made = learn.learn(found, wishes, "photos")
    packfile.save(made.program, tmp_path / "m.bcnn")
    program = packfile.read(tmp_path / "m.bcnn")
    assert (program.numbers, program.shapes[0][:2], program.labels[-1]) == ("int16", (48, 40), "none of these")
    assert made.scores.top1 > 0.8
    assert {array.dtype for op in program.ops for array in op.arrays()} <= {np.dtype(t) for t in ("i2", "i4", "u4")}
    pixels = np.stack([samples.image(48, 40, seed) for seed in range(3)])
    wanted = np.stack([interpret(program, image) for image in pixels])
    for isa in isas():
        if isa.supported:
            assert np.array_equal(Engine(program, isa=isa.name).run(pixels), wanted)
    head, again = taken_off(program), made.program
    assert np.array_equal(head.decoder.weight[:-1, -1], np.zeros(len(head.decoder.weight) - 1))
    assert head.decoder.weight[-1, -1] == pytest.approx(rejection.GAIN, rel=0.01)
    assert again.rejects


def test_a_feature_of_integers_that_hardly_changes_is_left_out():
    reader = features(packfile.read(shipped.find("digits")), 8, 8)
    unit = 2.0 ** -reader.fractions[-1]
    x = np.zeros((50, 3), np.float32)
    x[0, 0], x[::2, 1] = unit, unit  # deviations of 0.14 and 0.5 units
    assert (Scale.of(x, *limits(reader)).scale > 0).tolist() == [False, True, False]
    assert (Scale.of(x).scale > 0).tolist() == [True, True, False]


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("kind", ["plain", "none", "others"])
def test_a_class_is_added_to_a_file_from_its_photos_alone(tmp_path, kind, numbers):
    found = sources.find(str(photos.folder(tmp_path / "data")))
    others = str(photos.checks(tmp_path / "others")) if kind == "others" else ""
    packfile.save(
        learn.learn(
            found, dataclasses.replace(start(numbers, tmp_path), none=kind == "none", others=others), "p"
        ).program,
        tmp_path / "m.bcnn",
    )
    new = folder(photos.folder(tmp_path / "new", ("white",), 10) / "white", 0)
    made = learn.add(str(tmp_path / "m.bcnn"), "white", new)
    tail = () if kind == "plain" else ("none of these",)
    assert made.program.labels == ("blue", "green", "red", "white", *tail)
    assert made.program.rejects == bool(tail)
    engine = Engine(made.program)
    for name in ("blue", "green", "red", "white"):
        said = [engine.predict(photos.drawn(name, seed))[0][0][0] for seed in range(100, 106)]
        assert said.count(name) >= 4, (name, said)
    packfile.save(made.program, tmp_path / "more.bcnn")
    again = learn.add(str(tmp_path / "more.bcnn"), "fifth", new)  # a file that was added to can be added to
    assert again.program.labels == ("blue", "green", "red", "white", "fifth", *tail)
    assert [row["class"] for row in again.program.provenance["learned"]["added"]] == ["white", "fifth"]


def test_a_file_without_memory_asks_for_its_photos(tmp_path):
    new = folder(photos.folder(tmp_path, ("white",), 4) / "white", 0)
    with pytest.raises(
        UserError, match=r"^digits remembers no photos .* bcnn learn PHOTOS --from digits --add mug=FOLDER$"
    ):
        learn.add("digits", "mug", new)


def test_a_head_that_is_not_ours_is_not_taken_off():
    assert taken_off(packfile.read(shipped.find("digits"))) is None
    assert taken_off(samples.every_op()) is None
    assert taken_off(samples.program()) is None


def test_tiny_classes_and_classes_without_held_out_photos_get_a_sentence(tmp_path):
    photos.folder(tmp_path, count=20)
    for file in sorted((tmp_path / "red").iterdir())[1:]:
        file.unlink()
    assert warnings(sources.find(str(tmp_path))) == [
        "class 'red' has 1 photo to learn from: take 10 or more, better 50",
        "class 'red' has no photo held out: nothing is known of how well it is recognised",
    ]


def test_the_start_is_the_best_model_that_is_there(monkeypatch):
    assert shipped.start() in shipped.names()
    monkeypatch.setattr(shipped, "names", lambda: ("cifar10", "digits", "imagenette"))
    assert shipped.start() == "imagenette"
    monkeypatch.setattr(shipped, "names", lambda: ("imagenette", "tinyimagenet"))
    assert shipped.start() == "tinyimagenet"


def test_a_photo_whose_name_is_no_text_has_its_fifth_like_any_other(tmp_path):
    names = [tmp_path / f"a{i}.png" for i in range(9)] + [tmp_path / os.fsdecode(b"caf\xe9.png")]
    assert sorted(folds(sources.Images(names, np.zeros(10, np.int64))).tolist()) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("name", ["no\xa0break", "line\nbreak", "byte\udcff"])
def test_a_class_that_could_not_be_packed_is_refused_before_photos_are_read(tmp_path, name):
    found = sources.find(str(photos.folder(tmp_path, ("blue", "red"), 3)))
    found = dataclasses.replace(found, classes=("blue", name))
    with pytest.raises(UserError, match=r"^class .* cannot be a label of a packed file: .*; rename its folder$"):
        learn.learn(found, CIFAR, "p", lambda doing, *_: pytest.fail(doing))
