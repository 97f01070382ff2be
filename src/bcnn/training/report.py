"""A finished run -> report.html, one page that needs nothing else, with curves.png and activity.png beside it.

First what the run is about: the data, its classes, what is mistaken for what (`portrait`); then how the training went.
"""

from __future__ import annotations

import base64
import html
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bcnn.base.files import write_atomic
from bcnn.training import plots, report_data
from bcnn.training.run_folder import RunFolder

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2937; max-width: 1000px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
img { width: 100% } table { border-collapse: collapse } th, td { text-align: right; padding: .2rem .8rem; border-bottom: 1px solid #e5e7eb }
th:first-child, td:first-child { text-align: left } .shots { display: flex; flex-wrap: wrap; gap: .6rem } figure { margin: 0; font-size: 12px } pre { background: #f3f4f6; padding: 1rem; overflow-x: auto; font-size: 12px }
"""


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, format="png")
    return buffer.getvalue()


def write(folder: RunFolder) -> None:
    """Pictures and page. A run without a complete epoch has nothing to show."""
    epochs = folder.read_metrics("epoch")
    if not epochs:
        return
    pictures = {
        "curves": png(plots.curves(epochs, folder.read_metrics("update"))),
        "activity": png(plots.activity(epochs)),
    }
    about = report_data.read(folder)
    if about.get("confusion"):
        try:
            names = [str(row["name"]) for row in about["classes"]]
            counts = np.asarray(about["confusion"], dtype=np.int64).reshape(len(names), len(names))
            pictures["confusion"] = png(plots.confusion(counts, names))
        except (KeyError, TypeError, ValueError):  # not what `portrait` writes: the page does without it
            about = {}
    for name, content in pictures.items():
        write_atomic(folder.path / f"{name}.png", content)
    text = page(folder.read_info(), epochs, pictures, about)
    # Of names that are no text, too.
    write_atomic(folder.path / "report.html", text.encode("utf-8", "backslashreplace"))


def shown(value: Any, form: str = "") -> str:
    """Whatever stands in run.json or metrics.jsonl, as text of the page: a number in its format, anything else as it is."""
    plain = format(value, form) if isinstance(value, (int, float)) else str(value)
    return html.escape(plain)


def speed(epochs: list[dict[str, Any]]) -> float:
    """Images per second over the whole run: each epoch's, weighted by the seconds it took."""
    before = images = 0.0
    for record in epochs:
        seconds, rate = record["seconds"], record["images_per_second"]
        if not isinstance(seconds, (int, float)) or not isinstance(rate, (int, float)):
            return 0.0
        images += rate * (seconds - before)
        before = seconds
    return images / before if before else 0.0


def classes_table(about: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{shown(row.get('name'))}</td><td>{shown(row.get('training'), ',')}</td><td>{shown(row.get('evaluation'), ',')}</td>"
        f"<td>{'-' if row.get('right') is None else shown(row.get('right'), '.1%')}</td></tr>"
        for row in about.get("classes", ())
    )
    head = "<tr><th>class</th><th>training images</th><th>evaluation images</th><th>of them right</th></tr>"
    return f"<h2>Classes</h2><table>{head}{rows}</table>" if rows else ""


def picture(content: Any, side: int) -> str:
    """A thumbnail of about.json, which anybody may have written: base64 or nothing."""
    text = str(content)
    whole = text and all(c.isalnum() or c in "+/=" for c in text)
    return (
        f'<img style="width:{side}px" alt="" src="data:image/jpeg;base64,{text}">' if whole and text.isascii() else ""
    )


def mistakes(about: dict[str, Any]) -> str:
    shots = "".join(
        f"<figure>{picture(row.get('image'), 128)}<figcaption>{shown(row.get('said'))} {shown(row.get('probability'), '.0%')}<br>"
        f"is {shown(row.get('is'))}</figcaption></figure>"
        for row in about.get("mistakes", ())
    )
    text = "What it was surest of and wrong about: what it said, and what the folder says. Some may be the folder's mistakes."
    return f"<h2>Most confident mistakes</h2><p>{text}</p><div class=shots>{shots}</div>" if shots else ""


def augmentation(about: dict[str, Any]) -> str:
    rows = "".join(
        f"<div class=shots><figure>{picture(row.get('image'), 96)}<figcaption>{shown(row.get('name'))}</figcaption></figure>"
        + "".join(f"<figure>{picture(crop, 96)}</figure>" for crop in row.get("crops", ()))
        + "</div>"
        for row in about.get("augmented", ())
    )
    text = "A training image, and what the first epochs made of it. If the thing is not on the crops, raise data.augment.scale."
    return f"<h2>What augmentation does</h2><p>{text}</p>{rows}" if rows else ""


def page(
    info: dict[str, Any], epochs: list[dict[str, Any]], pictures: dict[str, bytes], about: dict[str, Any] | None = None
) -> str:
    about = about or {}
    config = info["config"]
    data = info["data"]
    last = {record["step"]: record for record in epochs}  # the last epoch of each step
    rows = "".join(
        f"<tr><td>{shown(step['name'])}</td><td>{shown(step['weights'])}</td>"
        f"<td>{shown(step['warmup'])} + {shown(step['epochs'])}</td>"
        f"<td>{shown(step['lr'], 'g')}</td><td>{shown(step['teacher'])}</td><td>{shown(record['accuracy'], '.2%')}</td>"
        f"<td>{shown(record['top5'], '.2%')}</td><td>{shown(record['outside'], '.1%')}</td></tr>"
        for step in config["steps"]
        if (record := last.get(step["name"]))
    )
    images = {
        name: f'<img alt="{name}" src="data:image/png;base64,{base64.b64encode(content).decode()}">'
        for name, content in pictures.items()
    }
    final = epochs[-1]
    title = Path(str(about.get("source", ""))).name or config["recipe"]
    matrix = ""
    if "confusion" in images:
        matrix = f"<h2>What is taken for what</h2><p>Rows: what it is; columns: what the network said.</p>{images['confusion']}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{shown(title)}</title><style>{STYLE}</style></head><body>
<h1>{shown(title)}: {shown(final["accuracy"], ".2%")} top-1</h1>
<p>{shown(data["train"], ",")} training and {shown(data["val"], ",")} evaluation images of {len(data["classes"])} classes; {shown(final["seconds"], ".0f")} s
of training at {shown(speed(epochs), ".0f")} images/s over the whole run; recipe {shown(config["recipe"])}, seed {shown(info["seed"])}; started {shown(info["started"])};
{shown(info["machine"])}; torch {shown(info["versions"]["torch"])}.</p>
{classes_table(about)}
{matrix}
{mistakes(about)}
{augmentation(about)}
<h2>Steps</h2>
<table><tr><th>step</th><th>weights</th><th>epochs</th><th>lr</th><th>teacher</th><th>top-1</th><th>top-5</th>
<th>outside [-1, 1]</th></tr>{rows}</table>
<h2>Curves</h2>{images["curves"]}
<h2>Activations, layer by layer</h2>{images["activity"]}
<h2>Settings</h2><pre>{shown(info["command"])}

{html.escape(json.dumps(config, indent=1))}</pre>
</body></html>
"""
