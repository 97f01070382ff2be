"""Pages made from files are what their generator makes of those files now."""

from __future__ import annotations

import dataclasses
import json

import pytest
from paths import ROOT

from bcnn.packed import card, packfile, shipped

RESULT = ROOT / "benchmarks" / "results" / "models-zen5-avx2.json"


def test_docs_models_is_what_the_packed_files_say():
    from tools.pages import cards

    assert cards.PAGE.read_text(encoding="utf-8") == cards.page(), "run: python -m tools.pages.cards"
    for name in shipped.names():
        for picture in ("curves", "confusion"):
            assert (cards.IMAGES / f"model_{name}_{picture}.png").is_file(), "run: python -m tools.pages.cards"


def test_the_first_hour_is_what_was_recorded():
    from tools.pages import first_hour

    assert first_hour.PAGE.read_text(encoding="utf-8") == first_hour.made(), (
        "run: python -m tools.pages.first_hour --page"
    )


def test_the_reference_shows_the_table_of_verbs_and_kinds():
    from tools.pages import kinds

    page = kinds.PAGE.read_text(encoding="utf-8")
    assert page == kinds.put_into(page), "run: python -m tools.pages.kinds"


def test_the_front_table_is_what_the_stored_result_says():
    from benchmarks import models

    result = json.loads(RESULT.read_text(encoding="utf-8"))
    readme = models.README.read_text(encoding="utf-8")
    made = models.put_into(readme, models.table(result, RESULT.relative_to(ROOT).as_posix()))
    assert readme == made, f"run: python -m benchmarks.models --readme {RESULT.relative_to(ROOT)}"


def test_the_stored_result_is_of_the_models_in_the_package():
    rows = {row["network"]: row for row in json.loads(RESULT.read_text(encoding="utf-8"))["rows"]}
    for name in shipped.names():
        again = f"run: python -m benchmarks.models --out {RESULT.relative_to(ROOT)}"
        assert name in rows, again
        program = packfile.read(shipped.find(name))
        assert rows[name]["bytes"] == shipped.find(name).stat().st_size, again
        assert rows[name]["top1"] == card.of(program).top1, again


def test_a_stored_result_takes_accuracies_and_sizes_of_the_models_as_they_are_and_keeps_its_times():
    from benchmarks import models

    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert models.refreshed(result) == result, f"run: python -m benchmarks.models --readme {RESULT.relative_to(ROOT)}"
    old = {**result, "rows": [row for row in result["rows"] if row["network"] != "digits"]}
    old["rows"][0] = {**old["rows"][0], "bytes": 1, "top1": 0.5}
    made = models.refreshed(old)
    assert made["rows"][0] == result["rows"][0]
    digits = next(row for row in made["rows"] if row["network"] == "digits")
    assert digits["times"] == {}
    assert "| digits | - | - | - | - |" in models.table(made, "x.json")


def test_a_model_of_many_classes_lists_its_best_and_its_worst():
    from tools.pages import cards

    found = card.of(packfile.read(shipped.find("digits")))
    assert cards._listed(found) == list(range(10))
    confusion = [[0] * 40 for _ in range(40)]
    for i in range(40):
        confusion[i][i], confusion[i][0] = i, confusion[i][0] + 40 - i
    many = dataclasses.replace(found, confusion=confusion)
    assert cards._listed(many)[:2] == [0, 39]
    assert len(cards._listed(many)) == 20


def test_the_table_of_experiments_is_what_the_stored_results_say():
    from benchmarks import experiments

    records = json.loads((ROOT / experiments.RESULTS).read_text(encoding="utf-8"))
    page = (ROOT / experiments.PAGE).read_text(encoding="utf-8")
    assert page == experiments.put_into(page, experiments.table(records)), (
        "run: python -m benchmarks.experiments --table"
    )
    assert {record["name"] for record in records} == set(experiments.variants()), "a variant was never run"


def test_the_variants_of_an_experiment_differ_from_the_reference_in_one_respect():
    from benchmarks import experiments

    variants = experiments.variants()
    for name, variant in variants.items():
        reference = variants[variant.reference].run
        differences = (variant.run.network != reference.network) + (variant.run.steps != reference.steps)
        assert differences == (name != variant.reference)
        assert variant.run == dataclasses.replace(reference, network=variant.run.network, steps=variant.run.steps)
        assert experiments.binary_macs(variant.run) == pytest.approx(experiments.binary_macs(reference), rel=0.06)


def test_a_variant_is_compared_with_the_reference_over_the_seeds_that_both_have():
    from benchmarks import experiments

    assert experiments.gain({"0": 0.5, "1": 0.75}, {"0": 0.25, "1": 0.25, "2": 1.0}) == 0.375


def test_a_readme_without_markers_is_not_touched():
    from benchmarks import models

    with pytest.raises(SystemExit, match="lost its markers"):
        models.put_into("# no markers", "table")


def test_the_front_table_takes_the_faster_of_two_and_marks_the_paper_s_figure():
    from benchmarks import models

    times = {
        name: {"min": ms, "median": 2 * ms}
        for name, ms in zip((models.ENGINE, models.INTEGERS, *models.FLOAT), (2, 1, 30, 20), strict=True)
    }
    row = {
        "network": models.PAPER,
        "input": [224, 224],
        "top1": 0.6896,
        "of": "the paper",
        "bytes": 5_000_000,
        "binary_macs": 10**9,
    }
    row |= {"float_bytes": 40_000_000, "times": times, "skipped": {}}
    made = models.table({"facts": {"cpu": "x", "date": "today"}, "rows": [row]}, "file.json")
    lines = made.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[2:-1]] for line in (lines[2], lines[-1])]
    assert cells[0] == ["68.96% (the paper's)", "5.00 MB", "1.00"]
    assert cells[1] == ["1.00 (2.00)", "2.00 (4.00)", "20.0 (40.0)", "-"]


def test_the_floor_in_the_engines_page_is_what_the_paper_network_counts():
    from benchmarks import avx2_lower_bound
    from programs import of_config

    from bcnn.nets.config import preset

    cycles = avx2_lower_bound.floor(of_config(preset("imagenet")))
    page = (ROOT / "docs/engine.md").read_text(encoding="utf-8")
    for count in (*cycles.values(), cycles.total()):
        assert f"| {count / 3.24e6:.2f} |" in page
