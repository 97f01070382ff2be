"""Random networks of the parts that networks have: each op is what torch made, and the engine equals the interpreter."""

import numpy as np
import plain_torch_networks
import pytest
import samples
import torch
from torch import nn

from lowering import compared, lowered

torch.set_num_threads(1)


class Random(nn.Module):
    """A few units drawn by lot: binary convolutions of all kinds, norms, curves, pools, shortcuts, concatenations, gates."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        c = int(self.choose(5, 16, 33))
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3, padding=1), nn.BatchNorm2d(c))
        self.units = nn.ModuleList()
        zeros = "no"
        for _ in range(int(self.choose(2, 3))):
            o = c if self.choose(True, False) else int(self.choose(4, 31, 40))
            k = int(self.choose(1, 3, 5))
            # Zeros that a ReLU leaves are +1 in the program; torch.sign has a third value for them.
            signs = (
                plain_torch_networks.SIGNS if zeros == "no" else ("where", "compared", "function", "masked", "in place")
            )
            settings = {"k": k, "p": k // 2, "s": int(self.choose(1, 1, 2)), "sign": self.choose(*signs)}
            settings["weights"] = self.choose("plain", "mean", "centred", "detached")
            settings |= [{}, {"pad_value": float(self.choose(-1, 1))}, {"pad_first": True}][int(self.choose(0, 1, 2))]
            unit = nn.ModuleDict(
                {
                    "before": self.choose(
                        nn.Identity(), nn.BatchNorm2d(c), nn.Sequential(nn.BatchNorm2d(c), nn.Hardtanh())
                    ),
                    "conv": plain_torch_networks.BinConv(c, o, **settings),
                    "norm": nn.BatchNorm2d(o),
                    "curve": self.choose(
                        nn.Identity(),
                        nn.ReLU(True),
                        nn.PReLU(o),
                        nn.PReLU(),
                        nn.Hardswish(),
                        nn.LeakyReLU(0.2),
                        nn.SiLU(),
                    ),
                    "pool": self.choose(
                        nn.Identity(),
                        nn.MaxPool2d(2, ceil_mode=True),
                        nn.AvgPool2d(3, 1, 1),
                        nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False),
                    ),
                }
            )
            self.units.append(unit)
            zeros = "yes" if isinstance(unit["curve"], (nn.ReLU, nn.Hardswish)) else zeros
            join = self.choose("none", "add", "cat", "gate") if settings["s"] == 1 else "none"
            unit.join = "none" if join == "add" and o != c else join
            c = c + o if unit.join == "cat" else o
        self.head = nn.Linear(c, 4)

    def choose(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def forward(self, x):
        x = self.stem(x)
        for unit in self.units:
            y = unit["norm"](unit["conv"](unit["before"](x)))
            if unit.join == "add":
                y = y + x
            if unit.join == "gate":
                y = y * torch.sigmoid(y.mean((2, 3), keepdim=True))
            y = unit["curve"](y)
            if unit.join == "cat":
                y = torch.cat([x, y], 1)
            x = unit["pool"](y)
        return self.head(x.mean((2, 3)))


def random_network(seed):
    network = Random(seed).eval()
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            (
                norm.running_mean.normal_(),
                norm.running_var.uniform_(0.5, 2),
                norm.weight.data.normal_(),
                norm.bias.data.normal_(),
            )
    return network


@pytest.mark.parametrize("seed", range(40))
def test_random_networks_lower_and_the_engine_equals_the_interpreter(seed):
    from bcnn.engine import Engine
    from bcnn.program.interpret import interpret_maps

    network = random_network(seed)
    program = lowered(network, (29, 22))
    assert compared(network, program).first is None
    image = samples.image(29, 22, seed)
    for threads in (1, 2):
        for one, other in zip(
            Engine(program, threads=threads).maps(image), interpret_maps(program, image), strict=True
        ):
            assert np.array_equal(one, other)
