"""Images on disk -> batches of tensors. `sources` finds them, `decode` reads them, `augment` varies them, `batches` serves them."""

from bcnn.data.batches import Batch, Data, Split, open_data, open_evaluation
from bcnn.data.config import Augment, DataConfig

__all__ = ["Augment", "Batch", "Data", "DataConfig", "Split", "open_data", "open_evaluation"]
