"""What a run starts from (`--init`): a shipped model, a packed file, a checkpoint or a run folder -> weights of a new network.

Everything but the decoder is taken over as it is. The decoder is, too, where the classes have the same names, in whatever order;
else it is replaced, and `fit_decoder` fits the new one to what the network makes of the training images, so that the first
update does not have to pull a random decoder's errors through every layer. Other sizes of images need nothing: no weight depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from bcnn.base.errors import UserError
from bcnn.engine import Engine
from bcnn.learning import choose, fit
from bcnn.learning.fit import PENALTIES
from bcnn.learning.photos import FOLDS, Read
from bcnn.lowering.lower import lower
from bcnn.nets import latent, network_spec
from bcnn.packed import card, packfile, shipped
from bcnn.training import checkpoint
from bcnn.training.batches import scale_offset
from bcnn.training.rebuild import rebuild, stated
from bcnn.training.transfer import check_state
from bcnn.verification import evaluation

Floats3 = tuple[float, float, float]
DECODER = "decoder.linear."  # of every registered network, see `parts.Decoder`
STEADY = 0.1  # of the median deviation of a feature: one of less does not count as changing
FEW = 50  # classes, up to which a new decoder's penalty is chosen: each fit takes longer with each of them


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
    return init in shipped.names() or not (path.is_dir() or evaluation.is_checkpoint(path))


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
    decoder = [name for name in own if name.startswith(DECODER)]
    same = sorted(start.labels) == sorted(labels) and len(set(labels)) == len(labels)
    if not decoder or not all(name in state for name in decoder):
        raise UserError(
            f"{start.source} holds {start.network.name}, whose decoder cannot be told from its other layers"
        )
    classes, before = own[DECODER + "weight"].shape[0], state[DECODER + "weight"].shape[0]
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
    decoder = sum(p.numel() for name, p in network.named_parameters() if name.startswith(DECODER))
    taken = f"taken over from {start.source} ({start.network.name}): {binary:,} binary weights"
    if same:
        return f"{taken} and all {total - binary:,} real parameters, the decoder of the same {classes} classes too"
    known = f"{len(start.labels)} classes" if start.labels else "other classes"
    return f"{taken} and {total - binary - decoder:,} real parameters; its decoder of {known} is replaced by one of {classes}"


@torch.no_grad()
def features(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    on_images: Callable[[int], object] = lambda count: None,
) -> tuple[Tensor, Tensor]:
    """What the decoder's linear layer reads, N,C, and the classes, in evaluation mode."""
    linear = network.get_submodule(DECODER.rstrip("."))
    seen: list[Tensor] = []
    handle = linear.register_forward_pre_hook(lambda module, args: seen.append(args[0].flatten(1).cpu()))
    labels = []
    training = network.training
    network.eval()
    try:
        for x, y in batches:
            network(x)
            labels.append(y.cpu())
            on_images(len(y))
    finally:
        network.train(training)
        handle.remove()
    return torch.cat(seen), torch.cat(labels)


def features_packed(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    mean: Floats3,
    std: Floats3,
    size: tuple[int, int],
    on_images: Callable[[int], object] = lambda count: None,
) -> tuple[Tensor, Tensor]:
    """The same by the engine, for a network of binary weights: a tenth of torch's time. Normalised crops become bytes again."""
    decoder = network.get_submodule("decoder")
    linear, training = decoder.linear, network.training
    try:
        decoder.linear = nn.Identity()
        engine = Engine(lower(network.eval(), mean, std, size=size))
    finally:
        decoder.linear = linear
        network.train(training)
    seen, labels = [], []
    scale, offset = (torch.from_numpy(values).reshape(1, 3, 1, 1) for values in scale_offset(mean, std))
    for x, y in batches:
        u = ((x.cpu() - offset) / scale).round().clamp(0, 255).to(torch.uint8)
        seen.append(torch.from_numpy(engine.run(u.permute(0, 2, 3, 1).contiguous().numpy())))
        labels.append(y.cpu())
        on_images(len(y))
    return torch.cat(seen), torch.cat(labels)


def fit_decoder(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Logistic regression from features to classes into the decoder, as `bcnn learn` does it: with the penalty that images left out
    of the fit like best. Their share of right answers."""
    linear = network.get_submodule(DECODER.rstrip("."))
    assert isinstance(linear, nn.Linear)
    found, classes = x.numpy(), y.numpy()
    photos = Read(found, classes, np.arange(len(classes)) % FOLDS, 0.0)
    among = PENALTIES if linear.out_features <= FEW else PENALTIES[2:3]
    penalty, share = choose.penalty(photos, linear.out_features, among)
    # What hardly changes in evaluation mode does in training, with the statistics of a batch: no large weights for it.
    scale = fit.Scale.of(found, least=STEADY * float(np.median(found.std(axis=0))))
    decoder = fit.path(scale(found), classes, penalty, linear.out_features)
    weight = decoder.weight * scale.scale[:, None]  # W (x * scale + offset) + b as one linear layer of x
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weight.T))
        linear.bias.copy_(torch.from_numpy(decoder.bias + scale.offset @ decoder.weight))
    return share
