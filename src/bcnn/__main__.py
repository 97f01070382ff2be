"""`python -m bcnn` is the command `bcnn`."""

from bcnn.cli import main

main()
