"""MODEL counted and audited: what `bcnn summary` and `bcnn audit` show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bcnn.counting import summary
from bcnn.counting.summary import Summary
from bcnn.models.networks import Found, Given, config_of, network
from bcnn.models.resolve import Model, resolve
from bcnn.models.verbs import Kind
from bcnn.nets import network_spec
from bcnn.nets.config import NetworkConfig

if TYPE_CHECKING:
    from bcnn.counting.audit import AuditReport


def summarize(
    what: Model, given: Given, choices: dict[str, Any], depth: int | None = None
) -> tuple[Summary, list[str]]:
    """The counts, and what was decided for the user. One of the paper's networks is counted from its config, without torch."""
    found = resolve(what, "summary")
    if found.kind in (Kind.NETWORK, Kind.CONFIG):
        config = config_of(found, given, choices)
        if isinstance(config, NetworkConfig):
            return summary.of_config(config, depth), []
    from bcnn.counting.captured import count_network

    made = network(found, given, **choices)
    built = network_spec.config_of(made.module)
    if isinstance(built, NetworkConfig):
        return summary.of_config(built.replace(image_size=made.size), depth), []
    tree = count_network(made.module, made.size, made.name)
    plain = made.name if built is None else network_spec.to_plain(built)
    return summary.of_pass(tree, plain, made.size, depth), [note for note in made.notes if "size" in note]


def audited(what: Model, given: Given, weights: str | None = None) -> tuple[Found, AuditReport]:
    """One random image through the network; `weights` are those of another step of the training."""
    import torch

    from bcnn.counting.audit import audit
    from bcnn.nets.latent import set_weights

    found = network(resolve(what, "audit"), given)
    if weights is not None:
        set_weights(found.module, weights)
    generator = torch.Generator().manual_seed(0)
    return found, audit(found.module, torch.randn(1, 3, *found.size, generator=generator))
