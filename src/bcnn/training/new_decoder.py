"""A decoder for other classes: fitted to what the network makes of the training images, so that the first update does not have to
pull a random decoder's errors through every layer.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from bcnn.engine import Engine
from bcnn.learning import choose, fit
from bcnn.learning.fit import PENALTIES
from bcnn.learning.photos import FOLDS, Read
from bcnn.lowering.lower import lower
from bcnn.training.batches import Floats3, scale_offset
from bcnn.training.initial_weights import DECODER

MIN_SPREAD = 0.1  # of the median deviation of a feature: one of less does not count as changing
MAX_CLASSES_FOR_CHOICE = 50  # of a penalty: each fit takes longer with each of them


@torch.no_grad()
def features(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
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
    finally:
        network.train(training)
        handle.remove()
    return torch.cat(seen), torch.cat(labels)


def features_packed(
    network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], mean: Floats3, std: Floats3, size: tuple[int, int]
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
    return torch.cat(seen), torch.cat(labels)


def fit_decoder(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Logistic regression from features to classes into the decoder, as `bcnn learn` does it: with the penalty that images left out
    of the fit like best. Their share of right answers."""
    linear = network.get_submodule(DECODER.rstrip("."))
    assert isinstance(linear, nn.Linear)
    found, classes = x.numpy(), y.numpy()
    photos = Read(found, classes, np.arange(len(classes)) % FOLDS, 0.0)
    among = PENALTIES if linear.out_features <= MAX_CLASSES_FOR_CHOICE else PENALTIES[2:3]
    penalty, share = choose.penalty(photos, linear.out_features, among)
    # What hardly changes in evaluation mode does in training, with the statistics of a batch: no large weights for it.
    scale = fit.Scale.of(found, least=MIN_SPREAD * float(np.median(found.std(axis=0))))
    decoder = fit.path(scale(found), classes, penalty, linear.out_features)
    weight = decoder.weight * scale.scale[:, None]  # W (x * scale + offset) + b as one linear layer of x
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weight.T))
        linear.bias.copy_(torch.from_numpy(decoder.bias + scale.offset @ decoder.weight))
    return share
