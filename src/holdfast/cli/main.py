"""The entry point of the command: options that every subcommand shares, and errors as sentences."""

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from holdfast import __version__
from holdfast.cli.cancel import cancel
from holdfast.cli.event import event
from holdfast.cli.exits import exit_code, leave
from holdfast.cli.explain import explain
from holdfast.cli.flow import flow
from holdfast.cli.history import history
from holdfast.cli.list import list_instances
from holdfast.cli.migrate import migrate
from holdfast.cli.query import query
from holdfast.cli.queues import queues
from holdfast.cli.run import run
from holdfast.cli.show import show
from holdfast.cli.terminate import terminate
from holdfast.cli.texts import safe_lines
from holdfast.cli.update import update
from holdfast.cli.verify import verify
from holdfast.cli.watch import watch
from holdfast.cli.worker import worker
from holdfast.cli.workers import workers
from holdfast.errors import HoldfastError

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


app.command()(run)
app.command(name="list")(list_instances)
app.command()(show)
app.command()(event)
app.command()(query)
app.command()(update)
app.command()(watch)
app.command()(cancel)
app.command()(terminate)
app.command()(worker)
app.command()(workers)
app.command()(queues)
app.command()(verify)
app.command()(migrate)
app.command()(explain)
app.command()(history)
app.add_typer(flow)


def main() -> None:
    """Run the command. What Holdfast raises on purpose is shown as a sentence, never as a traceback."""
    try:
        app()
    except HoldfastError as error:
        line = Text.assemble(("holdfast: ", "bold red"), safe_lines(str(error)))
        Console(stderr=True, highlight=False).print(line, soft_wrap=True)
        leave(exit_code(error))
    except SystemExit as stop:
        leave(stop.code if isinstance(stop.code, int) else 0)
