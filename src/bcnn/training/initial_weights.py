"""What a run starts from (`--init`): a shipped model, a packed file, a checkpoint or a run folder -> weights of a new network.

Everything but the decoder is taken over as it is. The decoder is, too, where the classes have the same names, in whatever order;
else it is replaced, see `new_decoder`. Other sizes of images need nothing: no weight depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from bcnn.base.affine import Floats3
from bcnn.base.errors import UserError
from bcnn.nets import latent, network_spec
from bcnn.packed import card, packfile, shipped
from bcnn.packed.container import format_of
from bcnn.training import checkpoint
from bcnn.training.rebuild import rebuild, stated
from bcnn.training.transfer import check_state

DECODER_PREFIX = "decoder.linear."  # of every registered network, see `parts.Decoder`


@dataclass(frozen=True, eq=False)
class Start:
    """A trained network to go on from."""

    source: str
    network: network_spec.AnyNetwork
    state: dict[str, Tensor]
    labels: tuple[str, ...]
    mean: Floats3
    std: Floats3
    crop: float
    packed: bool  # from a packed file: its batch norms have no statistics yet


def is_packed(init: str) -> bool:
    """Whether it names a packed file; a folder or a checkpoint is none."""
    path = Path(init)
    return init in shipped.names() or not (path.is_dir() or format_of(path).startswith("bcnn-checkpoint"))


def find(init: str) -> Path:
    """The file that is meant; a sentence if there is none. A shipped model's bare name wins, as everywhere."""
    if init in shipped.names():
        return shipped.find(init)
    path = Path(init)
    if path.is_dir():
        return checkpoint.find(path)
    if not path.is_file():
        raise UserError(
            f"nothing to start from at {init}: give a shipped model ({', '.join(shipped.names())}), a packed file, "
            "a checkpoint or the folder of a run"
        )
    return path


def network_of(init: str) -> network_spec.AnyNetwork:
    """Which network that is, before any weight is read."""
    path = find(init)
    if not is_packed(init):
        return checkpoint.read(path).network
    return stated(packfile.read(path), init)


def read(init: str) -> Start:
    path = find(init)
    if is_packed(init):
        program = packfile.read(path)
        made = rebuild(program, init)
        state, labels = made.network.state_dict(), card.folders(program)
        return Start(init, made.config, state, labels, made.mean, made.std, program.crop, True)
    found = checkpoint.read(path)
    checkpoint.fits(found, init)
    state = found.state
    if found.weights == "scaled":  # the steps of this run may not be: the scale moves into batch norm
        module, _ = checkpoint.load(path)
        state = module.state_dict()
    meta = found.meta
    return Start(init, found.network, state, meta.labels, meta.mean, meta.std, meta.crop, False)


def take_over(start: Start, network: nn.Module, labels: tuple[str, ...]) -> tuple[str, bool]:
    """Copy the start's weights into the network; a sentence on what was taken over, and whether the decoder is new."""
    own = network.state_dict()
    state = dict(start.state)
    decoder = [name for name in own if name.startswith(DECODER_PREFIX)]
    same = sorted(start.labels) == sorted(labels) and len(set(labels)) == len(labels)
    if not decoder or not all(name in state for name in decoder):
        raise UserError(
            f"{start.source} holds {start.network.name}, whose decoder cannot be told from its other layers"
        )
    classes, before = own[DECODER_PREFIX + "weight"].shape[0], state[DECODER_PREFIX + "weight"].shape[0]
    if same:
        order = [start.labels.index(label) for label in labels]
        state |= {name: state[name][order] for name in decoder}
    elif start.labels or classes != before:
        state |= {name: own[name] for name in decoder}
    same = same or (not start.labels and classes == before)
    try:
        check_state(state, network, start.source)
    except UserError as error:
        raise UserError(f"{error}: it is {start.network.name}, and weights fit only the same network") from None
    network.load_state_dict(state)
    return describe(start, network, len(labels), same), not same


def describe(start: Start, network: nn.Module, classes: int, same: bool) -> str:
    binary = sum(weight.numel() for weight in latent.latent_weights(network))
    total = sum(parameter.numel() for parameter in network.parameters())
    decoder = sum(p.numel() for name, p in network.named_parameters() if name.startswith(DECODER_PREFIX))
    taken = f"taken over from {start.source} ({start.network.name}): {binary:,} binary weights"
    if same:
        return f"{taken} and all {total - binary:,} real parameters, the decoder of the same {classes} classes too"
    known = f"{len(start.labels)} classes" if start.labels else "other classes"
    return f"{taken} and {total - binary - decoder:,} real parameters; its decoder of {known} is replaced by one of {classes}"
