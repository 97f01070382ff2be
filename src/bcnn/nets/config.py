"""The network as data: Table 1 of the paper in frozen dataclasses, and named presets. No torch.

A `NetworkConfig` is a stem and levels. A `Level` is one 'replicate' or 'down' block (replicate R, stride S) followed by
`blocks - 1` 'normal' blocks (R = S = 1); the stem is a level too (Fig. 2). `NetworkConfig.plan()` unrolls it to one `BlockShape`
per building block with every shape filled in. Layers, counts and tests read shapes from that plan and nowhere else.

Legend: C channels, RC channels after replication, H x W feature map size, P branches, R replicate, S stride, F filter.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bcnn.base.dataclass_io import known_keys, shown, to_plain
from bcnn.base.errors import UserError, nearest
from bcnn.base.files import check_plain

PReLU = Literal["module", "block"]
MAX_SIZE = 2**24  # channels, classes, pixels a side: sums of +-1 are exact in float32 up to here
MAX_BLOCKS = 1000  # of a level: a slip of the keyboard becomes a sentence, not a full memory


@dataclass(frozen=True)
class Level:
    """One row pair of Table 1: a block with `stride` S and `replicate` R, then `blocks - 1` normal blocks.

    >>> import bcnn
    >>> bcnn.NetworkConfig(name="small", image_size=(32, 32), classes=3, levels=(bcnn.Level(blocks=2),)).stride
    2
    """

    blocks: int = 1
    stride: int = 2
    replicate: float = 2
    filter: int = 1  # F: the 1x1 binary convolutions, or FxF ones as F*F shifted branches (sec. 4.2.1)


@dataclass(frozen=True)
class BlockShape:
    """One building block (Fig. 3) with its shapes: what `NetworkConfig.plan()` yields."""

    name: str  # "stem.0", "level1.0", ...: also the name of the torch module
    channels_in: int  # C
    channels: int  # RC: of every convolution inside and of the output
    stride: int  # S
    branches: int  # P
    filter: int  # F
    prelu: PReLU
    height_in: int
    width_in: int

    @property
    def normal(self) -> bool:
        """A normal block's identity path is its input; every other has pooling and a binary module (sec. 4.2.3)."""
        return self.channels == self.channels_in and self.stride == 1 and not self.is_stem

    @property
    def is_stem(self) -> bool:
        # Reading: the first block of the stem is a 'replicate' block even with R = 1; Table 2 counts its identity module.
        return self.name == "stem.0"

    @property
    def height(self) -> int:
        return self.height_in // self.stride

    @property
    def width(self) -> int:
        return self.width_in // self.stride


@dataclass(frozen=True)
class NetworkConfig:
    """A complete network (Fig. 2, Table 1). The defaults are the paper's `imagenet` with P = 1.

    >>> import bcnn
    >>> bcnn.NetworkConfig().replace(classes=5, image_size=(128, 128)).classes
    5
    """

    name: str = "imagenet"
    image_size: tuple[int, int] = (224, 224)  # height, width
    classes: int = 1000
    branches: int = 1  # P
    prelu: PReLU = "block"  # Reading: where the three PReLUs of a block stand, see layers.Block
    intensity: bool = True  # a fourth input channel made from R, G, B (sec. 4.1)
    stem: Level = Level(blocks=1, stride=1, replicate=8)
    levels: tuple[Level, ...] = field(default=(Level(1), Level(1), Level(2), Level(6), Level(2)))

    def __post_init__(self) -> None:
        _validate(self)

    @property
    def channels_in(self) -> int:
        return 4 if self.intensity else 3

    @property
    def stride(self) -> int:
        """Of the whole network: image height and width must be multiples of it."""
        return math.prod(level.stride for level in (self.stem, *self.levels))

    @property
    def channels_out(self) -> int:
        return self.plan()[-1].channels

    def plan(self) -> list[BlockShape]:
        """Every building block in order, with its shapes."""
        channels = self.channels_in
        height, width = self.image_size
        blocks = []
        for row, level in enumerate((self.stem, *self.levels)):
            for index in range(level.blocks):
                first = index == 0
                block = BlockShape(
                    name=f"{'stem' if row == 0 else f'level{row}'}.{index}",
                    channels_in=channels,
                    channels=replicated(channels, level.replicate) if first else channels,
                    stride=level.stride if first else 1,
                    branches=self.branches,
                    filter=level.filter,
                    prelu=self.prelu,
                    height_in=height,
                    width_in=width,
                )
                blocks.append(block)
                channels, height, width = block.channels, block.height, block.width
        return blocks

    def replace(self, **changes: Any) -> NetworkConfig:
        """A copy with some fields changed; unknown fields are a `UserError`."""
        return from_dict({**to_dict(self), **changes})

    def scaled(self, width: float) -> NetworkConfig:
        """The same network `width` times as wide: the stem's R sets the channels of all that follows (Fig. 2)."""
        if not 0 < width < math.inf:
            raise UserError(f"width must be a number > 0, got {shown(width)}")
        stem = dataclasses.replace(self.stem, replicate=self.stem.replicate * width)
        return dataclasses.replace(self, name=f"{self.name}-x{width:g}", stem=stem)


def replicated(channels: int, replicate: float) -> int:
    """RC. Reading: where R * C is not whole, it is rounded to the nearest channel count, never below one."""
    return max(1, math.floor(channels * replicate + 0.5))


# --- checks ---------------------------------------------------------------------------------------------------------


def _whole(value: Any, where: str, high: int = MAX_SIZE) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{where} must be a whole number >= 1, got {shown(value)}")
    if value > high:
        raise UserError(f"{where} must be at most {high}, got {value}")


def _validate(config: NetworkConfig) -> None:
    if not isinstance(config.name, str):
        raise UserError(f"name must be text, got {shown(config.name)}")
    size = config.image_size
    if not isinstance(size, tuple) or len(size) != 2:
        raise UserError(f"image_size must be one number or [height, width], got {shown(size)}")
    for side, value in zip(("height", "width"), size, strict=True):
        _whole(value, f"image_size {side}")
    _whole(config.classes, "classes")
    _whole(config.branches, "branches (P)")
    if config.prelu not in ("module", "block"):
        raise UserError(f"prelu must be 'module' or 'block', got {shown(config.prelu)}")
    if not isinstance(config.intensity, bool):
        raise UserError(f"intensity must be true or false, got {shown(config.intensity)}")
    channels = config.channels_in
    for row, level in enumerate((config.stem, *config.levels)):
        where = "stem" if row == 0 else f"level{row}"
        if not isinstance(level, Level):
            raise UserError(f"{where} must be a Level, got {shown(level)}")
        _whole(level.blocks, f"{where}: blocks", MAX_BLOCKS)
        _whole(level.stride, f"{where}: stride (S)")
        _whole(level.filter, f"{where}: filter (F)")
        if level.filter % 2 == 0:
            raise UserError(f"{where}: filter (F) must be odd, so that it has a centre, got {level.filter}")
        r = level.replicate
        if isinstance(r, bool) or not isinstance(r, (int, float)) or not 0 < r < math.inf:
            raise UserError(f"{where}: replicate (R) must be a number > 0, got {shown(r)}")
        channels = replicated(channels, min(r, 2 * MAX_SIZE))
        if channels > MAX_SIZE:
            raise UserError(f"{where}: replicate (R) makes more than {MAX_SIZE} channels, got {r}")
    total = config.stride
    for side, value in zip(("height", "width"), size, strict=True):
        if value % total:
            below = value // total * total
            accepted = f"{below} or {below + total}" if below else f"{total}"
            raise UserError(
                f"image_size {side} {value} is not a multiple of {total}, the product of all strides (S); "
                f"the nearest accepted: {accepted}"
            )


# --- JSON and TOML --------------------------------------------------------------------------------------------------


def to_dict(config: NetworkConfig) -> dict[str, Any]:
    """Plain data (lists, not tuples) that `from_dict` reads back to an equal config."""
    plain: dict[str, Any] = to_plain(config)
    return plain


def from_dict(data: Any) -> NetworkConfig:
    """The inverse of `to_dict`; missing keys take the defaults, unknown ones are a `UserError`."""
    data = known_keys(data, NetworkConfig, "config")
    size = data.get("image_size", (224, 224))
    data["image_size"] = (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, list) else size
    if "stem" in data and not isinstance(data["stem"], Level):
        data["stem"] = Level(**{"stride": 1, "replicate": 8, **known_keys(data["stem"], Level, "stem")})
    if "levels" in data:
        if not isinstance(data["levels"], (list, tuple)):
            raise UserError(f"levels must be a list of levels, got {shown(data['levels'])}")
        data["levels"] = tuple(
            level if isinstance(level, Level) else Level(**known_keys(level, Level, f"level{row}"))
            for row, level in enumerate(data["levels"], start=1)
        )
    return NetworkConfig(**data)


def to_json(config: NetworkConfig) -> str:
    return json.dumps(to_dict(config), indent=2) + "\n"


def to_toml(config: NetworkConfig) -> str:
    """TOML text. The config is scalars, one table and a list of tables: JSON's literals are TOML's for all of them.

    But for two: TOML has no surrogate pairs, so text stays as it is, and wants DEL escaped.
    """

    def table(data: dict[str, Any]) -> list[str]:
        literals = {key: json.dumps(value, ensure_ascii=False) for key, value in data.items()}
        return [f"{key} = {literal}".replace("\x7f", "\\u007f") for key, literal in literals.items()]

    data = to_dict(config)
    stem, levels = data.pop("stem"), data.pop("levels")
    lines = [*table(data), "", "[stem]", *table(stem)]
    for level in levels:
        lines += ["", "[[levels]]", *table(level)]
    if not levels:
        lines.insert(0, "levels = []")
    return "\n".join(lines) + "\n"


def read(path: str | Path) -> NetworkConfig:
    """A config from a .json or .toml file."""
    path = Path(path)
    try:
        check_plain(path)
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise UserError(f"cannot read config {path}: {error.strerror}") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # both parsers' errors, bytes that are not text, thousands of brackets
        raise UserError(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from None
    try:
        return from_dict(data)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


# --- presets --------------------------------------------------------------------------------------------------------


def _imagenet() -> NetworkConfig:
    """The paper's network, P = 1: 68.96 % top-1 on ImageNet after two cycles of step 2 (sec. 6.1)."""
    return NetworkConfig()


def _imagenet_p2() -> NetworkConfig:
    """The paper's network with two parallel branches, P = 2: 71.24 % (sec. 6.1)."""
    return NetworkConfig(name="imagenet-p2", branches=2)


def _imagenette() -> NetworkConfig:
    """The paper's five levels at half the width for 128 x 128 photos in ten classes: 197 M binary MACs."""
    return NetworkConfig(name="imagenette", image_size=(128, 128), classes=10, stem=Level(1, 1, 4))


def _tinyimagenet() -> NetworkConfig:
    """The start for other classes: photos in 200 classes at 80 x 80, halved in the stem instead of the last level: 91.8 M binary MACs.

    With fewer pixels in the first levels it trains 1.4 times as fast at 64 x 64, 58.7 M, as the paper's strides do with 49.3 M.
    """
    levels = (Level(1), Level(2), Level(6), Level(2, stride=1))
    return NetworkConfig(name="tinyimagenet", image_size=(80, 80), classes=200, stem=Level(1, 2, 8), levels=levels)


def _cifar10() -> NetworkConfig:
    """Three levels of one down and two normal blocks at 1.5 times the paper's width for 32 x 32 images: 77.9 M binary MACs."""
    stem = Level(1, 1, 12)
    return NetworkConfig(
        name="cifar10", image_size=(32, 32), classes=10, stem=stem, levels=(Level(3), Level(3), Level(3))
    )


def _digits() -> NetworkConfig:
    """Two levels for the 8 x 8 digits that ship with scikit-learn: trains in seconds."""
    return NetworkConfig(name="digits", image_size=(8, 8), classes=10, levels=(Level(2), Level(2)))


PRESETS: dict[str, Callable[[], NetworkConfig]] = {
    "imagenet": _imagenet,
    "imagenet-p2": _imagenet_p2,
    "imagenette": _imagenette,
    "tinyimagenet": _tinyimagenet,
    "cifar10": _cifar10,
    "digits": _digits,
}


def preset(name: str) -> NetworkConfig:
    """A named network; an unknown name suggests the nearest.

    >>> import bcnn
    >>> bcnn.preset("digits").image_size
    (8, 8)
    """
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}; {nearest(name, PRESETS)}")
    return PRESETS[name]()


def resolve(name_or_path: str) -> NetworkConfig:
    """What a user names on the command line: a preset, or a config file ending in .json or .toml."""
    path = Path(name_or_path)
    if path.suffix in (".json", ".toml"):
        return read(path)
    if name_or_path not in PRESETS and (path.exists() or len(path.parts) > 1):
        raise UserError(f"{path} is no config file: its name must end in .json or .toml")
    return preset(name_or_path)
