"""Every command with its arguments, options and help text. The code that a command runs is imported when it runs.

So ``--help`` and the completion of a shell import click and this module, and neither asyncio nor a store. The function
of a command takes its parameters by the names that are declared here; a test compares names and defaults.
"""

from importlib import import_module
from typing import Any, Final

import click

from holdfast._version import __version__


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
        verbatim = f"\b\n{examples}" if examples else ""
        text = "\n\n".join(part for part in (summary, details, verbatim) if part)
        super().__init__(name, callback=self._call, params=list(params), help=text, short_help=summary)

    def load(self) -> Any:
        """The function."""
        module, _, name = self.function.partition(":")
        return getattr(import_module(f"holdfast.cli.{module}"), name)

    def _call(self, **given: Any) -> None:
        self.load()(**given)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The arguments, then the options."""
        arguments = [param for param in self.params if isinstance(param, Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(param.human_readable_name, param.summary) for param in arguments])
        super().format_options(ctx, formatter)


class Group(click.Group):
    """Commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)


def option(*names: str, **settings: Any) -> click.Option:
    """An option: its names, then the name of the parameter if that is another."""
    return click.Option(names, **settings)


def _show_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"holdfast {__version__}")
        context.exit()


def _complete(context: click.Context, parameter: click.Parameter, shell: str | None) -> None:
    if shell is None or context.resilient_parsing:
        return
    from holdfast.cli import completion  # noqa: PLC0415 - needed by two options

    chosen = completion.install if parameter.name == "install_completion" else completion.show
    chosen(context.command, shell)
    context.exit()


ID: Final = Argument("instance_id", "The instance; of several with this id the newest.", metavar="ID")
STORE: Final = option(
    "--store",
    "-s",
    metavar="PATH|URL",
    help="The store's file or URL; else HOLDFAST_STORE, holdfast.toml, ./holdfast.db.",
)
PAYLOAD_LIMIT: Final = option(
    "--payload-limit",
    metavar="BYTES",
    type=int,
    default=33_554_432,
    help="The largest argument list, result or event; a warning comes from 2 MiB on.",
)
JSON: Final = option("--json", "as_json", is_flag=True, help="Print JSON.")
INPUT: Final = option(
    "--input", "-i", "input_json", metavar="JSON", help="Arguments: an object by name, or an array by position."
)
INSTANCE: Final = option(
    "--id", "instance_id", metavar="ID", help="The id of the instance; the same id continues the same instance."
)
POLICY: Final = option(
    "--policy",
    metavar="POLICY",
    default="idempotent",
    help="If the id is taken: idempotent, reuse (a new one once the old one is closed) or terminate_existing.",
)
WHOLE: Final = option("--whole", is_flag=True, help="Show long values whole.")
FILE: Final = Argument("file", "A flow in YAML.", metavar="FILE")
APP: Final = option(
    "--app", "-a", metavar="APP", multiple=True, help="FILE.py or MODULE with the activities; may be repeated."
)

COMMANDS: Final = (
    CliCommand(
        "run",
        "run:run",
        "Run a workflow in this process and show its steps.",
        Argument("target", "FILE.py:WORKFLOW or MODULE:WORKFLOW.", metavar="APP:WORKFLOW"),
        INPUT,
        INSTANCE,
        POLICY,
        PAYLOAD_LIMIT,
        STORE,
        JSON,
        examples="""holdfast run shop.py:checkout --input '{"card": "4242", "cents": 300}' --id order-42""",
    ),
    CliCommand(
        "list",
        "list:list_instances",
        "List the instances of a store, newest first.",
        option("--state", metavar="STATE", help="Only this state: RUNNING, COMPLETED, FAILED, ..."),
        option("--status", metavar="STATE", hidden=True, help="The former name of --state, in this release only."),
        option("--workflow", "-w", metavar="NAME", help="Only instances of this workflow."),
        option("--parent", metavar="ID", help="Only children of this instance."),
        option("--limit", "-n", metavar="N", type=int, default=50, help="The most that are listed."),
        STORE,
        JSON,
    ),
    CliCommand(
        "show",
        "show:show",
        "Show one instance: its steps with their attempts and ledgers, and what it waits for or how it ended.",
        ID,
        option("--number", metavar="N", type=int, help="An earlier instance of this id; list has their numbers."),
        WHOLE,
        STORE,
        JSON,
    ),
    CliCommand(
        "event",
        "send:event",
        "Raise an event to an instance.",
        ID,
        Argument("name", "The name of the event.", metavar="NAME"),
        option("--input", "-i", "value", metavar="JSON", default="null", help="Its value."),
        option("--id", "message_id", metavar="TEXT", help="Events with the same id are one event, delivered once."),
        STORE,
        JSON,
        details="The event is on disk when the command returns, and reaches the code once.",
    ),
    CliCommand(
        "query",
        "send:query",
        "Ask a workflow by one of its queries, and print the answer as JSON.",
        ID,
        Argument("name", "The name of the query.", metavar="NAME"),
        Argument(
            "arguments",
            "Its arguments: an array, or the one argument itself.",
            metavar="[JSON]",
            required=False,
            default="[]",
        ),
        option("--timeout", metavar="SECONDS", type=float, default=10.0, help="How long to wait for an answer."),
        STORE,
        details="Nothing is changed. A worker that has the code answers.",
    ),
    CliCommand(
        "update",
        "send:update",
        "Change a workflow by one of its updates, wait for it, and print its result as JSON.",
        ID,
        Argument("name", "The name of the update.", metavar="NAME"),
        option(
            "--input",
            "-i",
            "value",
            metavar="JSON",
            default="[]",
            help="Its arguments: an array, or the one argument itself.",
        ),
        option("--id", "update_id", metavar="TEXT", help="Updates with the same id are one update, applied once."),
        option(
            "--timeout", metavar="SECONDS", type=float, help="How long to wait for the answer; the update continues."
        ),
        STORE,
    ),
    CliCommand(
        "watch",
        "history:watch",
        "Show an instance and every change of it until it ends.",
        ID,
        STORE,
        JSON,
        details="With --json each change is a line of JSON. A flow is shown with its key: a digit for each activity, "
        "which holdfast explain reads.",
    ),
    CliCommand(
        "cancel",
        "send:cancel",
        "Ask an instance to end; its code may clean up.",
        ID,
        option("--reason", "-r", metavar="TEXT", help="The reason, for its code and for those who wait for it."),
        STORE,
        JSON,
        details="Its code gets an asyncio.CancelledError, which it may handle and continue.",
    ),
    CliCommand(
        "terminate",
        "send:terminate",
        "End an instance now, without running its code.",
        ID,
        option("--reason", "-r", metavar="TEXT", help="The reason, for those who wait for it."),
        STORE,
        JSON,
        details="Nothing is undone. Running activities are cancelled.",
    ),
    CliCommand(
        "worker",
        "worker:worker",
        "Run workflows and activities that others start, until a signal ends the worker.",
        Argument("applications", "FILE.py or MODULE, one or more.", metavar="APP...", nargs=-1, required=True),
        option("--queues", "-q", metavar="A,B", help="The queues to serve; else those of the activities."),
        option("--concurrency", "-c", metavar="N", type=int, default=100, help="The most activities at once."),
        option(
            "--lease",
            metavar="SECONDS",
            type=float,
            default=8.0,
            help="Without a heartbeat for this long, others take over.",
        ),
        option(
            "--loop-timeout",
            metavar="SECONDS",
            type=float,
            default=300.0,
            help="If its event loop is blocked for this long, others take over.",
        ),
        option(
            "--drain-timeout",
            metavar="SECONDS",
            type=float,
            default=25.0,
            help="How long running activities may take after the signal.",
        ),
        option(
            "--same-host/--no-same-host",
            default=True,
            help="Whether deaths on this machine are seen before a lease ends.",
        ),
        PAYLOAD_LIMIT,
        STORE,
        details="At Ctrl-C or SIGTERM it claims nothing more and waits for its activities. A second signal stops it at "
        "once, and others run again what did not end. It logs to standard error.",
        examples="holdfast worker shop.py --queues default,parcels --concurrency 20",
    ),
    CliCommand(
        "workers",
        "overview:workers",
        "List the workers of a store: their lease, their load and the queues that they serve.",
        option("--all", "-a", "everyone", is_flag=True, help="Also workers that left or were lost within a day."),
        STORE,
        JSON,
    ),
    CliCommand(
        "queues",
        "overview:queues",
        "List the queues of a store: activities that wait and run, and the workers that serve them.",
        STORE,
        JSON,
        details="A queue that has work and no worker is marked: start one with holdfast worker APP --queues NAME.",
    ),
    CliCommand(
        "verify",
        "store:verify",
        "Check a store against every rule that its tables can show.",
        STORE,
        JSON,
        details="Nothing is changed; workers may continue. Exit code 0: sound. 1: problems were found, one line each.",
    ),
    CliCommand(
        "migrate",
        "store:migrate",
        "Bring the tables of a store up to this release.",
        option(
            "--print", "only_print", is_flag=True, help="Print the SQL for a PostgreSQL store, and connect to nothing."
        ),
        option(
            "--after",
            metavar="N",
            type=click.IntRange(min=0),
            default=0,
            help="With --print: only what comes after schema N, which is there.",
        ),
        STORE,
        details="Workers of the release before may continue meanwhile, unless the changelog says otherwise.",
        examples="holdfast migrate --print --store 'postgresql:///shop?schema=holdfast' | psql -v ON_ERROR_STOP=1 shop",
    ),
    CliCommand(
        "explain",
        "explain:explain",
        "Say what the digits of a ledger or a collation key mean.",
        Argument("digits", "A ledger, a collation key, or a composite of keys.", metavar="DIGITS"),
        option("--activities", "-a", metavar="A,B", help="The ids of the flow's activities: DIGITS is its key."),
        option("--flow", "-f", metavar="NAME|FILE", help="The flow, in the store or in a file: DIGITS is its key."),
        STORE,
        JSON,
        details="The activities of a key have their names if an instance in the store has this key, or if --flow or "
        "--activities says whose key it is.",
        examples="holdfast explain 888000002000002\n"
        "holdfast explain 366663000000000\n"
        "holdfast explain 366663000000000 --flow fox.yaml\n"
        "holdfast explain 366663000000000 --activities ate,brown,fox,jumped,quick,slept",
    ),
    CliCommand(
        "history",
        "history:history",
        "Show the history of an instance, or export it so that tests can replay it.",
        ID,
        option("--limit", "-n", metavar="N", type=int, help="Only the newest N entries."),
        option("--export", metavar="FILE", help="Write it to a file that Replayer reads."),
        WHOLE,
        STORE,
        JSON,
    ),
)

FLOW_COMMANDS: Final = (
    CliCommand(
        "run",
        "flow:run",
        "Run a flow in this process and show its activities.",
        FILE,
        APP,
        option(
            "--with", "others", metavar="FILE", multiple=True, help="Another flow, which it starts; may be repeated."
        ),
        INPUT,
        INSTANCE,
        POLICY,
        PAYLOAD_LIMIT,
        STORE,
        JSON,
        details="The same id again continues the instance, or gives its result.",
        examples="""holdfast flow run order.yaml --app shop.py --input '{"order_id": "7"}' --id order-7""",
    ),
    CliCommand(
        "check",
        "flow:check",
        "Read a flow and report every problem with its line.",
        FILE,
        APP,
        JSON,
        details="Without --app the names of activities and their arguments cannot be checked. Exit code 0: it can run. "
        "1: it cannot.",
    ),
    CliCommand(
        "draw",
        "flow:draw",
        "Draw a flow as SVG, or as Mermaid text.",
        FILE,
        option("--output", "-o", metavar="PATH", help="The file to write; else it is printed."),
        option("--mermaid", is_flag=True, help="Mermaid text instead of SVG."),
        option("--instance", "instance_id", metavar="ID", help="Draw it with the digits of this instance."),
        STORE,
        details="With --instance the drawing has the progress of the instance, on the version that it started with.",
    ),
)

flow = Group("flow", no_args_is_help=True, help="Check, run and draw flows: workflows as graphs.")
root = Group(
    "holdfast",
    no_args_is_help=True,
    help="Workflows that cannot be stopped half-way.",
    context_settings={"show_default": True},
    params=[
        option(
            "--version",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version.",
        ),
        option(
            "--install-completion",
            metavar="SHELL",
            is_flag=False,
            flag_value="current",
            is_eager=True,
            expose_value=False,
            callback=_complete,
            help="Install completion for bash, zsh or fish.",
        ),
        option(
            "--show-completion",
            metavar="SHELL",
            is_flag=False,
            flag_value="current",
            is_eager=True,
            expose_value=False,
            callback=_complete,
            help="Print the completion script.",
        ),
    ],
)
for command in COMMANDS:
    root.add_command(command)
for command in FLOW_COMMANDS:
    flow.add_command(command)
root.add_command(flow)
