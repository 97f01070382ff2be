"""The pages about rivals are what their sources say now, and the comparison at equal budget is equal in what it says it is."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from bcnn.nets.registry import ARCHITECTURES

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))


def test_the_pages_are_what_counts_audits_and_times_say() -> None:
    from tools import rivals_page

    again = "run: python -m tools.rivals_page"
    assert rivals_page.PAGE.read_text(encoding="utf-8") == rivals_page.page(), again
    assert rivals_page.WHICH.read_text(encoding="utf-8") == rivals_page.which(), again
    assert rivals_page.PICTURE.is_file(), again


def test_every_published_accuracy_is_of_a_registered_network_and_says_where_it_was_read() -> None:
    from tools import rivals_page

    assert set(rivals_page.PUBLISHED) <= set(ARCHITECTURES)
    assert all(source for _, source in rivals_page.PUBLISHED.values())


def test_places_that_differ_in_numbers_only_are_one() -> None:
    from tools.rivals_page import places

    assert places(["stem.0", "stages.1.0.shortcut.1", "stages.2.0.shortcut.1"]) == [
        "`stem.0`",
        "`stages.*.*.shortcut.*` (2)",
    ]


def test_equal_budgets_are_within_a_fifth_and_differ_in_network_and_rate_alone() -> None:
    from bench import equal_budget

    entries = equal_budget.entries()
    runs = {name: equal_budget.run_of(entry, 5e-3, 0, False) for name, entry in entries.items()}
    for name, entry in entries.items():
        assert equal_budget.macs_of(entry.network) == pytest.approx(equal_budget.BUDGET, rel=equal_budget.TOLERANCE)
        assert dataclasses.replace(runs[name], network=entries["bnn"].network) == runs["bnn"]
    needed = {"bcnn-p1", "bcnn-p2", "bnn", "xnornet", "xnornetpp", "abcnet", "birealnet", "groupnet", "meliusnet"}
    assert needed | {"reactnet-a", "real2bin"} <= set(entries)


def test_the_test_images_choose_no_rate() -> None:
    from bench import equal_budget

    entry = equal_budget.entries()["bnn"]
    assert equal_budget.run_of(entry, 5e-3, 0, True).data.hold_out > 0
    assert equal_budget.run_of(entry, 5e-3, 0, False).data.hold_out == 0


def test_a_campaign_chooses_a_rate_trains_the_better_half_twice_and_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from bench import equal_budget
    from tools import rivals_page

    import tiny
    from bcnn.train import start
    from bcnn.train.config import Step

    short = Step(name="step1", warmup=0, epochs=1, lr=1e-2)
    binary = dataclasses.replace(short, name="step2", weights="binary")
    entries = {name: equal_budget.Entry(tiny.NETWORK, "tiny") for name in ("one", "two")}
    for name, value in {"STEP1": short, "STEP2": binary, "CHOOSING": binary, "RATES": (1e-2,)}.items():
        monkeypatch.setattr(equal_budget, name, value)
    monkeypatch.setattr(equal_budget, "entries", lambda: entries)
    monkeypatch.setattr(equal_budget, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(rivals_page, "write", lambda: None)
    monkeypatch.setattr("bcnn.train.report.write", lambda folder: None)
    runs = tmp_path / "runs"
    equal_budget.campaign(list(entries), [0, 1], "digits", runs)
    records = json.loads((tmp_path / "results.json").read_text())
    assert {name: len(record["rates"]) for name, record in records.items()} == {"one": 1, "two": 1}
    assert sorted(len(record["seeds"]) for record in records.values()) == [1, 2]
    assert records["one"]["real_products"] == records["one"]["padded_products"] == 0
    monkeypatch.setattr(start, "train", None)  # nothing is left to train
    equal_budget.campaign(list(entries), [0, 1], "", runs)
    assert json.loads((tmp_path / "results.json").read_text())["two"]["seeds"] == records["two"]["seeds"]


def test_the_table_at_equal_budget_has_a_row_per_network_best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from tools import rivals_page

    def record(*top1: float, real: int = 0) -> dict[str, object]:
        seeds = {str(seed): {"top1": value} for seed, value in enumerate(top1)}
        known = {"binary_macs": 85e6, "real_macs": 2e6, "param_bytes": 1e5, "engine_ms": 0.5, "padded_products": 0}
        return {
            **known,
            "real_products": real,
            "scaled": "narrower",
            "rates": {"0.002": 0.5, "0.005": 0.6},
            "seeds": seeds,
        }

    records = {"a": record(0.7), "b": record(0.75, 0.8, real=1_000_000), "unfinished": {**record(), "seeds": {}}}
    monkeypatch.setattr(rivals_page, "read", lambda path: records)
    rows = rivals_page.equal_budget().splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| b", "| a"]
    assert "75.00%, 80.00%" in rows[0]
    assert "1.0 M MACs real" in rows[0]
    assert "| nothing | 0.005 |" in rows[1]


def test_every_network_was_taken_the_whole_way_or_is_not_in_the_results() -> None:
    from tools import every_network

    results = json.loads(every_network.RESULTS.read_text(encoding="utf-8"))
    assert results
    assert [name for name, result in results.items() if not every_network.passed(result)] == []
