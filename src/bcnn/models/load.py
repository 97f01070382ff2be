"""`bcnn.load`, and MODEL as a program or as a packed file, for every verb that runs one. Torch only for a run or a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bcnn.base.errors import UserError
from bcnn.models.resolve import Model, Resolved, resolve
from bcnn.models.verbs import Kind
from bcnn.packed import packfile

if TYPE_CHECKING:
    from bcnn.engine import Engine
    from bcnn.program.program import Program


def load(model: Model, isa: str | None = None, threads: int | None = None) -> Engine:
    """The engine for a shipped model or a packed file: `bcnn.load("imagenette").predict("photo.jpg")`.

    A name without suffix, such as "imagenette", is the model of that name in the package (`bcnn models` lists them), whatever
    lies in the current folder; "./imagenette" and "imagenette.bcnn" are files. The folder of a run, or a checkpoint, is lowered
    first, which needs torch.

    >>> import bcnn, numpy as np
    >>> bcnn.load("digits")(np.zeros((8, 8, 3), np.uint8)).shape
    (1, 10)
    """
    from bcnn.engine import Engine

    return Engine(program(resolve(model, "load")), isa=isa, threads=threads)


def program(what: Resolved) -> Program:
    """Of a packed file; of a run or a checkpoint it is lowered."""
    return _lowered(what) if is_trained(what) else packfile.read(what.path)


@contextmanager
def packed_file(what: Resolved) -> Iterator[Path]:
    """The packed file; a run or a checkpoint is packed into a temporary one of its name."""
    if not is_trained(what):
        yield what.path
        return
    from tempfile import TemporaryDirectory

    path = what.path.resolve()
    with TemporaryDirectory(prefix="bcnn-") as folder:
        file = Path(folder) / f"{path.name if what.kind == Kind.RUN else path.stem}.bcnn"
        packfile.save(_lowered(what), file)
        yield file


def is_trained(what: Resolved) -> bool:
    """Whether it is a trained network in torch, which is packed on the way."""
    return what.kind in (Kind.RUN, Kind.CHECKPOINT)


def _lowered(what: Resolved) -> Program:
    try:
        from bcnn.models.networks import network
        from bcnn.models.pack import lowered

        return lowered(network(what))
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UserError(
            f"{what.name} is a {what.kind}: to pack it takes torch; pip install 'bcnn[train]', or give a packed file"
        ) from None
