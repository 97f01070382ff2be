"""`bcnn quickstart`: the walk from the paper to a label in about a minute, on data that ships with scikit-learn.

It prints as it goes, and leaves a page with pictures, `models.quickstart_page`, to look at and to send around.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.columns import Columns
from rich.rule import Rule

from bcnn.base.errors import UserError
from bcnn.cli.app import app, err, out
from bcnn.nets.config import NetworkConfig

if TYPE_CHECKING:
    from bcnn.models.quickstart import Sample


@app.command(name="quickstart")
def walk(
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Where the run, the packed file and the page go; runs/quickstart if not given."),
    ] = None,
) -> None:
    """Count, train, audit, pack, verify, time and use a small network: everything here, once, in about a minute.

    [bold]Example[/bold]

    bcnn quickstart
    """
    from bcnn.base.files import write_atomic
    from bcnn.cli.deploy import print_checks
    from bcnn.cli.tables import size_table
    from bcnn.counting.audit import audit
    from bcnn.counting.counts import count
    from bcnn.exports import web
    from bcnn.lowering.lower import normalised
    from bcnn.models import quickstart
    from bcnn.models.load import load
    from bcnn.models.pack import pack
    from bcnn.models.quickstart_page import WEB, page
    from bcnn.packed import packfile
    from bcnn.packed.shipped import DEFAULT
    from bcnn.training.batches import open_data
    from bcnn.training.interrupt import Stopped
    from bcnn.training.recipes import recipe
    from bcnn.training.run import TrainingRun
    from bcnn.training.run_folder import RunFolder, free_folder
    from bcnn.training.run_training import train
    from bcnn.verification import verify_torch

    config = recipe("digits")
    assert isinstance(config.network, NetworkConfig)
    folder = folder or free_folder("quickstart")
    packed = folder / "digits.bcnn"

    out.print(Rule("1. count: the network from its config alone"))
    tree = count(config.network)
    counts = tree.counts
    out.print(f"{counts.binary_params:,} binary and {counts.real_params:,} real parameters")
    out.print(f"{counts.binary_macs:,} binary and {counts.real_macs:,} real multiply-accumulates an image")

    out.print(Rule("2. train: step 1 with real weights, step 2 with binary ones"))
    try:
        train(TrainingRun(config, RunFolder(folder)))
    except Stopped as stopped:  # it has said how to continue
        raise typer.Exit(128 + stopped.signal_number) from None

    out.print(Rule("3. audit: is every matrix product 1 bit x 1 bit?"))
    trained = verify_torch.of_checkpoint(folder)
    network, meta = trained.module, trained.meta
    test = open_data(config.data, config.network.image_size).val
    assert test.pixels is not None  # the digits are small enough to be kept in memory
    report = audit(network, normalised(test.pixels[:1], meta.mean, meta.std))
    if not report.passes:
        raise UserError(f"{report.failures[0].module} multiplies {report.failures[0].bits} bits, not 1 x 1")
    out.print(f"all {len(report.matrix)} matrix-matrix products are 1 x 1 bit")

    out.print(Rule("4. pack: one bit a weight"))
    sizes = pack(folder, packed)
    out.print(size_table(sizes))
    floats = 4 * sum(parameter.numel() for parameter in network.parameters())
    out.print(f"the parameters alone in float32: {floats:,} bytes, {floats / sizes.total:.1f} times the packed file")

    out.print(Rule("5. verify: what was trained is what runs"))
    if not print_checks(packed, folder):
        raise UserError(f"{packed} is not what was trained; see the check that failed")

    out.print(Rule("6. run, without torch"))
    engine = load(packed, threads=1)
    samples = quickstart.answers(engine, test.pixels, [engine.program.labels[i] for i in test.labels])
    right = sum(sample.right for sample in samples)
    out.print(f"{right} of {len(samples)} test images right: {right / len(samples):.2%}")
    times = quickstart.race(engine, trained.logits, test.pixels[:1])
    fast, slow = times["engine"], times["torch"]
    out.print(
        f"one image, one thread, min (median) of {fast.samples} turns: engine {fast.min:.3f} ({fast.median:.3f}) ms, "
        f"torch {slow.min:.3f} ({slow.median:.3f}) ms: {slow.min / fast.min:.0f} times as long",
        soft_wrap=True,
    )
    out.print(Columns([_picture(sample) for sample in samples[:4]], padding=(0, 3)))

    out.print(Rule("7. the models that come with the package"))
    known = quickstart.classify(test.pixels, [sample.label for sample in samples])
    for photo in known.photos:
        says = ", ".join(f"{label} {share:.0%}" for label, share in photo.predictions)
        out.print(f"{DEFAULT}: {photo.caption}; says {says}", highlight=False, soft_wrap=True)
    if known.knows:
        out.print(
            f"it knows {len(known.knows)} classes only: {', '.join(known.knows)}", highlight=False, soft_wrap=True
        )
    out.print(f"digits: {known.right} of {len(known.digits)} test images right", highlight=False)

    out.print(Rule("8. look at it"))
    with err.status("Building a binary network for sin(x) / x, as in section 3 of the paper ..."):
        drawn = quickstart.approximator(folder / "approximator.png")
    found = quickstart.Quickstart(
        RunFolder(folder),
        tree,
        len(report.matrix),
        sizes,
        floats,
        samples,
        times,
        engine.isa,
        drawn,
        known,
    )
    web.export(packfile.open_packed(packed), folder / WEB)
    write_atomic(folder / "index.html", page(found).encode("utf-8", "backslashreplace"))
    out.print(
        f"{folder / WEB} runs the network in a browser: drop a picture of a digit onto it",
        highlight=False,
        soft_wrap=True,
    )
    out.print(f"open {folder / 'index.html'} in a browser; next: bcnn info {packed}", highlight=False, soft_wrap=True)


def _picture(sample: Sample) -> str:
    """A small grey image in characters, two wide a pixel, over what the engine says it is."""
    shades = " .:-=+*#%@"
    rows = ["".join(shades[int(pixel) * len(shades) // 256] * 2 for pixel in row) for row in sample.pixels[..., 0]]
    label, probability = sample.predictions[0]
    return "\n".join([*rows, f"{label}  {probability:.0%}"])
