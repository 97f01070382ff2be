"""The binary networks that `bench.equal_budget` compares, each scaled to about the same number of binary MACs. And what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bcnn.counting.counts import count
from bcnn.nets import config, network_spec
from bcnn.nets.network_spec import AnyNetwork

BUDGET, TOLERANCE = 30e6, 0.2  # binary MACs of one image; most networks have widths in steps of eight channels only


@dataclass(frozen=True)
class Entry:
    """One contestant and how it came to its budget."""

    network: AnyNetwork
    scaled: str


def entries() -> dict[str, Entry]:
    resnet = "ResNet-18 for 32 x 32, 16 channels in its first level instead of 64"

    def bcnn(branches: int) -> Entry:
        wide = config.preset("cifar10").replace(branches=branches)
        widths = [step / 100 for step in range(30, 101)]
        width = min(widths, key=lambda width: abs(count(wide.scaled(width)).counts.binary_macs - BUDGET))
        return Entry(wide.scaled(width), f"the preset `cifar10`, P = {branches}, {width:g} times as wide")

    def named(name: str, scaled: str, **choices: Any) -> Entry:
        return Entry(network_spec.resolve(name).replace(**choices), scaled)

    r18 = {"width": 16 / 64}
    return {
        "bcnn-p1": bcnn(1),
        "bcnn-p2": bcnn(2),
        "bnn": named("bnn-r18-cifar", resnet, **r18),
        "xnornet": named("xnornet-r18-cifar", resnet, **r18),
        "xnornetpp": named("xnornetpp-r18-cifar", resnet, **r18),
        "abcnet": named(
            "abcnet-r18-cifar", "ResNet-18 for 32 x 32, 8 channels, 2 x 2 bases instead of 5 x 5",
            width=8 / 64, weight_bases=2, activation_bases=2,
        ),
        "birealnet": named("birealnet-18-cifar", resnet, **r18),
        "groupnet": named("groupnet-r18-cifar", "ResNet-18 for 32 x 32, 8 channels, 4 bases instead of 5", width=8 / 64, bases=4),
        "meliusnet": named("meliusnet-22-cifar", "MeliusNet 22 for 32 x 32, growth 8 instead of 64", width=0.18),
        "reactnet-a": named("reactnet-a-cifar", "ReActNet-A for 32 x 32, 8 channels in its first layer instead of 32", width=8 / 32),
        "reactnet-r18": named("reactnet-r18-cifar", resnet, **r18),
        "real2bin": named("real2bin-r18-cifar", resnet, **r18),
    }  # fmt: skip


def facts_of(entry: Entry) -> dict[str, Any]:
    """Counts, and what is not 1 bit, of the network as it was trained."""
    import torch

    from bcnn.bench.pytorch import sample_network
    from bcnn.counting.audit import audit
    from bcnn.counting.captured import count_network

    network = sample_network(entry.network)
    counts = count_network(network, entry.network.image_size).counts
    report = audit(network, torch.randn(1, 3, *entry.network.image_size, generator=torch.Generator().manual_seed(0)))
    return {
        "network": network_spec.to_plain(entry.network),
        "scaled": entry.scaled,
        "binary_macs": counts.binary_macs,
        "real_macs": counts.real_macs,
        "param_bytes": counts.paper_param_bytes,
        "real_products": sum(op.macs for op in report.failures if max(op.bits) > 2),
        "padded_products": sum(op.macs for op in report.failures if max(op.bits) <= 2),
    }


def times_of(names: list[str], rounds: int = 30) -> dict[str, float]:
    """Milliseconds of each in the engine, one image, one thread: the least processor time of one interleaved run."""
    from bcnn.bench.pytorch import program_of, sample_network
    from bcnn.bench.sample import sample_image
    from bcnn.bench.timing import interleave
    from bcnn.engine import Engine

    runs = {}
    for name in names:
        network = entries()[name].network
        engine = Engine(program_of(sample_network(network), network.image_size), threads=1)
        image = sample_image(*network.image_size)[None]
        runs[name] = lambda engine=engine, image=image: engine.run(image)
    return {name: round(times.cpu, 4) for name, times in interleave(runs, rounds).items()}


def macs_of(network: AnyNetwork) -> int:
    """Binary MACs from one pass without values, on torch's meta device."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from bcnn.nets.latent import latents

    if isinstance(network, config.NetworkConfig):
        return count(network).counts.binary_macs
    with torch.device("meta"), torch.no_grad():
        module = network_spec.build(network).eval()
        with FlopCounterMode(display=False) as counter:
            module(torch.empty(1, 3, *network.image_size))
    flops = counter.get_flop_counts()
    names = {name for name, layer in latents(module) if getattr(layer.rules, "activation", "") != "none"}
    found = {where: sum(n for op, n in by.items() if "convolution" in str(op)) // 2 for where, by in flops.items()}
    return sum(macs for where, macs in found.items() if where.partition(".")[2] in names)
