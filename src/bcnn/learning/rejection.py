"""None of these: one more logit that wins where a photo looks like nothing that was learned. No torch.

A softmax cannot say it: on photos of waste a classifier of flowers is *surer* than on flowers (a threshold on its largest probability told
them apart worse than a coin, area under the curve 0.21 to 0.48). The distance of the features from those of known photos can:

    strangeness s = mean over all features of |x|, x scaled to mean 0 and deviation 1      (0.98 to 1.00 on the same photos)

From held-out photos alone, the new logit is GAIN s + b, with b such that a chosen share of them is lost. With photos of other things
it is a class like any other, which reads s beside the features.
"""

from __future__ import annotations

import numpy as np

from bcnn.learning.fit import Decoder, Doubles, Floats, Labels, fit

NAME = "none of these"
REFUSED_FRACTION = 0.05  # of held-out photos are refused, too: the price
# s has a deviation of 0.10 to 0.15 among known photos. Of 3, 10, 30, 100 and 1000 the best: 90 to 99 % of unrelated photos are refused, and of
# a class that resembles the known ones 5 to 20 %. Less, and the logits outweigh it; more, and they have no say at all.
GAIN = 30.0
WIDE = np.float32(10)  # s as a feature among those of deviation 1


def strangeness(x: Floats) -> Floats:
    """[N, 1], summed by ascending feature as the op `AbsMean` does it."""
    total: Floats = np.cumsum(np.abs(x), axis=1, dtype=np.float32)[:, -1:]
    return total * np.float32(1 / x.shape[1])


def from_known(decoder: Decoder, b: float) -> Decoder:
    """The decoder with one more feature, s, and one more class, of the logit GAIN s + b."""
    d, c = decoder.weight.shape
    weight: Doubles = np.zeros((d + 1, c + 1))
    weight[:d, :c] = decoder.weight
    weight[d, c] = GAIN
    return Decoder(weight, np.append(decoder.bias, b))


def threshold(decoder: Decoder, held_out: Floats, lost: float = REFUSED_FRACTION) -> float:
    """The b with which `lost` of the held-out photos are called none of these."""
    return float(np.quantile(_apart(decoder, held_out), lost))


def threshold_of_few(decoder: Decoder, photos: Floats) -> float:
    """The same for some ten photos, of which no twentieth can be counted: two deviations, as if they were normally distributed."""
    apart = _apart(decoder, photos)
    return float(apart.mean() - 2 * apart.std())


def _apart(decoder: Decoder, x: Floats) -> Doubles:
    """GAIN s + b > largest logit where this is less than b."""
    found: Doubles = decoder(x).max(axis=1) - GAIN * strangeness(x)[:, 0].astype(np.float64)
    return found


def from_others(x: Floats, y: Labels, others: Floats, penalty: float, classes: int) -> Decoder:
    """The same from photos of other things: a class of its own, which weighs as much as a known one on average."""
    both = with_strangeness(np.concatenate([x, others]))
    labels = np.concatenate([y, np.full(len(others), classes, np.int64)])
    weights = np.where(labels < classes, 1.0, len(y) / classes / len(others))
    return in_file(fit(both, labels, penalty, Decoder.zero(both.shape[1], classes + 1), weights=weights))


def with_strangeness(x: Floats) -> Floats:
    return np.concatenate([x, WIDE * strangeness(x)], axis=1)


def in_file(decoder: Decoder) -> Decoder:
    """For s as the file's program has it, not times `WIDE`."""
    weight = decoder.weight.copy()
    weight[-1] *= float(WIDE)
    return Decoder(weight, decoder.bias)


def in_fit(decoder: Decoder) -> Decoder:
    """The inverse of `in_file`."""
    weight = decoder.weight.copy()
    weight[-1] /= float(WIDE)
    return Decoder(weight, decoder.bias)
