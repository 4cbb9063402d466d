"""The entry point of the command: runs a command, and prints errors of Holdfast as sentences.

A worker that a supervisor ends right after its start exits with 0 (W10). So signals are handled before click, the
engine or user code is imported, and this module imports nothing else at its top.
"""

import os
import signal
import sys

TYPE_CHECKING = False  # without an import of typing
if TYPE_CHECKING:
    from types import FrameType

    from holdfast.errors import HoldfastError


def main() -> None:
    """Runs the command. Errors of Holdfast are printed as a sentence, never as a traceback."""
    if sys.argv[1:2] != ["worker"]:
        try:
            _run()
        except KeyboardInterrupt:  # during an import; later ones are handled by click
            os._exit(130)
        return
    before = {number: signal.signal(number, _leave_at_once) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        _run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run() -> None:
    import click  # noqa: PLC0415 - see above

    from holdfast.cli.commands import root  # noqa: PLC0415
    from holdfast.cli.exits import EXIT_INTERRUPTED, exit_code, leave  # noqa: PLC0415
    from holdfast.errors import HoldfastError  # noqa: PLC0415

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


def _leave_at_once(number: int, _frame: "FrameType | None") -> None:
    """Ends the process: nothing is open yet, and no user code has run."""
    os.write(2, f"{signal.Signals(number).name}: the worker ends before it has started\n".encode())
    os._exit(0)


def _show(error: "HoldfastError") -> None:
    from rich.console import Console  # noqa: PLC0415 - most commands load it, and --help does not
    from rich.text import Text  # noqa: PLC0415

    from holdfast.cli.console import print_line, safe_lines  # noqa: PLC0415
    from holdfast.errors import InstanceNotFound, StoreError  # noqa: PLC0415

    hint = ""
    if isinstance(error, InstanceNotFound):
        hint = "; holdfast list shows the instances of the store"
    elif isinstance(error, StoreError) and "permission denied for" in str(error):
        hint = "; the command needs the rights of a worker, and to list or show those of a reader"
    line = Text.assemble(("holdfast: ", "bold red"), safe_lines(str(error)), hint)
    print_line(Console(stderr=True, highlight=False), line)
