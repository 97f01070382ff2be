import html.parser
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import tiny_runs
from PIL import Image
from tiny_runs import train

from bcnn.training import plots, report, tensorboard
from bcnn.training.provenance import command
from bcnn.training.run_folder import RunFolder

RECORDS = [
    {
        "kind": "epoch", "step": step, "epoch": i % 2 + 1, "epochs": 2, "epochs_done": i + 1, "updates": 5 * (i + 1), "lr": 1e-3,
        "loss": 2.0 - i / 4, "val_loss": 2.1, "train_accuracy": 0.5, "accuracy": 0.6 + i / 10, "top5": 0.9, "flips": 0.01,
        "outside": 0.0, "balance": {"a": 0.5, "b": 0.9}, "surviving": {"a": 0.7, "b": 0.1}, "images_per_second": 100.0,
        "seconds": 3.0,
    }
    for i, step in enumerate(("step1", "step1", "step2", "step2"))
]  # fmt: skip
UPDATES = [{"kind": "update", "updates": u, "lr": 1e-3 / (u + 1), "loss": 1.0, "flips": 0.0} for u in range(1, 21, 5)]
STEP = {"weights": "real", "warmup": 1, "epochs": 1, "lr": 1e-3, "teacher": "none"}
INFO = {
    "config": {"recipe": "<tiny>", "steps": [{"name": "step1", **STEP}, {"name": "step2", **STEP}]},
    "data": {"train": 1438, "val": 359, "classes": ["0", "1"]},
    "seed": 0, "started": "now", "machine": "m", "versions": {"torch": "2"}, "command": "bcnn train --set a=<b>",
}  # fmt: skip


def test_report_is_one_page_that_needs_nothing_else(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_info(INFO)
    for record in RECORDS + UPDATES:
        folder.log(record)
    report.write(folder)
    page = (tmp_path / "report.html").read_text()
    addresses = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            addresses.extend(value for key, value in attrs if key in ("src", "href"))

    Reader().feed(page)
    assert len(addresses) == 2
    assert all(address.startswith("data:image/png;base64,") for address in addresses)
    assert "90.00% top-1" in page
    assert "&lt;tiny&gt;" in page
    assert "a=&lt;b&gt;" in page
    for name in ("curves.png", "activity.png"):
        assert Image.open(tmp_path / name).size[0] > 800


def test_nothing_in_run_json_or_the_metrics_becomes_markup(tmp_path):
    """Every text, and every number replaced by a text, that the page shows."""
    evil = "<script>alert(1)</script>"
    pictures = {"curves": b"", "activity": b""}

    def poisoned(value):
        if isinstance(value, dict):
            return {key: poisoned(item) for key, item in value.items()}
        return [poisoned(item) for item in value] if isinstance(value, list) else evil

    epochs = [{**poisoned(record), "step": record["step"]} for record in RECORDS]
    info = poisoned(INFO)
    for step, name in zip(info["config"]["steps"], ("step1", "step2"), strict=True):
        step["name"] = name
    page = report.page(info, epochs, pictures)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 20


def test_a_name_of_bytes_that_are_no_text_is_written_out(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_info({**INFO, "command": "bcnn train --data \udcff"})
    for record in RECORDS + UPDATES:
        folder.log(record)
    report.write(folder)
    assert r"bcnn train --data \udcff" in (tmp_path / "report.html").read_text()


def test_run_without_an_epoch_has_no_report(tmp_path):
    report.write(RunFolder(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("classes", [2, 10, 40])
def test_confusion_matrix_can_be_drawn_for_any_number_of_classes(classes):
    counts = np.eye(classes, dtype=np.int64) * 3
    counts[0] = 0  # a class without images
    picture = Image.open(io.BytesIO(report.png(plots.confusion(counts, [f"class {i}" for i in range(classes)]))))
    assert picture.size[0] > 300


def test_tensorboard_gets_what_metrics_get(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write = tensorboard.writer(tmp_path, 0)
    for record in UPDATES + RECORDS:
        write(record)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [e.value for e in events.Scalars("epoch/accuracy")] == pytest.approx([r["accuracy"] for r in RECORDS])
    assert {"update/flips", "balance/a", "surviving/b", "epoch/lr"} <= set(events.Tags()["scalars"])


def test_metrics_forget_what_came_after_the_checkpoint_and_half_written_lines(tmp_path):
    folder = RunFolder(tmp_path)
    for record in UPDATES + RECORDS:
        folder.log(record)
    with folder.metrics.open("a") as file:
        file.write('[1]\n"kind"\n{}\n{"kind": "epo')
    folder.rewind_metrics(updates=11, epochs=2)
    assert [r["updates"] for r in folder.read_metrics("update")] == [1, 6, 11]
    assert [r["epochs_done"] for r in folder.read_metrics("epoch")] == [1, 2]


DAMAGED = (b"\xff\xfe\n", b'{"kind": []}\n', b'{"kind": "epoch"}\n', b'{"kind": "epoch", "updates": 1, "epochs_done": "2"}\n', b'{"kind": "update", "updates": null}\n')  # fmt: skip


@pytest.mark.parametrize("line", DAMAGED)
def test_lines_of_metrics_that_are_no_records_any_more_are_left_out(tmp_path, line):
    folder = RunFolder(tmp_path)
    for record in UPDATES[:2] + RECORDS[:1]:
        folder.log(record)
    whole = folder.metrics.read_text()
    folder.metrics.write_bytes(line + whole.encode() + line)
    folder.rewind_metrics(updates=100, epochs=100)
    assert folder.metrics.read_text() == whole


def test_metrics_stay_json_when_a_number_overflows(tmp_path):
    folder = RunFolder(tmp_path)
    folder.log({"kind": "epoch", "loss": float("nan"), "val_loss": float("inf"), "lr": 0.5})
    assert json.loads(folder.metrics.read_text(), parse_constant=pytest.fail) == {
        "kind": "epoch",
        "loss": None,
        "val_loss": None,
        "lr": 0.5,
    }


@pytest.mark.parametrize("program", ["/usr/bin/bcnn", "/lib/bcnn/__main__.py"])
def test_the_command_is_kept_as_it_was_typed(program):
    assert command([program, "train", "--out", "my runs"]) == "bcnn train --out 'my runs'"
    assert command(["sweep.py", "3"]) == "sweep.py 3"


def test_a_run_whose_log_is_damaged_ends_without_a_report_and_says_so(tmp_path, monkeypatch, capsys):
    config = tiny_runs.config(steps=(replace(tiny_runs.STEP1, warmup=0),))
    real = RunFolder.read_metrics
    monkeypatch.setattr(
        RunFolder, "read_metrics", lambda self, kind="": [{**record, "balance": None} for record in real(self, kind)]
    )
    assert train(config, tmp_path / "run")["accuracy"]
    assert "no report: what was logged in" in capsys.readouterr().err
    assert not (tmp_path / "run" / "report.html").exists()
