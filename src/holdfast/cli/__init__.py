"""The ``holdfast`` command, one file for each subcommand."""

from holdfast.cli.main import main

__all__ = ["main"]
