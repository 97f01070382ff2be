"""The shipped models' own metadata -> docs/models.md, with curves and confusion matrices in docs/images. For maintainers.

    python -m tools.pages.cards

Nothing on the page is written by hand: text, tables and pictures come out of the packed files (`bcnn.packed.card`). A test
compares the text with the files.
"""

from __future__ import annotations

from pathlib import Path

from bcnn.counting.counts import count
from bcnn.nets.config import from_dict
from bcnn.packed import shipped
from bcnn.packed.card import Card, of
from bcnn.packed.packfile import Packed, open_packed

ROOT = Path(__file__).resolve().parents[2]
PAGE, IMAGES = ROOT / "docs" / "models.md", ROOT / "docs" / "images"
HEAD = """# Shipped models

Trained with this package's own recipes on CPU cores, packed to one bit a weight, and part of every install: `bcnn models` lists them, `bcnn.load("NAME")`
runs one without torch. This page is made from what the packed files say about themselves by `python -m tools.pages.cards`.

Top-1 below is of the packed file in the engine, on the whole evaluation split of its data set. "In float32" is the network before it was
turned into integers, and the share of images for which both have the same first choice; "torch agrees" is the share for which the trained network in torch has
that of the float32 one. `bcnn eval NAME --data PATH` measures top-1 again.

"""
MANY = 30  # classes: of more, the best and the worst ten are listed


def models() -> dict[str, tuple[Packed, Card]]:
    """The shipped models that have a card, which are all of them."""
    opened = {name: open_packed(shipped.find(name)) for name in shipped.names()}
    return {name: (packed, card) for name, packed in opened.items() if (card := of(packed.program))}


def page() -> str:
    found = models()
    rows = [
        f"| [{name}](#{name}) | {card.title} | {_size(packed)} | {card.top1:.2%} | {_float(card)} | {card.agreement:.2%} "
        f"| {_macs(packed) / 1e6:,.1f} M | {_numbers(packed)} | {packed.sizes.total:,} |\n"
        for name, (packed, card) in found.items()
    ]
    table = (
        "| model | what | input | top-1 | in float32 | torch agrees | binary MACs | numbers | bytes |\n"
        "|---|---|---|---:|---:|---:|---:|---|---:|\n" + "".join(rows)
    )
    return HEAD + table + "".join(section(name, packed, card) for name, (packed, card) in found.items())


def section(name: str, packed: Packed, card: Card) -> str:
    provenance, sizes, labels = packed.program.provenance, packed.sizes, packed.program.labels
    height, width, _ = packed.program.shapes[0]
    counts = count(from_dict(provenance["config"]["network"])).counts
    trained = {step["name"]: step for step in provenance["config"]["steps"]}
    steps = "".join(
        f"| {step} | {trained[step]['weights']} | {round(height * trained[step]['size'])} x {round(width * trained[step]['size'])} "
        f"| {trained[step]['warmup']} + {trained[step]['epochs']} | {trained[step]['lr']:g} | {share:.2%} |\n"
        for step, share in card.steps.items()
    )
    classes = "".join(
        f"| {labels[i]} | {sum(card.confusion[i]):,} | {_recognised(card, i):.1%} | {_mistaken(labels, card.confusion[i], i)} |\n"
        for i in _listed(card)
    )
    if len(labels) > MANY:
        classes += "\nThe ten best and the ten worst of them.\n"
    return f"""
## {name}

**{card.title}.** {card.about}

**What it cannot do.** {card.limits}

**Data.** {card.data}: {card.train_images:,} training images, {card.images:,} for evaluation. {card.licence}

**Training.** Recipe `{provenance["recipe"]}`, seed {provenance["seed"]}, {card.minutes:g} minutes on {card.hardware}, started {card.trained}. How it came about, and
at which size its steps were tested: [recipes.py](../src/bcnn/training/recipes.py).

| step | weights | trained at | epochs | learning rate | top-1 in torch |
|---|---|---:|---:|---:|---:|
{steps}| **packed file, engine ({card.engine}), {card.measured}** | **1 bit** | | | | **{card.top1:.2%}** |
{_converted(packed, card)}
**Size.** {counts.binary_params:,} binary and {counts.real_params:,} real parameters; {counts.binary_macs:,} binary and {counts.real_macs:,} real
multiply-accumulates an image. On disk {sizes.binary_weights:,} bytes of bits + {sizes.real_parameters + sizes.indices:,} of real parameters ({_numbers(packed)}) + {sizes.test_logits:,} of test logits +
{sizes.header:,} of header (ops, class names, hashes, this card) = {sizes.total:,} bytes.

| class | images | recognised | most often taken for |
|---|---:|---:|---|
{classes}
![Training curves of {name}](images/model_{name}_curves.png)

![Confusion matrix of {name}](images/model_{name}_confusion.png)
"""


def _numbers(packed: Packed) -> str:
    """Of its maps, and of its real parameters."""
    program = packed.program
    return program.numbers if program.numbers == "float32" else f"int16, parameters {program.provenance['parameters']}"


def _float(card: Card) -> str:
    return "" if card.float_top1 is None else f"{card.float_top1:.2%}, same {card.float_same or 0:.2%}"


def _converted(packed: Packed, card: Card) -> str:
    """A paragraph about a file in integers."""
    if card.float_top1 is None:
        return ""
    provenance = packed.program.provenance
    return f"""
**In integers.** Maps of 16 bits, real parameters of {provenance["parameters"].removeprefix("int")}, formats calibrated on {provenance["calibrated_on"]}: no float between image and
logits. In float32 the same network has {card.float_top1:.2%}, and the same first choice for {card.float_same or 0:.2%} of the images: one sign that flips spreads,
so that is bounded by the network, not by the arithmetic.
"""


def _recognised(card: Card, i: int) -> float:
    return card.confusion[i][i] / max(1, sum(card.confusion[i]))


def _listed(card: Card) -> list[int]:
    """Classes that get a row: all, or of many the best and the worst ten."""
    classes = list(range(len(card.confusion)))
    if len(classes) <= MANY:
        return classes
    order = sorted(classes, key=lambda i: -_recognised(card, i))
    return [*order[:10], *order[-10:]]


def _mistaken(labels: tuple[str, ...], row: list[int], true: int) -> str:
    wrong = [
        (-number, label) for i, (label, number) in enumerate(zip(labels, row, strict=True)) if i != true and number
    ]
    return f"{min(wrong)[1]} ({-min(wrong)[0]})" if wrong else ""


def _size(packed: Packed) -> str:
    height, width, _ = packed.program.shapes[0]
    return f"{height} x {width}"


def _macs(packed: Packed) -> int:
    return count(from_dict(packed.program.provenance["config"]["network"])).counts.binary_macs


def pictures() -> None:
    import numpy as np

    from bcnn.training import plots

    for name, (packed, card) in models().items():
        epochs = card.epochs()
        plots.curves(epochs, epochs).savefig(IMAGES / f"model_{name}_curves.png", dpi=80)
        figure = plots.confusion(np.array(card.confusion), packed.program.labels)
        figure.savefig(IMAGES / f"model_{name}_confusion.png", dpi=80)


def main() -> None:
    pictures()
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} and the pictures of {', '.join(models())}")


if __name__ == "__main__":
    main()
