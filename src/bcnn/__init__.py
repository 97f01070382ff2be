"""BCNN: fully binary CNNs, from the paper to the device. Importing it imports no torch."""

from bcnn.config import Level, NetworkConfig, preset
from bcnn.errors import UserError

__version__ = "0.1.0"
__all__ = ["Level", "NetworkConfig", "UserError", "__version__", "preset"]
