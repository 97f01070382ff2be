"""The verb `approximate`: section 3 of the paper on a function of your own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from bcnn.base.errors import UserError
from bcnn.cli.app import app, check_picture, err, out

if TYPE_CHECKING:
    from bcnn.theory.construction import Approximator
    from bcnn.theory.convergence import Point, Setting

SUFFIXES = (".png", ".svg", ".pdf")


@app.command()
def approximate(
    function: Annotated[
        str,
        typer.Argument(
            help="An expression in x (or x, y, z; several separated by commas are several outputs), "
            "or an example: step, sinc, ripple, picture."
        ),
    ],
    d: Annotated[
        float | None,
        typer.Option(
            "--d",
            help="Width of the rectangles; must divide the domain. By default 1/100 of it (x, y: 1/20; x, y, z: 1/8).",
        ),
    ] = None,
    q: Annotated[
        float | None,
        typer.Option("--q", help="Q: sub branches for a height of 1. By default 64, or 16 for several coordinates."),
    ] = None,
    domain: Annotated[
        list[str] | None, typer.Option(help="MIN,MAX of x; give it again for y and z. The default is 0,1.")
    ] = None,
    jumps: Annotated[
        list[str] | None, typer.Option(help="Where f jumps, as A,B,...; give it again for y and z (- for none).")
    ] = None,
    ends: Annotated[bool | None, typer.Option("--ends/--no-ends", help="Half-width rectangles at both ends.")] = None,
    adaptive: Annotated[bool, typer.Option(help="Narrow rectangles where f varies much.")] = False,
    lipschitz: Annotated[
        float | None,
        typer.Option(help="A known Lipschitz constant of f, for the bound; otherwise slopes are estimated."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw f, its network, the error, the convergence over d and Q.")
    ] = None,
    implications: Annotated[Path | None, typer.Option(help="Draw section 3.2 for a function of x.")] = None,
    anatomy: Annotated[
        Path | None, typer.Option(help="Draw what each layer makes of x; best with few cells and a small Q.")
    ] = None,
    pack: Annotated[Path | None, typer.Option(help="Write the network as a packed file for the engine.")] = None,
) -> None:
    """Build the binary network of Fig. 1 for a function, and show how near it comes.

    \b
    Examples:
      bcnn approximate "sin(6*x)" --d 0.01 --q 64 --plot out.png
      bcnn approximate "x*y, x - y" --domain -1,1 --domain -1,1 --d 0.1
      bcnn approximate picture --plot picture.png --pack picture.bcnn
    """
    for path in (plot, implications, anatomy):
        if path is not None:
            check_picture(path, SUFFIXES)
    title, setting, widths, steps = _setting(function, domain, d, q, jumps, ends, adaptive, lipschitz)
    if len(widths) > 1 and (implications or anatomy):
        raise UserError(
            f"--implications and --anatomy draw a function of x alone; {function!r} has {len(widths)} coordinates"
        )

    from bcnn import theory
    from bcnn.theory.bound import errors

    with err.status("Building and measuring ..."):
        channels = None if pack is None else 3
        network = theory.Approximator(setting.plan(widths, steps, channels=channels))
        largest, mean = errors(network, setting.f)
        bound = setting.bound(network.plan)
    _print(title, network, largest, mean, bound, known=lipschitz is not None)
    if plot is not None:
        _plot(setting, network, widths[0], steps, title, plot)
    if implications is not None:
        from bcnn.theory.implications import draw_implications

        draw_implications(
            setting,
            widths[0],
            steps,
            title,
            implications,
            track=lambda items: track(items, "Drawing", console=err, transient=True),
        )
        out.print(f"Wrote {escape(str(implications))}")
    if anatomy is not None:
        from bcnn.theory.anatomy import draw_anatomy

        draw_anatomy(setting, network, title, anatomy)
        out.print(f"Wrote {escape(str(anatomy))}")
    if pack is not None:
        _pack(network, title, pack)


def _setting(
    function: str,
    domain: list[str] | None,
    d: float | None,
    q: float | None,
    jumps: list[str] | None,
    ends: bool | None,
    adaptive: bool,
    lipschitz: float | None,
) -> tuple[str, Setting, tuple[float, ...], float]:
    """What was asked for; an example's own settings stand where an option was not given."""
    from bcnn.theory import expression
    from bcnn.theory.convergence import Setting
    from bcnn.theory.examples import EXAMPLES, Example

    given = tuple(_numbers(text, "--domain", count=2) for text in domain or [])
    if function in EXAMPLES:
        example = EXAMPLES[function]
    else:
        f = expression.parse(function)
        k = max(f.inputs, len(given))
        example = Example(function, f, ((0.0, 1.0),) * k, d=1 / {1: 100, 2: 20}.get(k, 8), Q=64 if k == 1 else 16)
    k = len(example.domain)
    if len(given) not in (0, 1, k):
        raise UserError(f"{function!r} has {k} coordinates, but --domain was given {len(given)} times")
    spans = tuple((low, high) for low, high in given) * (k if len(given) == 1 else 1) or example.domain
    # The default is as many cells as on the example's own domain.
    shares = [example.d / (high - low) for low, high in example.domain]
    widths = tuple(share * (high - low) for share, (low, high) in zip(shares, spans, strict=True))
    cuts = example.jumps if jumps is None else tuple(_numbers(text, "--jumps") for text in jumps)
    if cuts and len(cuts) != k:
        raise UserError(f"{function!r} has {k} coordinates, but --jumps was given {len(cuts)} times")
    setting = Setting(example.f, spans, example.ends if ends is None else ends, cuts, adaptive, lipschitz)
    return example.title, setting, widths if d is None else (d,) * k, example.Q if q is None else q


def _numbers(text: str, option: str, count: int | None = None) -> tuple[float, ...]:
    """Numbers separated by commas; each may be an expression without variables, such as pi/2."""
    from bcnn.theory import expression

    if text.strip() in ("", "-") and count is None:
        return ()
    parsed = expression.parse(text)
    if parsed.variables or (count is not None and len(parsed.outputs) != count):
        wanted = "numbers" if count is None else f"{count} numbers"
        raise UserError(f"{option} takes {wanted} separated by commas, got {text!r}")
    return tuple(float(value) for value in parsed(0.0))  # type: ignore[arg-type]


def _print(title: str, network: Approximator, largest: float, mean: float, bound: float, known: bool) -> None:
    from bcnn.theory.budget import budget

    cost = budget(network.plan)
    table = Table(title=escape(title), title_justify="left", show_header=False)
    for name, value in (
        ("input branches", f"{cost.input_branches:,}"),
        ("rectangles", f"{cost.rectangles:,}"),
        ("sub branches", f"{cost.sub_branches:,}"),
        ("binary weights", f"{cost.counts.binary_params:,}"),
        ("real parameters", f"{cost.counts.real_params:,}"),
        ("binary MACs a point", f"{cost.counts.binary_macs:,}"),
        ("largest error found", f"{largest:.6g}"),
        ("mean error", f"{mean:.6g}"),
        ("error bound", f"{bound:.6g}" + ("" if known else "  (with slopes estimated from samples)")),
    ):
        table.add_row(name, value)
    out.print(table)


def _plot(setting: Setting, network: Approximator, d: float, q: float, title: str, path: Path) -> None:
    from bcnn.theory.convergence import converge, halvings
    from bcnn.theory.plots import draw

    sweep = halvings(setting, d, q)
    points: list[Point] = list(
        track(converge(setting, sweep), "Networks", total=sweep.size, console=err, transient=True)
    )
    with err.status("Drawing ..."):
        draw(setting, network, points, title, path)
    out.print(f"Wrote {escape(str(path))}")


def _pack(network: Approximator, title: str, path: Path) -> None:
    from bcnn import theory
    from bcnn.packed import packfile

    sizes = packfile.save(theory.lower(network, title), path)
    out.print(
        f"Wrote {escape(str(path))}: {sizes.total:,} bytes. It reads x as one pixel, 8 bits a coordinate. "
        f"Next: bcnn verify {escape(str(path))}",
        soft_wrap=True,  # a command to copy
    )
