"""Every command with its arguments, options and help text. The code that a command runs is imported when it runs.

So ``--help`` and the completion of a shell import click and this module, and neither asyncio nor a store. The function
of a command takes its parameters by the names that are declared here; a test compares names and defaults.
``docs/reference/cli.md`` is generated from these declarations.
"""

from typing import Final

import click

from holdfast._version import __version__
from holdfast.cli.activity_commands import ACTIVITY_COMMANDS
from holdfast.cli.code_commands import CODE_COMMANDS
from holdfast.cli.declarations import (
    APP,
    APPLICATIONS,
    EXECUTION,
    FILE,
    ID,
    ID_POLICIES,
    INPUT,
    INSTANCE,
    JSON,
    PAYLOAD_LIMIT,
    POLICY,
    SOURCE,
    STORE,
    WHOLE,
    WORKFLOW,
    Argument,
    CliCommand,
    Group,
    candidates,
    files,
    option,
    words,
)
from holdfast.cli.retention_commands import RETENTION_COMMANDS


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


COMMANDS: Final = (
    CliCommand(
        "run",
        "run:run",
        "Run a workflow in this process and show its steps.",
        Argument("target", "FILE.py:WORKFLOW or MODULE:WORKFLOW.", metavar="APP:WORKFLOW", shell_complete=files),
        INPUT,
        INSTANCE,
        POLICY,
        PAYLOAD_LIMIT,
        STORE,
        JSON,
        details="The store is created if it does not exist. After an interruption or a crash the same command with "
        "the same --id continues where the instance stopped. With --json only the result is printed.",
        examples="""holdfast run shop.py:checkout --id order-42 \\
  --input '{"card": "4242", "cents": 300}'""",
    ),
    CliCommand(
        "start",
        "start:start",
        "Start a workflow on the workers of a store.",
        Argument(
            "workflow", "The name of a workflow or flow.", metavar="WORKFLOW", shell_complete=candidates("workflows")
        ),
        option(
            "--input",
            "-i",
            "input_json",
            metavar="JSON",
            help="The arguments of the workflow: an object with names, or an array. Any other JSON is the only "
            "argument.",
        ),
        option("--id", "instance_id", metavar="ID", help="The id of the instance. If not given, the request id."),
        option("--wait", is_flag=True, help="Wait for the result and print it."),
        option(
            "--policy",
            metavar="POLICY",
            shell_complete=words(*ID_POLICIES),
            help="If an instance has the id: idempotent (the default) finds it, reuse starts a new one if it has "
            "ended, terminate_existing ends it and starts a new one.",
        ),
        option(
            "--start-at",
            metavar="TIME",
            help="The first turn is not taken before this time, such as 2030-01-31T07:00:00Z.",
        ),
        option("--deadline", metavar="SECONDS", type=float, help="The time limit of the instance, from its start."),
        option(
            "--request-id",
            metavar="TEXT",
            help="The id of the request: requests with one id are one request. If not given, a new unique id.",
        ),
        SOURCE,
        STORE,
        JSON,
        details="The command writes a request, without the code of the application, and waits up to 2 seconds until a "
        "worker that has the workflow accepts or refuses it. The exit code is 5 for a refused request and 4 for one "
        "that no worker has handled yet; a worker that starts later takes it.",
        examples="""holdfast start checkout --input '{"card": "4242", "cents": 300}' \\
  --id order-42 --wait""",
    ),
    CliCommand(
        "requests",
        "start:requests",
        "List the requests of clients, newest first.",
        option(
            "--state",
            metavar="STATE",
            shell_complete=words("NEW", "ACCEPTED", "REFUSED", "TRACE"),
            help="Only requests in this state: NEW, ACCEPTED, REFUSED or TRACE.",
        ),
        option("--limit", "-n", metavar="N", type=int, default=50, help="The most requests to list, up to 10,000."),
        STORE,
        JSON,
        details="Clients insert requests into the table of this name by SQL or with holdfast start. A NEW request "
        "whose workflow no live worker has is marked: start a worker that has it.",
    ),
    CliCommand(
        "list",
        "list:list_instances",
        "List the instances of a store, newest first.",
        Argument(
            "filter", "A filter, in quotes: state = FAILED and a.customer = 'acme'.", metavar="[FILTER]", required=False
        ),
        option(
            "--state",
            metavar="STATE",
            shell_complete=words(
                *("REQUESTED", "RUNNING", "PAUSED", "BLOCKED", "CANCEL_REQUESTED"),
                *("COMPLETED", "FAILED", "CANCELLED", "TERMINATED"),
            ),
            help="Only instances in this state: REQUESTED, RUNNING, PAUSED, BLOCKED, CANCEL_REQUESTED, COMPLETED, "
            "FAILED, CANCELLED or TERMINATED.",
        ),
        option("--status", metavar="STATE", hidden=True, help="The former name of --state, in this release only."),
        WORKFLOW,
        option(
            "--parent", metavar="ID", shell_complete=candidates("instances"), help="Only children of this instance."
        ),
        option("--since", metavar="TIME", help="Only instances created since: 90m, 2d, today or 2026-11-18T14:00:00Z."),
        option(
            "--order",
            metavar="ORDER",
            default="created",
            help="created, closed or duration, the last two with a time range in the filter; with asc, the oldest or "
            "shortest first.",
        ),
        option("--limit", "-n", metavar="N", type=int, default=50, help="The most instances to list, up to 10,000."),
        option("--cursor", metavar="CURSOR", help="The next page: the cursor that the page before has printed."),
        option("--count", is_flag=True, help="Print how many instances match, up to 10,000, instead of a list."),
        STORE,
        JSON,
        details="A filter tests fields (id, workflow, version, state, created, closed, duration, parent, root, error, "
        "blocked, waits, execution) and attributes (a.NAME) with =, !=, <, <=, >, >=, in, between, starts with and is "
        "null, joined by and, or and not. Texts are in quotes. Times are written now - 1h, today or in ISO 8601.",
        examples="""holdfast list "state = FAILED and created > now - 1h"
holdfast list "a.customer = 'acme'" --since 7d --count""",
    ),
    CliCommand(
        "show",
        "show:show",
        "Show one instance: its steps and attempts, what it waits for, and how it ended.",
        ID,
        option("--number", metavar="N", type=int, help="An earlier instance with this id; list has the numbers."),
        EXECUTION,
        WHOLE,
        STORE,
        JSON,
        details="Lines that begin with stuck name work that no live worker can take. Each attempt has a ledger, and "
        "each flow a key: holdfast explain describes their digits.",
    ),
    CliCommand(
        "event",
        "send:event",
        "Raise an event to an instance.",
        ID,
        Argument("name", "The name of the event.", metavar="NAME"),
        option("--input", "-i", "value", metavar="JSON", default="null", help="The value of the event."),
        option(
            "--id", "message_id", metavar="TEXT", help="The id of the event: events with one id are delivered once."
        ),
        STORE,
        JSON,
        details="The event is stored when the command returns, and is delivered to the workflow once.",
        examples="""holdfast event order-42 approval --input '"yes"'""",
    ),
    CliCommand(
        "query",
        "send:query",
        "Query a workflow and print the answer as JSON.",
        ID,
        Argument("name", "The name of the query.", metavar="NAME"),
        Argument(
            "arguments",
            "The arguments of the query: an array, or the only argument itself.",
            metavar="[JSON]",
            required=False,
            default="[]",
        ),
        option("--timeout", metavar="SECONDS", type=float, default=10.0, help="How long to wait for the answer."),
        STORE,
        details="A worker that has the code of the workflow answers, also after the end of the instance. The instance "
        "does not change.",
    ),
    CliCommand(
        "update",
        "send:update",
        "Send an update to a workflow, wait for its result and print it as JSON.",
        ID,
        Argument("name", "The name of the update.", metavar="NAME"),
        option(
            "--input",
            "-i",
            "value",
            metavar="JSON",
            default="[]",
            help="The arguments of the update: an array, or the only argument itself.",
        ),
        option("--id", "update_id", metavar="TEXT", help="The id of the update: updates with one id are applied once."),
        option(
            "--timeout",
            metavar="SECONDS",
            type=float,
            help="How long to wait for the result. The update is applied even if it comes later.",
        ),
        option(
            "--no-wait",
            "no_wait",
            is_flag=True,
            help="Wait only until the workflow has accepted the update, and print the ids of both.",
        ),
        STORE,
        details="After a time-out or Ctrl-C, the same command with the same --id waits for the same result. After "
        "--no-wait, holdfast update-result ID UPDATE prints it.",
    ),
    CliCommand(
        "update-result",
        "send:update_result",
        "Wait for the result of an update that was sent before, and print it as JSON.",
        ID,
        Argument("update_id", "The id of the update.", metavar="UPDATE"),
        option("--timeout", metavar="SECONDS", type=float, help="How long to wait. The update continues after it."),
        STORE,
    ),
    CliCommand(
        "release",
        "send:release",
        "Release a node of a flow that is held, so that the flow continues.",
        ID,
        Argument(
            "node",
            "The id of the node, which has `hold` and whose digit is 5.",
            metavar="NODE",
            shell_complete=candidates("held nodes"),
        ),
        option("--output", "output", metavar="JSON", help="Replaces the output of the node."),
        option("--id", "release_id", metavar="TEXT", help="Releases with one id are applied once."),
        option(
            "--timeout",
            metavar="SECONDS",
            type=float,
            help="How long to wait for a worker that applies it. It is applied even if that comes later.",
        ),
        STORE,
        JSON,
        details="A node that is not held is an error, and the command ends with 1. After a time-out or Ctrl-C, the "
        "same command with the same --id waits for the same release.",
        examples="""holdfast release order-7 review --output '"approved"'""",
    ),
    CliCommand(
        "watch",
        "history:watch",
        "Show an instance and each of its changes until it ends.",
        ID,
        STORE,
        JSON,
        details="With --json each change is a line of JSON. A flow is shown with its key, which has a digit for each "
        "activity: holdfast explain describes them. The exit code is 1 unless the instance completes.",
    ),
    CliCommand(
        "attributes",
        "attributes:attributes",
        "Show the attributes of an instance, or set and delete some.",
        ID,
        Argument(
            "changes",
            "Attributes to set. A value is a number, true, false, a list of texts as JSON, or a time in ISO 8601 with "
            "a zone; anything else is a text. A number in JSON quotes is a text, too.",
            metavar="[NAME=VALUE]...",
            nargs=-1,
        ),
        option("--delete", "-d", metavar="NAME", multiple=True, help="An attribute to delete. May be repeated."),
        STORE,
        JSON,
        details="Filters see the change at once: holdfast list. The code of an open instance reads it as a message. "
        "Instances that have ended can be changed, too.",
        examples="""holdfast attributes order-7 ticket=OPS-12 urgent=true
holdfast attributes order-7 'tags=["vip","late"]' --delete ticket""",
    ),
    CliCommand(
        "cancel",
        "send:cancel",
        "Request the cancellation of an instance; its code may clean up.",
        ID,
        option("--reason", "-r", metavar="TEXT", help="The reason, for the workflow and for its callers."),
        STORE,
        JSON,
        details="The workflow gets an asyncio.CancelledError, and may handle it and continue.",
    ),
    CliCommand(
        "pause",
        "send:pause",
        "Pause an instance: no turn is taken and no activity begins.",
        ID,
        option("--reason", "-r", metavar="TEXT", help="The reason, which holdfast show has."),
        option("--family", is_flag=True, help="Pause its open descendants, too."),
        STORE,
        JSON,
        details="Activities that run continue, and their results wait. Queries are answered, updates wait, and its "
        "deadline goes on. holdfast resume lets the instance continue.",
    ),
    CliCommand(
        "resume",
        "send:resume",
        "Let an instance continue that is paused or blocked.",
        Argument(
            "instance_id",
            "The id of the instance. If several have had it, the newest.",
            metavar="ID",
            shell_complete=candidates("halted instances"),
        ),
        option("--extend", metavar="DURATION", help="Move its deadline by so much: seconds, or such as 30m or 2d."),
        option("--fail", is_flag=True, help="Let activities fail that have used up their retries."),
        option("--family", is_flag=True, help="Resume its paused descendants, too."),
        STORE,
        JSON,
        details="A paused instance continues. If its deadline passed meanwhile, that is applied first. An activity "
        "that has used up its retries is tried again, or fails with --fail. Of a blocked instance a worker that has "
        "its workflow tries the turn again, also a worker that has blocked it; one whose turn still fails is blocked "
        "again. holdfast show has the reason of a pause or a block. The options are for paused instances.",
    ),
    CliCommand(
        "terminate",
        "send:terminate",
        "End an instance now, without running its code.",
        ID,
        option("--reason", "-r", metavar="TEXT", help="The reason, for the callers of the workflow."),
        STORE,
        JSON,
        details="No clean-up code runs and nothing is undone. Running activities are cancelled.",
    ),
    CliCommand(
        "worker",
        "worker:worker",
        "Run the workflows and activities of a store until a signal ends the worker.",
        APPLICATIONS,
        option(
            "--queues", "-q", metavar="A,B", help="The queues to serve. If not given, those of the activities in APP."
        ),
        option("--concurrency", "-c", metavar="N", type=int, default=100, help="The most activities at a time."),
        option(
            "--lease",
            metavar="SECONDS",
            type=float,
            default=8.0,
            help="After this time without a heartbeat other workers take over its work.",
        ),
        option(
            "--loop-timeout",
            metavar="SECONDS",
            type=float,
            default=300.0,
            help="After this time with a blocked event loop other workers take over its work.",
        ),
        option(
            "--drain-timeout",
            metavar="SECONDS",
            type=float,
            default=25.0,
            help="How long running activities may take after the first signal.",
        ),
        option(
            "--same-host/--no-same-host",
            default=True,
            help="Take over the work of a process that died on this host at once, before its lease ends.",
        ),
        option(
            "--metrics",
            metavar="[HOST:]PORT",
            help="Serve /metrics for Prometheus, /live and /ready there, on 127.0.0.1 if no host is written. Needs "
            "holdfast[metrics].",
        ),
        option(
            "--context",
            metavar="FILE.py:NAME",
            help="The function that makes the context of this worker, for hf.context in activities; also MODULE:NAME.",
        ),
        option(
            "--build",
            metavar="NAME",
            help="The name of the build of the code, such as a commit. Default: HOLDFAST_BUILD, or a hash of the code.",
        ),
        option(
            "--otel",
            is_flag=True,
            help="Write OpenTelemetry spans and metrics, as the variables OTEL_* say. Needs holdfast[otel], "
            "opentelemetry-sdk and an exporter.",
        ),
        PAYLOAD_LIMIT,
        STORE,
        details="At SIGTERM or Ctrl-C the worker claims nothing more and waits for its running activities. A second "
        "signal stops it at once, and other workers run the interrupted activities again. Logs go to standard error.",
        examples="holdfast worker shop.py --queues default,parcels --concurrency 20",
    ),
    *CODE_COMMANDS,
    CliCommand(
        "workers",
        "overview:workers",
        "List the workers of a store with their lease, load and queues.",
        option(
            "--all", "-a", "everyone", is_flag=True, help="Include workers that shut down or were lost within a day."
        ),
        STORE,
        JSON,
    ),
    CliCommand(
        "builds",
        "builds:builds",
        "List the builds of the code, with the open instances that need each.",
        option("--wait-drained", metavar="BUILD", help="Wait until no open instance needs this build."),
        option("--timeout", metavar="SECONDS", type=float, help="With --wait-drained: how long to wait at most."),
        STORE,
        JSON,
        details="An open instance needs a build if one of its workers holds it, or if only this build has its version "
        "among the live workers. A build is drained when no open instance needs it and its workers hold no "
        "activity. The exit code is 1 if it is not drained in time.",
        examples="holdfast builds\nholdfast builds --wait-drained 4f1c9e2 --timeout 600",
    ),
    CliCommand(
        "queues",
        "overview:queues",
        "List the queues of a store with their activities and workers.",
        STORE,
        JSON,
        details="The columns count activities that are ready to run, wait for a later time, and run. A queue that no "
        "worker serves is marked: start one with holdfast worker APP --queues NAME. Activities that wait for an "
        "executor outside of workers, and requests whose workflow no live worker has, are listed below the queues.",
    ),
    CliCommand(
        "verify",
        "store:verify",
        "Check every row of a store against the rules of the engine.",
        STORE,
        JSON,
        details="Nothing is changed, and workers may run meanwhile. Each problem is a line with the instance, the rule "
        "and the contradiction. The exit code is 0 for a sound store and 1 for one with problems.",
    ),
    CliCommand(
        "backup",
        "backup:backup",
        "Copy a live SQLite store into a file, and check the copy.",
        Argument("file", "The file to write.", metavar="FILE"),
        option("--force", is_flag=True, help="Replace an existing file."),
        option("--verify/--no-verify", "check", default=True, help="Check every row of the copy, as verify does."),
        STORE,
        JSON,
        details="Workers continue meanwhile. The copy has every commit that was made before the command began, and "
        "gets its name when it is complete and checked. A copy with problems is not kept, and the exit code is 1. A "
        "PostgreSQL store is refused with the commands of PostgreSQL that copy it.",
        examples="holdfast backup backups/shop.db --store shop.db",
    ),
    CliCommand(
        "restored",
        "backup:restored",
        "Make a store fit for use after a backup was restored, before workers start.",
        option("--dry-run", is_flag=True, help="List what would change, and change nothing."),
        option("--force", is_flag=True, help="Also if workers are live: they lose their leases."),
        STORE,
        JSON,
        details="Workers and executors of the time after the backup may still run. The command ends every worker key, "
        "raises all fences, gives every open external activity a new exec id without a claim, and lifts the counter of "
        "instance numbers by 2^32, so that they change nothing. It lists the activities that were running at the "
        "backup, which run again; it cannot list what came after the backup. Running it twice does no harm.",
    ),
    *RETENTION_COMMANDS,
    CliCommand(
        "migrate",
        "store:migrate",
        "Migrate the tables of a store to this release.",
        option(
            "--print", "only_print", is_flag=True, help="Print the SQL for a PostgreSQL store without connecting to it."
        ),
        option(
            "--after",
            metavar="N",
            type=click.IntRange(min=0),
            default=0,
            help="With --print: only the migrations after schema N.",
        ),
        option(
            "--roles",
            is_flag=True,
            help="With --print: the SQL of the roles for clients that insert rows, instead of the migrations.",
        ),
        STORE,
        details="Workers of the previous release may run meanwhile, unless the changelog states otherwise.",
        examples="holdfast migrate --print --store 'postgresql:///shop' \\\n  | psql -v ON_ERROR_STOP=1 shop",
    ),
    CliCommand(
        "bench",
        "bench:bench",
        "Measure the speed of a store beside its bare limit.",
        option(
            "--seconds", metavar="SECONDS", type=float, default=15.0, help="How long to measure, from 1 to 600 seconds."
        ),
        STORE,
        JSON,
        details="The data of the store is neither read nor changed: the measurement uses a folder beside the file, or "
        "a schema of its own in the database, and removes it at the end. The file need not exist; its folder is "
        "measured. The load is real: other programs on the disk or server are slower meanwhile.",
        examples="holdfast bench --store shop.db\nholdfast bench --store 'postgresql://shop@db/shop' --seconds 30",
    ),
    CliCommand(
        "explain",
        "explain:explain",
        "Explain the digits of a ledger or a collation key.",
        Argument("digits", "A ledger, a collation key, or a composite of keys.", metavar="DIGITS"),
        option("--activities", "-a", metavar="A,B", help="The ids of the activities of the key."),
        option("--flow", "-f", metavar="NAME|FILE", help="The flow of the key: a name in the store, or a file."),
        STORE,
        JSON,
        details="The activities of a key have names if --flow or --activities is given, or if an instance in the store "
        "has the key.",
        examples="holdfast explain 888000002000002\n"
        "holdfast explain 366663000000000\n"
        "holdfast explain 366663000000000 --flow fox.yaml\n"
        "holdfast explain 366663 --activities ate,brown,fox,jumped,quick,slept",
    ),
    CliCommand(
        "history",
        "history:history",
        "Show the history of an instance, or export it for replay in tests.",
        ID,
        option("--limit", "-n", metavar="N", type=int, help="Only the newest N entries."),
        option("--export", metavar="FILE", help="Write the history to a file for holdfast.testing.Replayer."),
        EXECUTION,
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
        option("--with", "others", metavar="FILE", multiple=True, help="A flow that it starts. May be repeated."),
        INPUT,
        INSTANCE,
        POLICY,
        PAYLOAD_LIMIT,
        STORE,
        JSON,
        details="The same --id continues the instance, or prints its result.",
        examples="""holdfast flow run order.yaml --app shop.py --id order-7 \\
  --input '{"order_id": "7"}'""",
    ),
    CliCommand(
        "check",
        "flow:check",
        "Check a flow and report each problem with its line.",
        FILE,
        APP,
        JSON,
        details="Without --app the names and arguments of activities are not checked. The exit code is 0 for a flow "
        "that can run and 1 for one with errors.",
    ),
    CliCommand(
        "draw",
        "flow:draw",
        "Draw a flow as SVG or as Mermaid text.",
        FILE,
        option("--output", "-o", metavar="PATH", help="The file to write. If not given, standard output."),
        option("--mermaid", is_flag=True, help="Write Mermaid text instead of SVG."),
        option("--instance", "instance_id", metavar="ID", help="Draw the progress of this instance."),
        STORE,
        details="With --instance the version of the flow is drawn on which the instance runs.",
    ),
)

ACTIVITY_SUMMARY: Final = "List, claim, run and report activities that run outside of workers."
activity = Group("activity", no_args_is_help=True, help=ACTIVITY_SUMMARY, short_help=ACTIVITY_SUMMARY)
FLOW_SUMMARY: Final = "Run, check and draw flows, which are workflows written as graphs."
flow = Group("flow", no_args_is_help=True, help=FLOW_SUMMARY, short_help=FLOW_SUMMARY)
root = Group(
    "holdfast",
    no_args_is_help=True,
    help="Run durable workflows, and inspect and steer their instances in a store.",
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
for command in ACTIVITY_COMMANDS:
    activity.add_command(command)
root.add_command(activity)
