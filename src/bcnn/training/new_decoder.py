"""A decoder for other classes: fitted to what the network makes of the training images, so that the first update does not have to
pull a random decoder's errors through every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from bcnn.base.affine import Floats3, scale_offset
from bcnn.engine import Engine
from bcnn.learning import choose, fit
from bcnn.learning.fit import PENALTIES
from bcnn.learning.photos import FOLDS, Read
from bcnn.lowering.lower import lower
from bcnn.training.initial_weights import DECODER_PREFIX
from bcnn.training.inspection import evaluating

NetworkInput = tuple[Floats3, Floats3, tuple[int, int]]  # mean, std and size of what a network reads
MIN_SPREAD = 0.1  # of the median deviation of a feature: one of less does not count as changing
MAX_CLASSES_FOR_CHOICE = 50  # of a penalty: each fit takes longer with each of them


@torch.no_grad()
def features(
    network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], reads: NetworkInput | None = None
) -> tuple[Tensor, Tensor]:
    """What the decoder's linear layer reads, N,C, and the classes, in evaluation mode.

    With `reads` by the engine, for a network of binary weights: a tenth of torch's time.
    """
    decoder = network.get_submodule("decoder")
    linear, decoder.linear = decoder.linear, nn.Identity()
    found, labels = [], []
    try:
        with evaluating(network):
            answer = network if reads is None else _in_engine(network, *reads)
            for x, y in batches:
                found.append(answer(x).flatten(1).cpu())
                labels.append(y.cpu())
    finally:
        decoder.linear = linear
    return torch.cat(found), torch.cat(labels)


def _in_engine(network: nn.Module, mean: Floats3, std: Floats3, size: tuple[int, int]) -> Callable[[Tensor], Tensor]:
    """Normalised crops become bytes again."""
    engine = Engine(lower(network, mean, std, size=size))
    scale, offset = (torch.from_numpy(values).reshape(1, 3, 1, 1) for values in scale_offset(mean, std))

    def answer(x: Tensor) -> Tensor:
        u = ((x.cpu() - offset) / scale).round().clamp(0, 255).to(torch.uint8)
        return torch.from_numpy(engine.run(u.permute(0, 2, 3, 1).contiguous().numpy()))

    return answer


def fit_decoder(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Logistic regression from features to classes into the decoder, as `bcnn learn` does it: with the penalty that images left out
    of the fit like best. Their share of right answers."""
    linear = network.get_submodule(DECODER_PREFIX.rstrip("."))
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
