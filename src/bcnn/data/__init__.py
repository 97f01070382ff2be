"""Images on disk -> batches of tensors. `sources` finds them, `decode` reads them, `augment` varies them, `batches` serves them.

Only `augment`, `stream` and `batches` need torch: their names are looked up when they are used, so that the engine's half of
the package can find and decode images too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bcnn.data.config import Augment, DataConfig

if TYPE_CHECKING:
    from bcnn.training.batches import Batch, Data, Split, open_data, open_evaluation

__all__ = ["Augment", "Batch", "Data", "DataConfig", "Split", "open_data", "open_evaluation"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bcnn.training import batches

    return getattr(batches, name)
