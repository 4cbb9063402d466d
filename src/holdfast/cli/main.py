"""The command's entry point."""

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def root() -> None:
    """Workflows that cannot be stopped half-way."""


def main() -> None:
    app()
