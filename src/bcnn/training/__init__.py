"""Training (sec. 5): `config` says what a run is, `loop` runs it, `run` is the folder it leaves behind.

The package itself can be called: `bcnn.train(images, minutes=20)` is `api.train`, whichever of its modules were imported before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcnn.training.api import Run


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Run:
        from bcnn.training.api import train

        return train(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
