"""Your own photos -> a packed classifier that runs without torch.

One folder per class, photos/cat/*.jpg, photos/dog/*.jpg; a fifth of each is split off to measure on. If you have a split of
your own, make it photos/train/cat, photos/val/cat, ... A few hundred photos a class are a start. Then, with `bcnn[train]` installed:

    python examples/own_photos.py photos runs/photos
    bcnn predict new_photo.jpg --model runs/photos/model.bcnn

Trained with the paper's two steps: step 1 with real weights, step 2 with binary ones. runs/photos/report.html has the curves;
`bcnn train --resume --out runs/photos` continues a run that was stopped.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import bcnn
from bcnn.models.evaluate import measure
from bcnn.training.recipes import recipe
from bcnn.training.run import TrainingRun
from bcnn.training.run_folder import RunFolder
from bcnn.training.run_training import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="folder of class folders")
    parser.add_argument("run", type=Path, help="new folder for the run and model.bcnn")
    parser.add_argument("--size", type=int, default=128, help="side of the network's input, a multiple of 32")
    parser.add_argument("--epochs", type=int, default=30, help="of step 2; step 1 gets a third")
    arguments = parser.parse_args()

    # A run is a complete config, and a variant replaces fields. The number of classes follows from the folders.
    base = recipe("imagenette")
    step1, step2 = (replace(step, size=1.0) for step in base.steps[:2])  # the recipe begins with smaller images
    config = replace(
        base,
        recipe="own-photos",
        network=base.network.replace(name="own-photos", image_size=arguments.size),
        data=replace(base.data, source=str(arguments.photos)),
        steps=(replace(step1, epochs=max(1, arguments.epochs // 3)), replace(step2, epochs=arguments.epochs)),
    )
    train(TrainingRun(config, RunFolder(arguments.run)))

    model = arguments.run / "model.bcnn"
    sizes = bcnn.pack(arguments.run, model)
    for check in bcnn.verify(model, checkpoint=arguments.run):  # what was trained is what runs
        print("pass" if check.passed else "FAIL", check.name, check.detail, sep="  ")
    scores = measure(str(model), str(arguments.photos)).scores
    print(f"{scores.top1:.1%} of {scores.count} photos right in the engine; {model}: {sizes.total:,} bytes")


if __name__ == "__main__":
    try:
        main()
    except bcnn.UserError as error:
        sys.exit(f"own_photos: {error}")
