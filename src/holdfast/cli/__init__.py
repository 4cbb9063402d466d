"""The ``holdfast`` command. `commands` declares its subcommands; the other modules run them."""

from holdfast.cli.main import main

__all__ = ["main"]
