"""A program at another size: what follows from the size of the image, and what is fixed to one."""

import numpy as np
import pytest
import samples

from bcnn.base.errors import UserError
from bcnn.engine import Engine
from bcnn.packed import packfile, shipped
from bcnn.program import ops
from bcnn.program.interpret import interpret
from bcnn.program.resize import resized


@pytest.mark.parametrize("size", [(8, 8), (20, 12), (32, 32)])
def test_a_shipped_network_runs_at_other_sizes_as_the_interpreter_says(size):
    program = resized(packfile.read(shipped.find("digits")), *size)
    assert program.shapes[0][:2] == size
    assert program.shapes[-1] == (1, 1, 10)
    image = samples.image(*size)
    assert np.array_equal(Engine(program).run(image[None])[0], interpret(program, image))


def test_the_weights_are_the_same_objects_and_labels_stay():
    program = packfile.read(shipped.find("digits"))
    larger = resized(program, 16, 16)
    assert larger.ops[1] is program.ops[1]
    assert (larger.labels, larger.crop, larger.provenance) == (program.labels, program.crop, program.provenance)
    assert resized(program, 8, 8) is program


def test_a_pool_over_the_whole_map_grows_with_the_map():
    for window in (ops.Window((4, 4)), ops.Window((4, 4), (4, 4))):
        larger = resized(samples.program(ops.MaxPool(0, window), ops.AvgPool(0, window)), 6, 10)
        assert larger.shapes[1:] == ((1, 1, 3), (1, 1, 3))


def test_a_pool_that_halves_a_small_map_still_halves():
    program = samples.program(ops.MaxPool(0, ops.Window((2, 2), (2, 2))), ops.GlobalAvgPool(1), height=2, width=2)
    assert resized(program, 8, 8).shapes[1] == (4, 4, 3)


def test_what_is_fixed_to_one_size_is_refused_by_name():
    with pytest.raises(UserError, match=r"cannot read images of 9 x 9: op \d+ .*it was made for 8 x 8"):
        resized(samples.every_op(), 9, 9)
    flat = samples.program(
        ops.Conv(0, 3, np.ones((4, 4, 3, 2), np.float32), np.zeros(2, np.float32), ops.Window((4, 4)))
    )
    with pytest.raises(UserError, match=r"it would end in a map of \(3, 3, 2\), not \(1, 1, 2\)"):
        resized(flat, 6, 6)
