"""The parts of which commands are declared: classes of commands and arguments, exit codes, variables, shared options.

This module imports click and nothing of the engine, so that ``--help`` and the completion of a shell are fast.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_CODES: Final = {
    0: "The command succeeded.",
    1: "The command ran, and the result is negative: a workflow failed, an update was rejected, verify found problems.",
    2: "The command cannot run: a wrong option, an unknown id or workflow, input that does not fit, or no store.",
    3: "The store cannot be opened, read or written.",
    4: "The request or report is stored, and no worker has handled it yet.",
    5: "The engine refused the request or report.",
    6: "The claim on an activity is lost: it was released or ended, or another executor has it.",
    130: "Stopped by Ctrl-C, by SIGTERM (run), or by a second signal (worker).",
}
VARIABLES: Final = {
    "HOLDFAST_STORE": "The store, if --store is not given.",
    "HOLDFAST_ACTIVITY_EXEC_ID": "The external activity, if --exec-id is not given. Set by launchers and activity run.",
    "HOLDFAST_CLAIM": "The claim on that activity, if --claim is not given.",
    "HOLDFAST_BUILD": "The name of the build of the code, if --build or build= is not given.",
    "COLUMNS": "The width of the output. Without a terminal and without COLUMNS, lines are not folded.",
    "NO_COLOR": "If set, the output has no colours.",
    "SHELL": "The shell for --install-completion and --show-completion, if none is named.",
}


ID_POLICIES: Final = ("idempotent", "reuse", "terminate_existing")


class Argument(click.Argument):
    """A positional argument with a line in the help (click has that from 8.5 on)."""

    def __init__(self, name: str, summary: str, **settings: Any) -> None:
        super().__init__([name], **settings)
        self.summary = summary


class CliCommand(click.Command):
    """A command whose function, ``MODULE:NAME`` inside `holdfast.cli`, is imported when it is called."""

    def __init__(
        self, name: str, function: str, summary: str, *params: click.Parameter, details: str = "", examples: str = ""
    ) -> None:
        self.function = function
        self.summary = summary
        self.details = details
        self.examples = examples
        verbatim = f"\b\n{examples}" if examples else ""
        text = "\n\n".join(part for part in (summary, details, verbatim) if part)
        super().__init__(name, callback=self._call, params=list(params), help=text, short_help=summary)

    def load(self) -> Any:
        """Imports the function of the command."""
        module, _, name = self.function.partition(":")
        return getattr(import_module(f"holdfast.cli.{module}"), name)

    def _call(self, **given: Any) -> None:
        self.load()(**given)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the arguments, then the options."""
        arguments = [param for param in self.params if isinstance(param, Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(param.human_readable_name, param.summary) for param in arguments])
        super().format_options(ctx, formatter)


class Group(click.Group):
    """Commands in the order of their declaration. The main group also lists the exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if ctx.parent is None:
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


def option(*names: str, **settings: Any) -> click.Option:
    """An option: its names, then the name of its parameter if that differs."""
    return click.Option(names, **settings)


def candidates(kind: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """The completion of a value from the store, such as its instances or workflows (`holdfast.cli.candidates`)."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        from holdfast.cli.candidates import read_candidates  # noqa: PLC0415 - opens the store

        given = context.params
        return read_candidates(kind, given.get("store"), incomplete, given.get("instance_id"))

    return complete


def words(*values: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """The completion of a value that is one of a few words, in any case of letters."""

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        return [value for value in values if value.lower().startswith(incomplete.lower())]

    return complete


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The completion of the name of a file, which the shell does."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415 - not needed by --help

    return [CompletionItem(incomplete, type="file")]


ID: Final = Argument(
    "instance_id",
    "The id of the instance. If several have had it, the newest.",
    metavar="ID",
    shell_complete=candidates("instances"),
)
STORE: Final = option(
    "--store",
    "-s",
    metavar="PATH|URL",
    shell_complete=files,
    help="The store: a SQLite file or a postgresql:// URL. If not given: HOLDFAST_STORE, store in the table [holdfast] "
    "of holdfast.toml, or ./holdfast.db.",
)
PAYLOAD_LIMIT: Final = option(
    "--payload-limit",
    metavar="BYTES",
    type=int,
    default=33_554_432,
    help="The largest arguments, result or event value. Values above 2 MiB cause a warning.",
)
JSON: Final = option("--json", "as_json", is_flag=True, help="Print JSON.")
INPUT: Final = option(
    "--input",
    "-i",
    "input_json",
    metavar="JSON",
    help="The arguments of the workflow: an object with names, or an array. Of a workflow with one parameter, the "
    "argument itself.",
)
INSTANCE: Final = option(
    "--id", "instance_id", metavar="ID", help="The id of the instance. If not given, a new unique id."
)
POLICY: Final = option(
    "--policy",
    metavar="POLICY",
    default="idempotent",
    shell_complete=words(*ID_POLICIES),
    help="If an instance has the id: idempotent continues it or prints its result, reuse starts a new one if it has "
    "ended, terminate_existing ends it and starts a new one.",
)
WHOLE: Final = option("--whole", is_flag=True, help="Show long and large values whole.")
EXECUTION: Final = option("--execution", metavar="N", type=int, help="An earlier execution of the instance.")
FILE: Final = Argument("file", "A flow in YAML.", metavar="FILE", shell_complete=files)
APP: Final = option(
    "--app",
    "-a",
    metavar="APP",
    multiple=True,
    shell_complete=files,
    help="FILE.py or MODULE with the activities. May be repeated.",
)

APPLICATIONS: Final = Argument(
    "applications",
    "FILE.py or MODULE, one or more.",
    metavar="APP...",
    nargs=-1,
    required=True,
    shell_complete=files,
)
WORKFLOW: Final = option(
    "--workflow",
    "-w",
    metavar="NAME",
    shell_complete=candidates("workflows"),
    help="Only instances of this workflow.",
)

QUEUE: Final = option(
    "--queue",
    "-q",
    "queues",
    metavar="NAME",
    multiple=True,
    shell_complete=candidates("queues"),
    help="Only activities of this queue. May be repeated.",
)
ACTIVITY_NAME: Final = option(
    "--name",
    "-n",
    "names",
    metavar="NAME",
    multiple=True,
    shell_complete=candidates("activities"),
    help="Only activities with this name. May be repeated.",
)
EXEC_ID: Final = option(
    "--exec-id",
    "-e",
    metavar="ID",
    shell_complete=candidates("exec ids"),
    help="The activity, as it was offered. If not given: HOLDFAST_ACTIVITY_EXEC_ID.",
)
CLAIM: Final = option(
    "--claim", "claim_text", metavar="TEXT", help="The claim of the executor. If not given: HOLDFAST_CLAIM."
)
SOURCE: Final = option("--source", metavar="TEXT", help="The name of the client or executor, for human readers.")
REPORT: Final = (
    EXEC_ID,
    CLAIM,
    option("--event-id", metavar="TEXT", help="The id of the report: reports with one id are one report."),
    option(
        "--sequence",
        metavar="N",
        type=int,
        help="1, 2, ... of this claim: the report waits for those before it.",
    ),
    SOURCE,
    STORE,
    JSON,
)
"""The options of all reports about activities."""
TEXT: Final = option("--text", "is_text", is_flag=True, help="VALUE is a string, not JSON.")


def value_argument(summary: str, **settings: Any) -> Argument:
    """The value of a report."""
    metavar = "VALUE" if settings.get("required", True) else "[VALUE]"
    return Argument("value", f"{summary} as JSON; - reads standard input.", metavar=metavar, **settings)
