"""Config -> parameters, operations and memory, per module, block, level and network, additive. No torch.

The rules are those that make every digit of Tables 2 to 5 (sec. 6.2, 6.3) come out, for one image:

    binary module   n = P F^2 branches: n C^2 binary weights; per element and branch one add for the bias, one sign, one mult
                    and one add for batch norm, one add for the module addition (Fig. 4)
    depth wise      9 MACs an output element, batch norm one mult and one add
    average pool    one add per element of the pool's input, after replication; the 1x1 pool of the stem included
    channel average one add per input element, one mult per output element (R < 1; the paper's network has none)
    others          PReLU one, block addition one add, intensity channel 3 MACs a pixel, replication nothing; the fully
                    connected layer's sums start from its biases, which therefore cost no add

Legend: C channels (RC inside a block), A and B pixels of the map a module reads and makes, n branches of a binary module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from bcnn.nets.config import BlockShape, NetworkConfig
from bcnn.program.counts import NOTHING, Counts


@dataclass(frozen=True)
class CountNode:
    """A named part of the network: a module, or a block, level or network made of `children`."""

    name: str  # as in torch: "level1.0.conv1"
    own: Counts = NOTHING  # of a module itself
    children: tuple[CountNode, ...] = ()
    shape: tuple[int, int, int] | None = None  # of the map made: channels, height, width
    counts: Counts = field(init=False)  # own and all children's

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", sum((child.counts for child in self.children), self.own))

    def leaves(self) -> Iterator[CountNode]:
        """The modules that do something themselves, in order."""
        if not self.children:
            yield self
        elif self.own != Counts():
            yield CountNode(self.name, self.own, shape=self.shape)
        for child in self.children:
            yield from child.leaves()

    def to_dict(self) -> dict[str, object]:
        """Plain data: exact integers, children nested."""
        data: dict[str, object] = {"name": self.name, "shape": self.shape, **asdict(self.counts)}
        return {**data, "children": [child.to_dict() for child in self.children]} if self.children else data


def count(config: NetworkConfig) -> CountNode:
    """The tree of a network: its name -> stem, level1, ... -> blocks -> modules."""
    levels: dict[str, list[CountNode]] = {}
    for shape in config.plan():
        levels.setdefault(shape.name.partition(".")[0], []).append(count_block(shape))
    parts = [_input(config)]
    parts += [CountNode(name, children=tuple(blocks), shape=blocks[-1].shape) for name, blocks in levels.items()]
    parts.append(_decoder(config))
    return CountNode(config.name, children=tuple(parts), shape=(config.classes, 1, 1))


def count_block(shape: BlockShape) -> CountNode:
    """The building block (Fig. 3): its modules in the order of the data."""
    channels = shape.channels
    pixels_in, pixels = shape.height_in * shape.width_in, shape.height * shape.width
    in_module = shape.prelu == "module"
    small, large = (channels, shape.height, shape.width), (channels, shape.height_in, shape.width_in)
    modules = []
    if channels < shape.channels_in:
        averaged = Counts(
            adds=shape.channels_in * pixels_in, mults=channels * pixels_in, map_bytes=4 * channels * pixels_in
        )
        modules.append(CountNode(f"{shape.name}.replicate", averaged, shape=large))
    modules += [
        CountNode(f"{shape.name}.conv1", _binary_conv(shape, pixels_in, prelu=True), shape=large),
        CountNode(f"{shape.name}.depthwise", _depthwise(channels, pixels), shape=small),
        CountNode(f"{shape.name}.conv3", _binary_conv(shape, pixels, prelu=in_module), shape=small),
    ]
    if not shape.normal:
        # Replicas are bookkeeping, so the pooled map holds each channel once; the paper counts its adds for all of them.
        # A 1x1 pool, as the stem's, makes no map at all.
        map_bytes = 4 * min(channels, shape.channels_in) * pixels if shape.stride > 1 else 0
        pooled = Counts(adds=channels * pixels_in, map_bytes=map_bytes)
        modules.append(CountNode(f"{shape.name}.pool", pooled, shape=small))
        modules.append(CountNode(f"{shape.name}.identity", _binary_conv(shape, pixels, prelu=False), shape=small))
    # The addition of the two paths is written over the map of conv3.
    addition = Counts(adds=channels * pixels)
    if not in_module:
        addition += _prelu(channels, pixels)
    modules.append(CountNode(f"{shape.name}.add", addition, shape=small))
    return CountNode(shape.name, children=tuple(modules), shape=small)


def _binary_conv(shape: BlockShape, pixels: int, prelu: bool) -> Counts:
    """Convolution module (Fig. 4) on a map of C x `pixels`."""
    channels = shape.channels
    n = shape.branches * shape.filter**2
    words = -(-channels // 32)  # a bit a channel, in 32-bit words per pixel or per output channel
    elements = n * channels * pixels
    branches = Counts(
        binary_params=n * channels**2,
        real_params=n * channels * 3,  # bias, and the scale and offset of batch norm
        binary_macs=elements * channels,
        adds=elements * 3,  # bias, batch norm, module addition
        mults=elements,
        signs=elements,
        weight_bytes=4 * n * channels * (words + 3),
        map_bytes=4 * channels * pixels + 4 * n * words * pixels,
    )
    return branches + _prelu(channels, pixels) if prelu else branches


def _depthwise(channels: int, pixels: int) -> Counts:
    """Real depth wise 3x3/S, batch norm, PReLU (sec. 4.2.1); packed, batch norm's scale is part of the nine weights."""
    elements = channels * pixels
    conv_and_norm = Counts(
        real_params=channels * 11,
        real_macs=elements * 9,
        adds=elements,
        mults=elements,
        weight_bytes=4 * channels * 10,
        map_bytes=4 * elements,
    )
    return conv_and_norm + _prelu(channels, pixels)


def _prelu(channels: int, pixels: int) -> Counts:
    return Counts(real_params=channels, prelus=channels * pixels, weight_bytes=4 * channels)


def _input(config: NetworkConfig) -> CountNode:
    """Normalised RGB and the intensity channel (sec. 4.1). Normalisation is the data loader's, the paper counts none of it."""
    height, width = config.image_size
    pixels = height * width
    counts = Counts(
        real_macs=3 * pixels if config.intensity else 0,
        weight_bytes=4 * (9 if config.intensity else 6),  # scale and offset of R, G, B; the intensity weights
        map_bytes=4 * config.channels_in * pixels,
    )
    return CountNode("input", counts, shape=(config.channels_in, height, width))


def _decoder(config: NetworkConfig) -> CountNode:
    """Global average pool and the real fully connected layer (Fig. 2)."""
    last = config.plan()[-1]
    weights = last.channels * config.classes
    linear = Counts(
        real_params=weights + config.classes,
        real_macs=weights,
        connected_macs=weights,
        weight_bytes=4 * (weights + config.classes),
        map_bytes=4 * config.classes,
    )
    pool = Counts(adds=last.channels * last.height * last.width, map_bytes=4 * last.channels)
    children = (
        CountNode("decoder.pool", pool, shape=(last.channels, 1, 1)),
        CountNode("decoder.linear", linear, shape=(config.classes, 1, 1)),
    )
    return CountNode("decoder", children=children, shape=(config.classes, 1, 1))


def peak_map_bytes(config: NetworkConfig) -> int:
    """The most float32 map memory alive at once when every module runs on its own, whole map by whole map.

    An engine that works row by row needs far less; bits are not counted, as they can be made where they are read.
    """
    peak = 0
    for block in config.plan():
        pixels_in, pixels = block.height_in * block.width_in, block.height * block.width
        x, conv1 = block.channels_in * pixels_in, block.channels * pixels_in
        out = block.channels * pixels  # also of depth wise, conv3 and the identity path
        steps = []
        if block.channels < block.channels_in:
            steps, x = [x + conv1], conv1  # the channel average takes the place of the block's input
        steps += [x + conv1, x + conv1 + out]  # conv1; depth wise
        if block.normal:
            steps += [x + 2 * out]  # conv3
        else:
            pooled = min(block.channels_in, block.channels) * pixels
            pool = [x + out + pooled] if block.stride > 1 else []  # a 1x1 pool is no op: the identity module reads x
            steps += [*pool, pooled + 2 * out, 3 * out]  # pool; identity module; conv3
        peak = max(peak, *steps)
    return 4 * max(peak, out + block.channels, block.channels + config.classes)  # the decoder's two modules
