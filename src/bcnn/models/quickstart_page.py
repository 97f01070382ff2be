"""What `bcnn quickstart` found -> index.html: one page that needs nothing else, in light and dark, on a desk and in a hand.

Pictures are inside as data, bars and tables are plain HTML, and no script runs. Every number on it was counted or measured in that run.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence

from PIL import Image

from bcnn.base.machine import facts
from bcnn.counting.counts import CountNode, count
from bcnn.models.quickstart import Photo, Quickstart, Sample, Shipped
from bcnn.nets.config import preset
from bcnn.packed.packfile import Sizes
from bcnn.training import plots
from bcnn.training.report import png

STYLE = """
:root { --ink: #1f2937; --soft: #6b7280; --line: #e5e7eb; --card: #f6f7f9; --page: #fff; --bit: #2563eb; --real: #94a3b8; --bad: #dc2626;
  color-scheme: light dark }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 60rem; margin: 2.5rem auto; padding: 0 1rem }
a { color: var(--bit) } h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .3rem } h2 { font-size: 1.15rem; margin: 2.8rem 0 .4rem } p { margin: .4rem 0 }
.soft, figcaption { color: var(--soft); font-size: .88rem } code { font-size: .9em; overflow-wrap: anywhere }
.tiles, .samples { display: grid; gap: .7rem; grid-template-columns: repeat(auto-fill, minmax(12.5rem, 1fr)); margin: 1.2rem 0 }
.tiles div { background: var(--card); border-radius: .6rem; padding: .8rem 1rem } .tiles b { display: block; font-size: 1.55rem }
.wide { overflow-x: auto } .wide img { width: 100%; min-width: 40rem; display: block }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; width: 100% }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th { font-weight: 600; color: var(--soft) } th:first-child, td:first-child { text-align: left } tr:last-child td { font-weight: 600; border: 0 }
.bar { display: grid; grid-template-columns: 8rem 1fr 9.5rem; gap: .7rem; align-items: center; margin: .45rem 0 }
.bar > span:last-child { text-align: right; font-variant-numeric: tabular-nums } .track { display: flex; height: 1.25rem }
.track i { min-width: 2px } .track i:first-child { border-radius: 3px 0 0 3px } .track i:last-child { border-radius: 0 3px 3px 0 }
.bit { background: var(--bit) } .real { background: var(--real) } .rest { background: var(--line) }
.key i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .3em 0 .9em } .key i:first-child { margin-left: 0 }
.samples { grid-template-columns: repeat(auto-fill, minmax(7.2rem, 1fr)) } figure { margin: 0 }
.samples figure { background: var(--card); border-radius: .6rem; padding: .6rem; border: 2px solid transparent } .samples .wrong { border-color: var(--bad) }
.samples img { width: 100%; image-rendering: pixelated; border-radius: .3rem; display: block; margin-bottom: .4rem }
.samples span { display: flex; justify-content: space-between }
.photos { display: grid; gap: .9rem; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); margin: 1.2rem 0 }
.photos figure { background: var(--card); border-radius: .6rem; padding: .7rem } .photos img { width: 100%; border-radius: .3rem; display: block; margin-bottom: .5rem }
.photos .bar { grid-template-columns: 8.5rem 1fr 4rem; margin: .15rem 0 } .photos .track { grid-row: auto; grid-column: auto; height: .8rem }
@media (max-width: 40rem) { .bar { grid-template-columns: 1fr auto } .track { grid-row: 2; grid-column: 1 / 3 } body { margin-top: 1rem } }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e5e7eb; --soft: #9ca3af; --line: #374151; --card: #27292d; --page: #1a1a1a; --bit: #60a5fa; --real: #64748b; --bad: #f87171 }
  .wide img { filter: invert(.9) hue-rotate(180deg); border-radius: .4rem } }
"""
WEB = "digits.html"  # beside the page: the packed network as a page of its own, `bcnn export --to web`
SHOWN = 7  # digits of the shipped model: one row
COUNTED = ("binary_params", "real_params", "binary_macs", "real_macs")


def page(found: Quickstart) -> str:
    info, epochs = found.folder.read_info(), found.folder.read_metrics("epoch")
    engine, torch = found.times["engine"], found.times["torch"]
    right, total = sum(sample.right for sample in found.samples), len(found.samples)
    here = facts(threads=1)
    curves = png(plots.curves(epochs, found.folder.read_metrics("update")))
    steps = ", ".join(f"{share:.2%} after {html.escape(step)}" for step, share in info["accuracy"].items())
    tiles = (
        (f"{right / total:.2%}", f"of {total:,} test images right, in the engine"),
        ("1 x 1 bit", f"in all {found.products} matrix-matrix products"),
        (_bytes(found.sizes.total), f"on disk, {found.float_bytes / found.sizes.total:.1f} times less than float32"),
        (f"{engine.min:.3g} ms", f"an image on one thread; torch takes {torch.min / engine.min:.0f} times as long"),
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>bcnn quickstart</title><style>{STYLE}</style></head><body>
<h1>A fully binary network, from counting to a label</h1>
<p class="soft">Network <code>{html.escape(found.counts.name)}</code>, trained in {info["train_seconds"]:.0f} s, then audited, packed, verified and run:
every number here was counted or measured in this one run.</p>
<div class="tiles">{"".join(f"<div><b>{value}</b>{text}</div>" for value, text in tiles)}</div>
<p><a href="{WEB}">Run it in this browser</a>: a page with the engine and this network inside, for photos, the camera and other packed files.</p>

<h2>What it holds and does, for one image</h2>
<p>Counted from the config alone, by the rules that give every printed digit of the paper's Tables 2 to 5.</p>
{_count_table(found.counts)}

<h2>How it was trained</h2>
<p>Step 1 with real weights, step 2 with binary ones, activations binary throughout: {steps}.
{info["data"]["train"]:,} training images, {info["data"]["val"]:,} test images, seed {info["seed"]}.</p>
<div class="wide">{image(curves, "Loss, accuracy, learning rate and latent weights over epochs")}</div>

<h2>Size</h2>
{_sizes(found.sizes, found.float_bytes)}

<h2>Time for one image</h2>
{_bars([("torch", f"{torch.min:.3g} ms", [("real", torch.min)]), ("engine", f"{engine.min:.3g} ms", [("bit", engine.min)])])}
<p class="soft">Minimum of {engine.samples} turns each, one thread, interleaved; medians {torch.median:.3g} and {engine.median:.3g} ms. Torch runs the
same network with +-1 held in float32, module by module: on images this small most of its time is its own overhead.
The engine uses {html.escape(found.isa)}. For larger networks and other rivals: <code>bcnn bench</code>.</p>

<h2>What it sees</h2>
<p>The first test image of every class, then {_misses(total - right)}.</p>
<div class="samples">{"".join(figure(sample) for sample in shown(found.samples))}</div>

{section(found.shipped)}
<h2>Why it can work: a binary network for any function</h2>
<p>Section 3 of the paper, built: three layers of 1 bit x 1 bit products come as near to a function as asked,
here sin(x) / x. The error falls with narrower rectangles (d) and finer heights (Q).</p>
<div class="wide">{image(found.approximator, "sin(x) / x and its binary network, the error, and how it falls")}</div>

<h2>Where and when</h2>
<p class="soft">{"; ".join(f"{key} {html.escape(value)}" for key, value in here.items())}.
Again: <code>bcnn quickstart</code>. Curves and settings of the training in full: <code>report.html</code> beside this page.</p>
</body></html>
"""


def shown(samples: Sequence[Sample], misses: int = 10) -> list[Sample]:
    """The first image of every class, then what the network got wrong, each once."""
    firsts = list({sample.label: sample for sample in reversed(samples)}.values())
    wrong = [sample for sample in samples if not sample.right and sample not in firsts]
    return sorted(firsts, key=lambda sample: sample.label) + wrong[:misses]


def _misses(wrong: int) -> str:
    if wrong == 0:
        return "nothing more: none was wrong"
    return (
        f"{'the one' if wrong == 1 else f'some of the {wrong}' if wrong > 10 else f'all {wrong}'} it got wrong, framed"
    )


def figure(sample: Sample) -> str:
    buffer = io.BytesIO()
    Image.fromarray(sample.pixels).save(buffer, "PNG")
    rows = "".join(f"<span>{html.escape(name)}<span>{share:.1%}</span></span>" for name, share in sample.predictions)
    truth = f"is a {html.escape(sample.label)}"
    return (
        f"<figure{'' if sample.right else ' class=wrong'}>{image(buffer.getvalue(), truth)}"
        f"<figcaption>{truth}; says{rows}</figcaption></figure>"
    )


def _count_table(tree: CountNode) -> str:
    levels = ("stem", "level")  # their blocks have rows of their own
    parts = [node for part in tree.children for node in (part.children if part.name.startswith(levels) else (part,))]
    header = ("block", "makes C x H x W", *(name.replace("_", " ").replace("macs", "MACs") for name in COUNTED))
    rows = []
    for node in (*parts, tree):
        shape = " x ".join(map(str, node.shape or ()))
        cells = [f"{getattr(node.counts, name):,}" for name in COUNTED]
        rows.append(_row("td", ("total" if node is tree else node.name, "" if node is tree else shape, *cells)))
    return f'<div class="wide"><table>{_row("th", header)}{"".join(rows)}</table></div>'


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _sizes(sizes: Sizes, float_bytes: int) -> str:
    packed = [
        ("bit", sizes.binary_weights),
        ("real", sizes.real_parameters),
        ("rest", sizes.header + sizes.test_logits),
    ]
    bars = _bars(
        [("float32", _bytes(float_bytes), [("real", float_bytes)]), ("packed file", _bytes(sizes.total), packed)]
    )
    paper = count(preset("imagenet")).counts
    share = paper.binary_params / (paper.binary_params + paper.real_params)
    return f"""{bars}
<p class="soft key"><i class="bit"></i>binary weights, one bit each: {sizes.binary_weights:,} bytes
<i class="real"></i>real parameters, float32: {sizes.real_parameters:,} <i class="rest"></i>header, class names, hashes, test vectors: {sizes.header + sizes.test_logits:,}</p>
<p class="soft">float32 is the parameters alone. In a network this small the real parameters weigh most; the paper's own has {share:.0%} of its parameters in bits.</p>"""


def _bars(bars: Sequence[tuple[str, str, Sequence[tuple[str, float]]]]) -> str:
    """Name, value in words, and the bar's parts as (colour, size); the longest fills the track."""
    longest = max(sum(size for _, size in parts) for _, _, parts in bars)
    return "".join(
        f'<div class="bar"><span>{name}</span><span class="track">'
        + "".join(f'<i class="{colour}" style="width:{100 * size / longest:.3f}%"></i>' for colour, size in parts)
        + f"</span><span>{value}</span></div>"
        for name, value, parts in bars
    )


def image(content: bytes, text: str, kind: str = "png") -> str:
    return f'<img alt="{html.escape(text)}" src="data:image/{kind};base64,{base64.b64encode(content).decode()}">'


def _bytes(size: float) -> str:
    return f"{size / 1000:.1f} kB" if size < 1e6 else f"{size / 1e6:.2f} MB"


def section(found: Shipped) -> str:
    """HTML for the page."""
    return f"""<h2>The models that come with the package</h2>
{_photo_part(found) if found.photos else ""}
<p>The shipped <code>digits</code> model, trained before with the recipe of that name ({html.escape(found.digits_top1)}), gets
{found.right} of the {len(found.digits)} test images right; some of them:</p>
<div class="samples">{"".join(figure(sample) for sample in found.digits[-SHOWN:])}</div>
"""


def _photo_part(found: Shipped) -> str:
    figures = "".join(
        f"<figure>{_jpeg(photo)}<figcaption>{html.escape(photo.caption)}; says</figcaption>{_shares(photo.predictions)}</figure>"
        for photo in found.photos
    )
    return f"""<p><code>bcnn predict photo.jpg</code> asks the <code>imagenette</code> model ({html.escape(found.photo_top1)}).
It knows {len(found.knows)} classes and nothing else: {html.escape(", ".join(found.knows))}. <b>A palace and a flower are none of them</b>, so both answers
must be wrong: a classifier has to choose, and its probabilities say how it is divided among what it knows, not whether it has seen such a thing.</p>
<div class="photos">{figures}</div>
<p class="soft">Photos by danielbuechele, CC BY 2.0, as distributed with scikit-learn.</p>"""


def _jpeg(photo: Photo) -> str:
    buffer = io.BytesIO()
    Image.fromarray(photo.pixels).save(buffer, "JPEG", quality=85)
    return image(buffer.getvalue(), photo.caption, "jpeg")


def _shares(predictions: Sequence[tuple[str, float]]) -> str:
    """A bar for each answer, as a share of 1."""
    return "".join(
        f'<div class="bar"><span>{html.escape(label)}</span><span class="track"><i class="bit" style="width:{share:.1%}"></i></span>'
        f"<span>{share:.1%}</span></div>"
        for label, share in predictions
    )
