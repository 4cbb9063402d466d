"""A line on the terminal with the progress of long work."""

import shutil
from typing import Final, Self

import click

from holdfast.cli.console import count_text

WIDEST_BAR: Final = 40


class ProgressBar:
    """A line on standard error, erased at its end. `is_shown` is False where standard error is no terminal."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def show(self, done: int, total: int, noun: str) -> None:
        """Show how many of the things that `noun` names are done."""
        if self._is_shown:
            click.echo(f"\r{bar_text(done, total, shutil.get_terminal_size().columns, noun)}\x1b[K", nl=False, err=True)


def bar_text(done: int, total: int, columns: int, noun: str = "instance") -> str:
    """The bar with its counts, no wider than the terminal. `total` does not count what was added meanwhile."""
    part = min(1.0, done / total) if total else 1.0
    counts = f" {part:4.0%}  {done:,} of {count_text(total, noun)}"
    width = max(0, min(WIDEST_BAR, columns - len(counts) - len("[]") - 1))
    filled = int(width * part)
    return f"[{'#' * filled}{'.' * (width - filled)}]{counts}"[: max(0, columns - 1)]
