"""The comparison at equal budget is equal in what it says it is, keeps every finished run, and shows any number of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs
from benchmarks import contestants, equal_budget
from PIL import Image
from tools.pages import equal_budget_table, rivals_page

from bcnn.base.errors import UserError
from bcnn.data import sources
from bcnn.training import run_training
from bcnn.training.config import Step


def photos(folder: Path) -> Path:
    """Two classes of noise, as a data set with a test folder."""
    random = np.random.default_rng(0)
    for split, many in {"train": 80, "test": 10}.items():
        for label in ("cat", "dog"):
            place = folder / split / label
            place.mkdir(parents=True)
            for index in range(many):
                Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(place / f"{index}.png")
    return folder


def test_equal_budgets_are_within_a_fifth_and_differ_in_network_and_rate_alone() -> None:
    entries = contestants.entries()
    runs = {name: equal_budget.run_of(entry, 5e-3, 0, False) for name, entry in entries.items()}
    for name, entry in entries.items():
        assert contestants.macs_of(entry.network) == pytest.approx(contestants.BUDGET, rel=contestants.TOLERANCE)
        assert dataclasses.replace(runs[name], network=entries["bnn"].network) == runs["bnn"]
    needed = {"bcnn-p1", "bcnn-p2", "bnn", "xnornet", "xnornetpp", "abcnet", "birealnet", "groupnet", "meliusnet"}
    assert needed | {"reactnet-a", "real2bin"} <= set(entries)


def test_the_test_images_choose_no_rate_and_are_what_is_measured_on(tmp_path: Path) -> None:
    photos(tmp_path)
    entry, places = contestants.entries()["bnn"], {}
    for choosing in (True, False):
        data = equal_budget.run_of(entry, 5e-3, 0, choosing).data
        found = sources.find(str(tmp_path), data.hold_out, split=data.evaluate)
        places[choosing] = {Path(item).parts[-3] for item in found.val.items}, len(found.train), len(found.val)
    assert places == {True: ({"train"}, 128, 32), False: ({"test"}, 160, 20)}


@pytest.fixture
def campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two tiny networks with a short schedule; where the results go."""
    binary = Step(name="binary", weights="binary", warmup=0, epochs=1, lr=1e-2)
    entries = {name: contestants.Entry(tiny_runs.NETWORK, "tiny") for name in ("one", "two")}
    settings: dict[str, Any] = {"STEP": binary, "CHOOSING": binary, "CHOOSING_IMAGES": 256, "RATES": (1e-2, 2e-2)}
    results = tmp_path / "results.json"
    for name, value in {**settings, "entries": lambda: entries, "RESULTS": results}.items():
        monkeypatch.setattr(equal_budget, name, value)
    monkeypatch.setattr(rivals_page, "write", lambda: None)
    monkeypatch.setattr("bcnn.training.report.write", lambda folder: None)
    return results


def test_a_campaign_chooses_a_rate_trains_the_better_half_twice_and_needs_only_its_results_to_go_on(
    campaign: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ["one", "two"]
    equal_budget.campaign(names, [0, 1], str(photos(tmp_path / "photos")), tmp_path / "runs")
    before = campaign.read_text()
    records = json.loads(before)["networks"]
    assert {name: sorted(record["rates"]) for name, record in records.items()} == {
        name: ["0.01", "0.02"] for name in names
    }
    assert sorted(len(record["seeds"]) for record in records.values()) == [1, 2]
    assert records["one"]["real_products"] == records["one"]["padded_products"] == 0
    for record in records.values():
        best = max(record["rates"].values(), key=lambda run: float(run["top1"]))
        for run in record["seeds"].values():
            assert run["lr"] == best["lr"]
            assert run["curve"][-1]["accuracy"] == run["top1"]
    monkeypatch.setattr(run_training, "train", None)  # nothing is left to train, though the runs are on another machine
    equal_budget.campaign(names, [0, 1], "", tmp_path / "elsewhere")
    assert campaign.read_text() == before


def test_results_of_another_schedule_are_left_alone(campaign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_budget.store(equal_budget.stored())
    before = campaign.read_text()
    monkeypatch.setattr(equal_budget, "BATCH", 32)
    with pytest.raises(UserError, match="another schedule or other networks: move it away"):
        equal_budget.campaign(["one"], [0], "photos", campaign.parent / "runs")
    assert campaign.read_text() == before


def test_a_network_that_is_still_to_be_trained_needs_images(campaign: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="still to be trained: name the images with --data"):
        equal_budget.campaign(["one"], [0], "", tmp_path / "runs")


def test_the_table_at_equal_budget_has_a_row_per_network_best_first_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def record(*top1: float, real: int = 0, rates: tuple[str, ...] = ("0.002", "0.005", "0.01")) -> dict[str, Any]:
        return {
            "binary_macs": 30e6, "real_macs": 2e6, "param_bytes": 1e5, "padded_products": 0, "real_products": real, "scaled": "narrower",
            "rates": {rate: {"top1": 0.6 if rate == "0.005" else 0.5} for rate in rates},
            "seeds": {str(seed): {"top1": value} for seed, value in enumerate(top1)},
        }  # fmt: skip

    found = {
        "schedule": equal_budget.schedule(),
        "times": {},
        "networks": {"c": record(rates=("0.01",)), "a": record(0.7), "b": record(0.75, 0.8, real=1_000_000)},
    }
    monkeypatch.setattr(equal_budget_table, "read", lambda path: found)
    rows = equal_budget_table.equal_budget().splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows[:3]] == ["| b", "| a", "| c"]
    assert "75.00%, 80.00% | 0.005" in rows[0]
    assert rows[0].endswith("1.0 M MACs real |")
    assert rows[1].endswith("| nothing |")
    assert "not trained yet |  |" in rows[2]
    assert rows[-1] == "2 of 3 networks are trained, 1 of them with a second seed; 2 have tried all rates."
    found["times"] = {
        "facts": {"cpu": "some processor", "load": "1.0 on 2 cores", "date": "2026-11-17 20:00 UTC"},
        "ms": {"a": 0.25},
    }
    rows = equal_budget_table.equal_budget().splitlines()[2:]
    assert "| 0.25 |" in rows[1]
    assert equal_budget_table.answer() == ""  # not all that are trained have times
    found["times"]["ms"]["b"] = 0.5
    said = equal_budget_table.answer()
    assert "b (77.5% in 0.50 ms), a (70.0% in 0.25 ms)." in said
    assert "1 x 1 bit products: a, 70.0%" in said
    assert "up to 5.0 points" in said
    assert rows[-1].endswith("some processor, 2026-11-17.")
