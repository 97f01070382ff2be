"""Find the images of a data set: what `data.source` names -> files or arrays with a class index each. No torch.

Layouts: `digits` (embedded in scikit-learn); a folder with train/CLASS/* and val/CLASS/* or test/CLASS/*; a folder of
CLASS/* alone, from which validation images are split off; CIFAR's python batches. Classes are the folder names in sorted order.
A test folder is for the end: during training accuracy is measured on val, or on images split off; `bcnn eval` takes test where there is no val.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bcnn.base.errors import UserError
from bcnn.base.images import SUFFIXES, below
from bcnn.base.progress_log import watched
from bcnn.data import cifar
from bcnn.data.config import DataConfig

# How folders spell the splits of a data set, in any case. A folder of such a name is never a class.
SPLITS = {"train": ("train", "training"), "val": ("val", "valid", "validation"), "test": ("test",)}
SPLIT_SHARE = 0.2  # share split off where a data set has no evaluation images of its own
# Photos by their name that Pillow does not read by itself: not looked at, but said, or a phone's photos would vanish in silence.
UNREAD_SUFFIXES = frozenset([".heic", ".heif", ".jxl", ".dng", ".cr2", ".nef", ".arw"])


@dataclass(frozen=True, eq=False)
class Images:
    """One split before decoding: files, or uint8 N,H,W,3; and a class index for each."""

    items: Sequence[Path] | NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: NDArray[np.bool_]) -> Images:
        if isinstance(self.items, np.ndarray):
            return Images(self.items[chosen], self.labels[chosen])
        if not isinstance(self.items, list):  # `objects.Lazy`
            return Images(self.items.take(chosen), self.labels[chosen])  # type: ignore[attr-defined]
        return Images([item for item, keep in zip(self.items, chosen, strict=True) if keep], self.labels[chosen])

    def keys(self) -> list[str]:
        """A name for each image that does not depend on where the data set lies or on its other images."""
        if not isinstance(self.items, list):
            return [str(i) for i in range(len(self))]
        return [f"{path.parent.name}/{path.name}" for path in self.items]


@dataclass(frozen=True, eq=False)
class Source:
    classes: tuple[str, ...]
    train: Images
    val: Images  # what accuracy is measured on during the run
    notes: tuple[str, ...] = field(default=())  # what was decided about a data set that is not quite regular
    evaluation: str = "the data set's own"  # where the evaluation images come from
    unused: tuple[str, ...] = ()  # splits that this run does not look at


def check_labels(labels: tuple[str, ...]) -> None:
    """As a packed file will want them: found out now, not after days of training."""
    for label in labels:
        if not label.isprintable() or not label.strip():
            raise UserError(
                f"class {label!a} cannot be a label of a packed file: its name must be printable text; rename its folder"
            )
    if len(set(labels)) != len(labels):
        raise UserError("two classes of the data have the same name; rename one")


def find(source: str, hold_out: float = 0.0, strict: bool = False, split: str = "", training: bool = True) -> Source:
    """The data set that `source` names. `split` asks for another evaluation split of a folder than the usual one.

    Without `training`, evaluation images are enough: a folder of val/CLASS/* alone will do.
    """
    batches = cifar.find(Path(source)) if source not in ("", "digits") else None
    if split and (source == "digits" or (batches and split != "test")):  # the batches have a test split, and use it
        raise UserError(f"{source} has no split {split!r}: only a data set of folders can be asked for one")
    if source == "digits":
        found = _digits()
    elif not source:
        raise UserError("no data set named; give a folder with --data PATH, or --data digits")
    elif not Path(source).is_dir():
        raise UserError(f"no data set at {source}: not a folder, and the only embedded one is 'digits'")
    elif batches:
        classes, train_arrays, test_arrays = cifar.load(*batches)
        found = Source(classes, Images(*train_arrays), Images(*test_arrays))
    else:
        found = _folders(Path(source), strict, split, training)
    if hold_out:
        train, val = split_off(found.train, hold_out)
        note = (
            f"accuracy is measured on {len(val)} held-out training images, not on the {len(found.val)} of the data set"
        )
        found = Source(
            found.classes, train, val, (*found.notes, note), "held out from the training images", found.unused
        )
    if not len(found.val):
        note = "too few images to split any off: accuracy is measured on the training images themselves"
        found = Source(found.classes, found.train, found.train, (*found.notes, note), "the training images themselves")
    return found


def find_source(config: DataConfig, found: Source | None = None) -> Source:
    """The images that a run trains and measures on, before any is read; of those `found` already, if they are."""
    found = found or find(config.source, config.hold_out, config.strict, config.evaluate)
    return part(found, config.share) if config.share < 1 else found


def split_off(images: Images, share: float) -> tuple[Images, Images]:
    """(kept, split off): in each class the images whose names have the smallest hashes, so an added image moves no other.

    A class keeps at least one image, and gives at least one if it has two.
    """
    off = np.zeros(len(images), dtype=np.bool_)
    for members in by_hash(images):
        count = min(len(members) - 1, max(1, round(share * len(members))))
        off[members[:count]] = True
    return images.take(~off), images.take(off)


def part(source: Source, share: float) -> Source:
    """That share of the images of each class, on both sides."""
    note = f"{share:.0%} of the images are used, chosen by their names"
    train, val = split_off(source.train, share)[1], split_off(source.val, share)[1]
    return replace(source, train=train, val=val, notes=(*source.notes, note))


def by_hash(images: Images) -> Iterator[NDArray[np.int64]]:
    """The images of each class in the order of their names' hashes: as good as by chance, and an added image moves no two others."""
    digests = np.array([hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest() for key in images.keys()])  # noqa: SIM118 (not a dict)
    for label in np.unique(images.labels):
        members = np.flatnonzero(images.labels == label)
        yield members[np.argsort(digests[members], kind="stable")]


def _digits() -> Source:
    """1,797 grey 8x8 digits with values 0 to 16, as RGB; a fixed fifth of each class is for evaluation."""
    from sklearn.datasets import load_digits

    data = load_digits()
    grey = np.round(data.images * (255 / 16)).astype(np.uint8)
    images = Images(np.repeat(grey[..., None], 3, axis=3), data.target.astype(np.int64))
    train, val = split_off(images, SPLIT_SHARE)
    return Source(tuple(str(digit) for digit in range(10)), train, val)


def splits_of(root: Path) -> dict[str, Path]:
    """train, val and test -> the folder that means it, however it is spelled. Such a folder is never a class."""
    found: dict[str, Path] = {}
    for child in sorted(root.iterdir()):
        for split, spellings in SPLITS.items():
            if child.name.lower() in spellings and child.is_dir():
                if split in found:
                    raise UserError(f"{found[split]} and {child} both mean {split}: rename one")
                found[split] = child
    return found


def _split_named(root: Path, splits: dict[str, Path], name: str) -> Path:
    wanted = next((split for split, spellings in SPLITS.items() if name.lower() in spellings), name)
    if wanted not in splits:
        raise UserError(f"{root} has no split {name!r}: no such folder")
    return splits[wanted]


def _folders(root: Path, strict: bool, split: str, training: bool) -> Source:
    notes: list[str] = []
    splits = splits_of(root)
    asked = _split_named(root, splits, split) if split and splits else None
    train_root = splits.get("train", root)
    found = _listing(train_root)
    notes += _unread(root)
    if "train" not in splits:
        found = {name: files for name, files in found.items() if root / name not in splits.values()}
    if not found and splits and "train" not in splits:
        if training:
            beside = "/".join(sorted(folder.name for folder in splits.values()))
            raise UserError(f"{root} has no training images: expected {root}/train/CLASS/*.jpg beside {beside}")
        train_root = asked or splits.get("val") or splits["test"]
        asked = train_root
        found = _listing(train_root)
    if not found:
        raise UserError(f"{train_root} has no class folders; expected {train_root}/CLASS/*.jpg")
    if not any(found.values()):
        raise UserError(". ".join([f"{train_root} has class folders, but no image in them", *notes]))
    for name in [name for name, files in found.items() if not files]:
        if strict:
            raise UserError(f"class {name!r} has no image in {train_root}")
        notes.append(f"class {name!r} has no image in {train_root}: left out")
        del found[name]
    if len(found) < 2:
        raise UserError(f"{train_root} has images of {len(found)} class; a classifier needs two or more")
    classes = tuple(sorted(found))
    train = _images(found, classes)
    evaluate = asked or splits.get("val") or (None if training else splits.get("test"))
    if split and evaluate is None:
        raise UserError(f"{root} has no split {split!r}: no such folder")
    unused = tuple(folder.name for folder in splits.values() if folder not in (evaluate, train_root))
    if evaluate is None:
        kept, val = split_off(train, SPLIT_SHARE)
        notes.append(f"no val folder: {len(val)} of {len(train)} images split off by their names")
        if "test" in splits and training:
            notes.append(
                f"{splits['test']} is not looked at during training; measure on it once, at the end: bcnn eval RUN --data {root} --split test"
            )
        return Source(classes, kept, val, tuple(notes), "split off from the training images", unused)
    evaluation = _listing(evaluate)
    for name in [name for name in evaluation if name not in classes]:
        if evaluation[name]:
            raise UserError(f"class {name!r} is in {evaluate} but has no training images in {train_root}")
        del evaluation[name]
    notes += [f"class {name!r} has no image in {evaluate}" for name in classes if not evaluation.get(name)]
    return Source(classes, train, _images(evaluation, classes), tuple(notes), f"folder {evaluate.name}", unused)


def _listing(folder: Path) -> dict[str, list[Path]]:
    """Class name -> its images, in sorted order; hidden folders and files that are no images are not looked at."""
    return {
        child.name: sorted(
            p
            for p in watched(below(child), f"looking for images in {child}")
            if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")
        )
        for child in sorted(folder.iterdir())
        if child.is_dir() and not child.name.startswith(".")
    }


def _unread(root: Path) -> list[str]:
    """A sentence on photos of formats that cannot be read here."""
    files = sorted(p for p in root.rglob("*") if p.suffix.lower() in UNREAD_SUFFIXES and not p.name.startswith("."))
    if not files:
        return []
    kinds = ", ".join(sorted({path.suffix.lower() for path in files}))
    return [f"{len(files)} files such as {files[0]} are not read ({kinds}): convert them to JPEG or PNG"]


def _images(listing: dict[str, list[Path]], classes: tuple[str, ...]) -> Images:
    files = [path for name in classes for path in listing.get(name, [])]
    labels = [i for i, name in enumerate(classes) for _ in listing.get(name, [])]
    return Images(files, np.asarray(labels, dtype=np.int64))
