"""Who is in which COCO photo: labels, boxes and roles for the person detector.

    python tools/knowledge/person_data.py --data DATA --arrays ARRAYS

Writes ARRAYS/person.npz, in the order of ARRAYS/coco.txt:

    label  1 a person of at least 0.5 % of the picture, 0 none, -1 unknown (persons only below that, in a photo not completely labelled)
    sure   whether the label is known: completely labelled photos, and photos with a listed person
    role   TRAIN, HELD (1,000 completely labelled photos for choices), LEFT_OUT (the 5,000 test photos; see splits.py)
    first, boxes    boxes of photo i: boxes[first[i] : first[i + 1]], each left, top, right, bottom in fractions

A photo on neither list probably shows no person: 12 % do. Its label is 0 and not sure; a teacher corrects it (person_teacher.py).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import splits

SMALLEST = 0.005  # of the picture: the rule of visual wake words
HELD_OUT = 1000
PERSON = "1"  # COCO's category


def persons(path: Path, complete: bool) -> list[tuple[float, float, float, float]]:
    """Boxes of persons in a label file: `photo category cx cy w h` where all things are listed, `0 cx cy w h ...` where persons are."""
    found = []
    for line in path.read_text().splitlines():
        fields = line.split()
        if complete and fields[1] != PERSON:
            continue
        x, y, w, h = map(float, fields[2:6] if complete else fields[1:5])
        found.append((x - w / 2, y - h / 2, x + w / 2, y + h / 2))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("DATA"))
    parser.add_argument("--arrays", type=Path, default=Path("ARRAYS"))
    arguments = parser.parse_args()
    data = arguments.data
    names = [Path(line).stem for line in (arguments.arrays / "coco.txt").read_text().split()]
    complete = {path.stem: path for path in (data / "dyuan/labels/train").glob("*.txt")}
    listed = {path.stem: path for path in (data / "jar/labels/train2017").glob("*.txt")}
    tested = set(splits.person_test(data))
    held = set(sorted(complete.keys() - tested, key=splits.name_hash)[:HELD_OUT])

    label, sure, role = (np.zeros(len(names), np.int8) for _ in range(3))
    first, boxes = [0], []
    for i, name in enumerate(names):
        known = name in complete
        found = persons(complete[name], True) if known else persons(listed[name], False) if name in listed else []
        large = any((right - left) * (bottom - top) >= SMALLEST for left, top, right, bottom in found)
        label[i] = 1 if large else 0 if known or not found else -1
        sure[i] = known or large
        role[i] = splits.LEFT_OUT if name in tested else splits.HELD if name in held else splits.TRAIN
        boxes += found
        first.append(len(boxes))
    # Near-duplicates of test photos are left out here, too.
    near = (np.load(arguments.arrays / "splits.npz")["coco_nearest"] <= splits.NEAR) & (role == splits.TRAIN)
    role[near] = splits.LEFT_OUT
    boxes = np.array(boxes, np.float32)
    np.savez(arguments.arrays / "person.npz", label=label, sure=sure, role=role, first=np.array(first), boxes=boxes)
    for number, part in ((splits.TRAIN, "train"), (splits.HELD, "held out"), (splits.LEFT_OUT, "left out")):
        here = role == number
        parts = [(here & (label == value) & (sure == s)).sum() for value, s in ((1, 1), (0, 1), (0, 0), (-1, 0))]
        print(f"{part}: person {parts[0]:,}, none {parts[1]:,}, probably none {parts[2]:,}, unknown {parts[3]:,}")


if __name__ == "__main__":
    main()
