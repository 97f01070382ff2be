"""`python -m bcnn`, and so `torchrun -m bcnn`."""

from bcnn.cli import main

main()
