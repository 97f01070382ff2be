"""A network in evaluation mode for a while, and what its modules read meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

Hook = Callable[[Any, tuple[Any, ...]], None]  # gets a module, and what it is called with


@contextmanager
def evaluating(network: nn.Module, hooks: Iterable[tuple[nn.Module, Hook]] = ()) -> Iterator[None]:
    """While the block lasts; afterwards the hooks are gone, and the mode is as it was."""
    training = network.training
    handles = [module.register_forward_pre_hook(hook) for module, hook in hooks]
    network.eval()
    try:
        yield
    finally:
        network.train(training)
        for handle in handles:
            handle.remove()
