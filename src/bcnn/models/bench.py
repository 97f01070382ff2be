"""MODEL as what `bcnn bench` times."""

from __future__ import annotations

from bcnn.bench import rivals
from bcnn.bench.rival import Job
from bcnn.models.load import program
from bcnn.models.networks import Given, config_of, network
from bcnn.models.resolve import Model, resolve
from bcnn.models.verbs import Kind


def job(model: Model, threads: int = 1, given: Given | None = None) -> Job:
    """A file's own program; of a registered network or a config one with random parameters, on which time does not depend."""
    given, found = given or Given(), resolve(model, "bench")
    if found.kind in (Kind.SHIPPED, Kind.PACKED):
        return rivals.job_of_program(program(found), threads)
    if found.kind in (Kind.NETWORK, Kind.CONFIG):
        return rivals.job_of(config_of(found, given), threads)
    made = network(found, given)
    return rivals.job_of_module(made.module, made.size, threads)
