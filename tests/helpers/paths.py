"""Where things of the checkout are, for tests that look at files or start other processes."""

from pathlib import Path

HELPERS = Path(__file__).resolve().parent
ROOT = HELPERS.parents[1]
