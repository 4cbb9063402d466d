"""The entry point of the command: options that every subcommand shares, and errors as sentences."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from holdfast import __version__
from holdfast.cli.explain import explain
from holdfast.errors import HoldfastError

EXIT_WRONG_INPUT = 2

app = typer.Typer(
    name="holdfast",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Workflows that cannot be stopped half-way.",
)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Workflows that cannot be stopped half-way."""
    del version  # handled by its callback


app.command()(explain)


def main() -> None:
    """Run the command. What Holdfast raises on purpose is shown as a sentence, never as a traceback."""
    try:
        app()
    except HoldfastError as error:
        Console(stderr=True, highlight=False).print(f"[bold red]holdfast:[/] {_escaped(error)}", soft_wrap=True)
        sys.exit(EXIT_WRONG_INPUT)


def _escaped(error: HoldfastError) -> str:
    return str(error).replace("[", r"\[")
