"""The classes of a data set as a person wants to see them before anything is trained: names, images, what looks wrong. No torch."""

from __future__ import annotations

import numpy as np

from bcnn.data.sources import Source

FEWEST_IMAGES = 20  # training images of a class: below, what is learned of it is a guess
MAX_IMBALANCE = 10.0  # times as many images as another class: the network will prefer the larger
MAX_CLASSES_SHOWN = 40  # classes: of more, the first and the smallest are shown


def counts(source: Source) -> tuple[list[int], list[int]]:
    """Training and evaluation images of each class."""
    n = len(source.classes)
    return (
        np.bincount(source.train.labels, minlength=n).tolist(),
        np.bincount(source.val.labels, minlength=n).tolist(),
    )


def table(source: Source) -> list[str]:
    """A line a class, and the sums."""
    train, val = counts(source)
    width = min(40, max(len("class"), *(len(name) for name in source.classes)))
    row = f"{{:<{width}}} {{:>9}} {{:>11}}"
    lines = [row.format("class", "training", "evaluation")]
    shown = range(len(source.classes))
    if len(shown) > MAX_CLASSES_SHOWN:
        smallest = sorted(shown, key=lambda i: (train[i], i))[:5]
        lines.append(f"the first 10 of {len(source.classes)} classes, and the 5 with the fewest training images:")
        shown = [*range(10), *(i for i in smallest if i >= 10)]  # type: ignore[assignment]
    lines += [row.format(source.classes[i][:width], f"{train[i]:,}", f"{val[i]:,}") for i in shown]
    lines.append(row.format("all", f"{sum(train):,}", f"{sum(val):,}"))
    unused = f"; not used: {', '.join(source.unused)}" if source.unused else ""
    lines.append(f"accuracy is measured on: {source.evaluation}{unused}")
    return lines


def warnings(source: Source) -> list[str]:
    """What a person should look at before an hour is spent. Empty classes and missing sides are among `source.notes` already."""
    train, val = counts(source)
    found = []
    tiny = [(name, count) for name, count in zip(source.classes, train, strict=True) if count < FEWEST_IMAGES]
    if tiny:
        named = ", ".join(f"{name!r} ({count})" for name, count in tiny[:5])
        more = f" and {len(tiny) - 5} more" if len(tiny) > 5 else ""
        found.append(
            f"fewer than {FEWEST_IMAGES} training images: {named}{more}; what is learned of such a class is a guess"
        )
    low, high = min(train), max(train)
    if low and high / low >= MAX_IMBALANCE:
        few, many = source.classes[train.index(low)], source.classes[train.index(high)]
        found.append(
            f"{many!r} has {high / low:.0f} times the images of {few!r}: in doubt the network will say {many!r}"
        )
    if source.val is not source.train and 0 < sum(val) < 5 * len(source.classes):
        found.append(f"{sum(val)} evaluation images are few: one more or less right is {1 / sum(val):.1%}")
    return found
