"""The entry point of the command: it runs what was asked for, and shows errors as sentences."""

import click

from holdfast.cli.commands import root
from holdfast.cli.exits import EXIT_INTERRUPTED, exit_code, leave
from holdfast.errors import HoldfastError


def main() -> None:
    """Run the command. What Holdfast raises on purpose is shown as a sentence, never as a traceback."""
    try:
        code = root.main(prog_name="holdfast", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        leave(error.exit_code)
    except click.Abort:
        leave(EXIT_INTERRUPTED)
    except HoldfastError as error:
        _show(error)
        leave(exit_code(error))
    except SystemExit as stop:
        leave(stop.code if isinstance(stop.code, int) else 0)
    leave(code if isinstance(code, int) else 0)


def _show(error: HoldfastError) -> None:
    from rich.console import Console  # noqa: PLC0415 - most commands load it, and --help does not
    from rich.text import Text  # noqa: PLC0415

    from holdfast.cli.texts import safe_lines  # noqa: PLC0415

    line = Text.assemble(("holdfast: ", "bold red"), safe_lines(str(error)))
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)
