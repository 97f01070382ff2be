"""The version of the package: the build, `bcnn --version` and everything that is written into a file read it here."""

__version__ = "0.1.0"
