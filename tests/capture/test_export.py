"""A module is exported as it is, and left as it was; what cannot be recorded is refused with the line of the user's code."""

import copy
import random
import re

import numpy as np
import pytest
import torch
from capture_corpus import CORPUS
from capture_corpus.parts import After, step
from torch import nn

from bcnn.base.errors import UserError
from bcnn.capture.capture import Replay, capture, evaluate
from bcnn.capture.export import export, line_of

torch.set_num_threads(1)


def image(seed=0):
    return torch.randn(1, 3, 9, 7, generator=torch.Generator().manual_seed(seed))


def made(kind, name):
    torch.manual_seed(0)
    return CORPUS[kind][name]().eval()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("signs", "by data"),
        ("signs", "in place"),
        ("signs", "out argument"),
        ("signs", "by a function"),
        ("weights", "written by data"),
        ("moves", "a channel overwritten"),
        ("moves", "a part added to"),
        ("counters", "dropout in evaluation"),
    ],
)
def test_the_graph_makes_what_the_module_makes_on_another_image(kind, name):
    network = made(kind, name)
    graph = capture(network, image(0))
    with torch.no_grad():
        assert torch.equal(Replay(graph, image(1))(graph.output), copy.deepcopy(network)(image(1)))


def test_nothing_of_the_module_and_no_random_state_changes():
    network = made("vectors", "norm").train()
    network.get_submodule("norm").eval()
    network.first.weight.grad = torch.ones_like(network.first.weight)
    before = copy.deepcopy(network.state_dict())
    modes = [part.training for part in network.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    capture(network, image())
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert [part.training for part in network.modules()] == modes
    assert torch.equal(network.first.weight.grad, torch.ones_like(network.first.weight))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])


def test_weights_that_are_binarized_in_place_stay_as_they_are_in_the_module():
    network = made("weights", "written by data")
    before = network.weight.clone()
    capture(network, image())
    assert torch.equal(network.weight, before)


REASONS = {
    "branch": "depends on the values",
    "loop": "depends on the values",
    "NumPy": "NumPy",
    "item": "back into Python",
    "index of the image": "depends on the values",
    "dropout": "random",
    "noise": "random",
    "random relu": "random",
    "batch norm in training": "statistics of the image",
    "counter": "differs from one pass to the next",
    "cache": "",
    "average of images": "",
    "Python's random": "differs from one pass to the next",
}


@pytest.mark.parametrize("name", REASONS)
def test_what_cannot_be_recorded_is_refused_with_line_and_reason(name):
    with pytest.raises(UserError) as raised:
        capture(made("counters", name), image())
    assert re.match(r"cannot record .*line \d+ of (counters|parts)\.py: ", str(raised.value)), str(raised.value)
    assert REASONS[name] in str(raised.value)


def test_an_operation_is_named_with_the_line_that_wrote_it():
    network = made("signs", "zero and one")
    program = export(network, (image(),))
    (node,) = [node for node in program.graph.nodes if "gt" in node.name]
    assert re.fullmatch(r"line \d+ of signs\.py", line_of(node))


def test_the_networks_own_errors_are_raised_as_they_are():
    class Checks(nn.Module):
        def forward(self, x):
            raise ValueError("images must be square")

    with pytest.raises(ValueError, match="images must be square"):
        capture(Checks(), image())


def test_memory_that_was_never_written_is_nan():
    graph = capture(After(lambda x, s: x + torch.empty(1, 6, 1, 1)), image())
    assert bool(graph.output.tensor.isnan().all())


def test_an_exported_program_is_evaluated_as_it_is():
    network = made("signs", "zero and one")
    program = torch.export.export(network, (image(),), strict=False)
    with torch.no_grad():
        wanted = network(image())
    assert torch.equal(evaluate(network, export(program, (image(),)), (image(),)).output.tensor, wanted)


def test_stand_ins_take_the_place_of_parameters():
    network = made("weights", "plain")
    program = export(network, (image(),))
    weight = torch.randn_like(network.weight)
    changed = copy.deepcopy(network)
    changed.weight.data.copy_(weight)
    with torch.no_grad():
        assert torch.equal(evaluate(network, program, (image(),), {"weight": weight}).output.tensor, changed(image()))
        assert step(weight).unique().tolist() == [-1, 1]
