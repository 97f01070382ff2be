"""`bcnn bench`: how fast the engine runs a network here and where the time goes; with `--rivals`, how fast others run it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bcnn.base.files import write_atomic
from bcnn.cli.app import app, err
from bcnn.cli.options import SizeOption, given

ROUNDS = 30  # about 40 s for all rivals on the paper's network


@app.command()
def bench(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|FILE|NAME|RUN|FILE.py:FUNCTION",
            help="A shipped model, a packed file, a registered network, a config file (.json, .toml), a run, or your own.",
        ),
    ] = "imagenet",
    size: SizeOption = "",
    threads: Annotated[int, typer.Option(min=1, help="Threads of every contestant.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Turns: each contestant is timed once a turn.")] = ROUNDS,
    rivals: Annotated[
        bool, typer.Option(help="Also PyTorch, ONNX Runtime, OpenVINO: pip install 'bcnn\\[bench]'.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Also write the result to this file.")] = None,
) -> None:
    """Time one image through a network: min and median of interleaved runs, each contestant checked before it is timed.

    A registered network gets random parameters, on which time does not depend.

    [bold]Examples[/bold]

      bcnn bench
      bcnn bench model.bcnn --threads 2
      bcnn bench imagenet --rivals --json result.json
      bcnn bench birealnet-18
      bcnn bench mine.py:make --size 180x240
    """
    # Before torch or NumPy's libraries start their own threads, beside ours.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    from bcnn.bench import rivals as contestants
    from bcnn.models.bench import job as job_of

    both = (contestants.ENGINE, contestants.INTEGERS)
    makers = {name: maker for name, maker in contestants.MAKERS.items() if rivals or name in both}
    job = job_of(model, threads, given(size))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("", total=len(makers))
        result = contestants.contest(
            job,
            rounds,
            makers,
            on_made=lambda name: progress.update(task, description=f"checking {name}", advance=1),
            on_round=lambda done: progress.update(task, description="timing", completed=done, total=rounds),
        )
    text, more = result.text(), {}
    if result.row(contestants.ENGINE):
        from bcnn.bench import ops
        from bcnn.engine import Engine

        profile = ops.profile(Engine(job.program, threads=1), job.image)
        engine = Engine(job.program, threads=threads)
        text += f"\n{ops.throughput(engine, job.image)}"
        text += f"memory of one inference: {engine.peak_memory / 1024:.0f} KiB beside {engine.weight_memory / 1024:.0f} KiB of weights\n"
        text += f"\none thread, op by op\n{profile.text()}"
        more = {"ops": dataclasses.asdict(profile)}
    print(text, end="")
    if json is not None:
        write_atomic(json, result.json(**more).encode())
