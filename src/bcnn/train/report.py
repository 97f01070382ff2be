"""A finished run -> report.html, one page that needs nothing else, with curves.png and activity.png beside it."""

from __future__ import annotations

import base64
import html
import io
import json
from typing import Any

from matplotlib.figure import Figure

from bcnn.files import write_atomic
from bcnn.train import plots
from bcnn.train.run import RunFolder

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2937; max-width: 1000px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
img { width: 100% } table { border-collapse: collapse } th, td { text-align: right; padding: .2rem .8rem; border-bottom: 1px solid #e5e7eb }
th:first-child, td:first-child { text-align: left } pre { background: #f3f4f6; padding: 1rem; overflow-x: auto; font-size: 12px }
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
    for name, content in pictures.items():
        write_atomic(folder.path / f"{name}.png", content)
    text = page(folder.read_info(), epochs, pictures)
    write_atomic(
        folder.path / "report.html", text.encode("utf-8", "backslashreplace")
    )  # of names that are no text, too


def shown(value: Any, form: str = "") -> str:
    """Whatever stands in run.json or metrics.jsonl, as text of the page: a number in its format, anything else as it is."""
    plain = format(value, form) if isinstance(value, (int, float)) else str(value)
    return html.escape(plain)


def page(info: dict[str, Any], epochs: list[dict[str, Any]], pictures: dict[str, bytes]) -> str:
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
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{shown(config["recipe"])}</title><style>{STYLE}</style></head><body>
<h1>{shown(config["recipe"])}: {shown(final["accuracy"], ".2%")} top-1</h1>
<p>{shown(data["train"], ",")} training and {shown(data["val"], ",")} evaluation images of {len(data["classes"])} classes; {shown(final["seconds"], ".0f")} s
of training at {shown(final["images_per_second"], ".0f")} images/s; seed {shown(info["seed"])}; started {shown(info["started"])};
{shown(info["machine"])}; torch {shown(info["versions"]["torch"])}.</p>
<table><tr><th>step</th><th>weights</th><th>epochs</th><th>lr</th><th>teacher</th><th>top-1</th><th>top-5</th>
<th>outside [-1, 1]</th></tr>{rows}</table>
<h2>Curves</h2>{images["curves"]}
<h2>Activations, layer by layer</h2>{images["activity"]}
<h2>Settings</h2><pre>{shown(info["command"])}

{html.escape(json.dumps(config, indent=1))}</pre>
</body></html>
"""
