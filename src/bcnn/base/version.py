"""The version of the package: the build, `bcnn --version` and everything that is written into a file read it here."""

__version__ = "0.2.0.dev0"
