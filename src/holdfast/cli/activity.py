"""``holdfast activity``: lists, claims and reports external activities (C4), for executors in any language.

Each report inserts a row of `activity_events` and waits two seconds for the answer. Each answer has an exit code:
refused, claim lost, not handled yet. ``holdfast activity run`` is in a module of its own.
"""

import asyncio
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from holdfast.authoring.validation import checked_duration_ms, checked_integer, checked_name
from holdfast.cli.application import checked_json
from holdfast.cli.console import (
    Column,
    json_text,
    moment_text,
    print_items,
    print_line,
    print_message,
    safe,
    seconds_text,
    standard_output,
    value_text,
)
from holdfast.cli.exits import EXIT_LOST, EXIT_NEGATIVE, EXIT_REFUSED, EXIT_UNANSWERED
from holdfast.cli.store_option import StoreName, existing_store, read_store, use_client
from holdfast.client.activity_reports import (
    ActivityReports,
    Answered,
    OpenActivity,
    activity_of,
    error_text,
)
from holdfast.client.client import Client, calls_of
from holdfast.client.requests import wait_for_row
from holdfast.compose import open_contract_of
from holdfast.core.activity_events import DEFAULT_ERROR_TYPE, OTHER_CLAIM, TOO_EARLY, ReportKind, ReportState
from holdfast.core.deadlines import MILLISECONDS
from holdfast.errors import UsageError
from holdfast.payloads.encoding import encode
from holdfast.storage.contract import OpenableStore

DEFAULT_LIMIT: Final = 50
LARGEST_LIMIT: Final = 10_000
LONGEST_INPUT: Final = 60
LONGEST_ERROR: Final = 8_192
STANDARD_INPUT: Final = "-"
CLAIM_STATES: Final = (ReportKind.RUNNING, ReportKind.PREPARING, ReportKind.QUEUED)
MOST_TRIED: Final = 100
"""Open activities of which a claim without an exec id tries one after the other."""


# ---------------------------------------------------------------- list


def list_activities(
    *,
    queues: Sequence[str] = (),
    names: Sequence[str] = (),
    limit: int = DEFAULT_LIMIT,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """List the external activities that an executor may claim, oldest first."""
    checked_integer(limit, "--limit", least=1, most=LARGEST_LIMIT)
    of_queues = checked_queues(queues)
    of_names = checked_activities(names)

    async def read(opened: OpenableStore) -> list[OpenActivity]:
        offers = await open_contract_of(opened).open_activities(limit=limit, queues=of_queues, names=of_names)
        return [activity_of(offer) for offer in offers]

    found = read_store(store, read)
    print_items(found, ACTIVITY_COLUMNS, activity_fields, as_json=as_json, empty="No open activities.")


def checked_queues(queues: Sequence[str]) -> list[str] | None:
    return [checked_name(queue, "a queue") for queue in queues] or None


def checked_activities(names: Sequence[str]) -> list[str] | None:
    return [checked_name(name, "an activity") for name in names] or None


def activity_fields(activity: OpenActivity) -> dict[str, Any]:
    """The columns of the view `open_activities`."""
    return msgspec.structs.asdict(activity)


def _heartbeat(activity: OpenActivity) -> str:
    return "" if activity.heartbeat_ms is None else seconds_text(activity.heartbeat_ms / MILLISECONDS)


def _input(activity: OpenActivity) -> str:
    return value_text(msgspec.json.decode(activity.input), LONGEST_INPUT)


ACTIVITY_COLUMNS: Final[tuple[Column[OpenActivity], ...]] = (
    Column("exec id", lambda activity: activity.activity_exec_id, "cyan"),
    Column("activity", lambda activity: activity.activity_name, "bold"),
    Column("attempt", lambda activity: str(activity.attempt), is_right=True),
    Column("queue", lambda activity: activity.queue),
    Column("workflow", lambda activity: activity.workflow_name),
    Column("instance", lambda activity: activity.workflow_exec_id),
    Column("heartbeat", _heartbeat, is_optional=True),
    Column(
        "expires (UTC)",
        lambda activity: "" if activity.expires_at_ms is None else moment_text(activity.expires_at_ms),
        is_optional=True,
    ),
    Column("input", _input),
)


# ---------------------------------------------------------------- ids


def environment_of(activity: OpenActivity, claim: str | None, path: StoreName | None) -> dict[str, str]:
    """The variables by which a program and its commands know the activity (C4)."""
    variables = {
        "HOLDFAST_ACTIVITY_EXEC_ID": activity.activity_exec_id,
        "HOLDFAST_ACTIVITY_NAME": activity.activity_name,
        "HOLDFAST_WORKFLOW_EXEC_ID": activity.workflow_exec_id,
        "HOLDFAST_WORKFLOW_NAME": activity.workflow_name,
        "HOLDFAST_IDEMPOTENCY_KEY": activity.idempotency_key,
        "HOLDFAST_ATTEMPT": str(activity.attempt),
    }
    if activity.responses is not None:
        variables["HOLDFAST_RESPONSES"] = str(activity.responses)
    if claim is not None:
        variables["HOLDFAST_CLAIM"] = claim
    if path is not None:
        variables["HOLDFAST_STORE"] = path if isinstance(path, str) else str(path.resolve())
    return variables


def exec_id_of(option: str | None) -> str:
    """The exec id that the option or the environment names."""
    named = option if option is not None else os.environ.get("HOLDFAST_ACTIVITY_EXEC_ID")
    if named is None:
        raise UsageError(
            "no activity is named: give --exec-id, set HOLDFAST_ACTIVITY_EXEC_ID, or claim one: holdfast activity claim"
        )
    return checked_name(named, "an exec id")


def claim_of(option: str | None) -> str | None:
    """The claim that the option or the environment names."""
    named = option if option is not None else os.environ.get("HOLDFAST_CLAIM")
    return None if named is None else checked_name(named, "a claim")


# ---------------------------------------------------------------- claim


def claim(
    *,
    queues: Sequence[str] = (),
    names: Sequence[str] = (),
    exec_id: str | None = None,
    claim_text: str | None = None,
    to_state: str = ReportKind.RUNNING.value,
    wait: float = 0.0,
    source: str | None = None,
    as_environment: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Claim an open activity, and print its ids and its input."""
    path = existing_store(store)
    of_queues = checked_queues(queues)
    of_names = checked_activities(names)
    is_given = exec_id is not None or (not queues and not names and "HOLDFAST_ACTIVITY_EXEC_ID" in os.environ)
    wanted = exec_id_of(exec_id) if is_given else None
    given = claim_of(claim_text) if is_given or claim_text is not None else None
    if to_state.upper() not in CLAIM_STATES:
        raise UsageError(f"--as is {', '.join(CLAIM_STATES)}, not {to_state!r}")
    kind = ReportKind(to_state.upper())
    named = checked_source(source)
    wait_seconds = checked_duration_ms(wait, "--wait") / MILLISECONDS

    async def take(client: Client) -> tuple[OpenActivity | None, str, Answered | None]:
        reports = ActivityReports(calls_of(client), source=named)
        own = given or reports.new_claim()
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + wait_seconds
        while True:
            found = await wait_for_row(
                calls_of(client).session,
                lambda: _candidates(reports, wanted, of_queues, of_names),
                bool,
                max(0.0, ends_at - loop.time()),
            )
            activity, answer = await _claim_first(reports, found or (), kind, own)
            if activity is not None or wanted is not None or loop.time() >= ends_at:
                return activity, own, answer

    activity, own, answer = use_client(store, take)
    if activity is None or answer is None or not answer.is_applied:
        raise SystemExit(_explain_claim(kind, activity, own, answer if activity or is_given else None))
    if as_environment:
        for name, value in environment_of(activity, own, path).items():
            click.echo(f"export {name}={shlex.quote(value)}")
        click.echo(f"export HOLDFAST_INPUT={shlex.quote(bytes(activity.input).decode())}")
    elif as_json:
        click.echo(json_text({**activity_fields(activity), "claim": own}))
    else:
        _print_claimed(activity, own)


def _explain_claim(kind: ReportKind, activity: OpenActivity | None, own: str, answer: Answered | None) -> int:
    """Prints why no activity is claimed. `answer`: that to the last claim, None if none was open. Returns the code."""
    if answer is None:
        print_message("there is no open activity; --wait waits for one, and holdfast queues shows the work of queues")
        return EXIT_NEGATIVE
    code = explain_answer(kind, answer, is_lost=True)
    if code == EXIT_UNANSWERED and activity is not None:
        print_message(f"it has the claim {safe(own)} on {safe(activity.activity_exec_id)}")
    return code


def _print_claimed(activity: OpenActivity, own: str) -> None:
    names = ((safe(activity.activity_name), "bold"), " ", (safe(activity.activity_exec_id), "cyan"))
    for line in (
        Text.assemble("claimed ", *names),
        Text(f"claim {safe(own)}"),
        Text(f"input {_input(activity)}"),
    ):
        print_line(standard_output(), line)


async def _claim_first(
    reports: ActivityReports, candidates: Sequence[OpenActivity], kind: ReportKind, own: str
) -> tuple[OpenActivity | None, Answered | None]:
    """Claim the first of the activities whose claim is not refused, and return it with the last answer."""
    answer: Answered | None = None
    for activity in candidates:
        answer = await reports.report(activity.activity_exec_id, kind, claim=own)
        if not answer.is_refused:
            return activity, answer
    return None, answer


async def _candidates(
    reports: ActivityReports, exec_id: str | None, queues: list[str] | None, names: list[str] | None
) -> list[OpenActivity]:
    """The activities that a claim tries, in this order."""
    if exec_id is None:
        return await reports.open_activities(limit=MOST_TRIED, queues=queues, names=names)
    found = await reports.find(exec_id)
    if found is None:
        raise UsageError(f"no activity has the exec id {exec_id!r}; holdfast activity list shows those that are open")
    return [found.activity]


def checked_source(source: str | None) -> str | None:
    return None if source is None else checked_name(source, "a source")


# ---------------------------------------------------------------- reports


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The options that all reports have."""

    exec_id: str | None = None
    claim_text: str | None = None
    event_id: str | None = None
    sequence: int | None = None
    source: str | None = None
    store: str | None = None
    as_json: bool = False


def _report_command(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose function takes its own parameters and, as the first one, the options that all reports have."""
    shared = inspect.signature(ReportOptions).parameters

    @wraps(function)
    def command(*values: Any, **given: Any) -> None:
        options = ReportOptions(**{name: given.pop(name) for name in shared if name in given})
        function(options, *values, **given)

    _, *own = inspect.signature(function).parameters.values()
    by_keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in shared.values()]
    command.__signature__ = inspect.Signature([*own, *by_keyword])  # type: ignore[attr-defined]  # read by inspect
    return command


@_report_command
def heartbeat(options: ReportOptions, *, details: str | None = None) -> None:
    """Report that the activity is alive. The exit code is 1 if its cancellation is requested."""
    payload = None if details is None else checked_json(details).decode()
    answer = _report(ReportKind.HEARTBEAT, options, payload=payload)
    if answer.cancel_requested:
        print_message("the cancellation of the activity is requested: stop it, then run holdfast activity stopped")
        raise SystemExit(EXIT_NEGATIVE)


@_report_command
def respond(options: ReportOptions, value: str, *, is_text: bool = False) -> None:
    """Report one value of a stream."""
    _report(ReportKind.RESPONSE, options, payload=_value(value, is_text=is_text))


@_report_command
def complete(options: ReportOptions, value: str | None = None, *, is_text: bool = False) -> None:
    """End the activity with a result."""
    _report(ReportKind.COMPLETED, options, payload=None if value is None else _value(value, is_text=is_text))


@_report_command
def fail(options: ReportOptions, message: str, *, error_type: str = DEFAULT_ERROR_TYPE, is_final: bool = False) -> None:
    """End the attempt with a failure. The retry policy of the activity decides whether it is tried again."""
    text = sys.stdin.read() if message == STANDARD_INPUT else message
    named = checked_name(error_type, "an error type")
    _report(ReportKind.FAILED, options, error=error_text(text[:LONGEST_ERROR], type=named, retryable=not is_final))


@_report_command
def release(options: ReportOptions) -> None:
    """Return the claim before the activity runs. It is offered again under another exec id."""
    _report(ReportKind.RELEASE, options)


@_report_command
def cancel(options: ReportOptions, instance_id: str | None = None, activity: str | None = None) -> None:
    """Request the cancellation of an activity of any kind by its name, or of an offered one. It needs no claim."""
    if instance_id is None:
        _report(ReportKind.CANCEL, options)
        return
    if activity is None:
        raise UsageError("name the activity of the instance, too, such as charge or charge#2; holdfast show lists them")
    if options.exec_id is not None or options.event_id is not None or options.sequence is not None:
        raise UsageError("--exec-id, --event-id and --sequence are for an activity without the id of its instance")

    use_client(options.store, lambda client: client.get(instance_id).cancel_activity(activity))
    if options.as_json:
        click.echo(json_text({"id": instance_id, "activity": activity, "cancel_requested": True}))
        return
    line = Text.assemble("the cancellation of ", (safe(activity), "bold"), " of ", (safe(instance_id), "cyan"))
    print_line(standard_output(), line.append(" is requested"))


@_report_command
def stopped(options: ReportOptions) -> None:
    """Report that the cancelled activity has stopped."""
    _report(ReportKind.STOPPED, options)


@_report_command
def note(options: ReportOptions, value: str, *, is_text: bool = False) -> None:
    """Add a note to the activity, at any time."""
    _report(ReportKind.NOTE, options, payload=_value(value, is_text=is_text))


def _value(value: str, *, is_text: bool) -> str:
    """The JSON of a value; ``-`` is standard input."""
    given = sys.stdin.read() if value == STANDARD_INPUT else value
    return encode(given, what="the text").decode() if is_text else checked_json(given).decode()


def _report(
    kind: ReportKind, options: ReportOptions, *, payload: str | None = None, error: str | None = None
) -> Answered:
    """Sends a report and prints its answer. A refusal has an exit code of its own."""
    exec_id = exec_id_of(options.exec_id)
    claim_text = claim_of(options.claim_text)
    event_id = None if options.event_id is None else checked_name(options.event_id, "an event")
    if options.sequence is not None:
        checked_integer(options.sequence, "--sequence", least=1)
    source = checked_source(options.source)

    async def send(client: Client) -> tuple[Answered, bool]:
        reports = ActivityReports(calls_of(client), source=source)
        answer = await reports.report(
            exec_id,
            kind,
            claim=claim_text,
            payload=payload,
            error=error,
            event_id=event_id,
            sequence=options.sequence,
        )
        return answer, answer.is_refused and await _is_lost(reports, exec_id, answer)

    answer, is_lost = use_client(options.store, send)
    if options.as_json:
        click.echo(json_text({"activity_exec_id": exec_id, "transition": kind, **msgspec.structs.asdict(answer)}))
    else:
        line = Text.assemble((kind.value, "bold"), f" {answer.state}")
        if answer.cancel_requested:
            line.append(", cancellation is requested", "magenta")
        print_line(standard_output(), line)
    code = explain_answer(kind, answer, is_lost=is_lost)
    if code:
        raise SystemExit(code)
    return answer


async def _is_lost(reports: ActivityReports, exec_id: str, answer: Answered) -> bool:
    """Whether a report was refused because the attempt was released, has ended, or is another executor's."""
    if answer.refusal is not None and answer.refusal.endswith(OTHER_CLAIM):
        return True
    found = await reports.find(exec_id)
    return found is not None and not found.is_current


def explain_answer(kind: ReportKind, answer: Answered, *, is_lost: bool) -> int:
    """Prints why a report has no effect yet, or never has one. Returns the exit code."""
    reason = safe(answer.refusal or "no reason is stored")
    match answer.state:
        case ReportState.REFUSED:
            print_message(f"{kind} was refused: {reason}")
            return EXIT_LOST if is_lost else EXIT_REFUSED
        case ReportState.NEW:
            print_message(
                f"{kind} is stored as {answer.event_id} and not handled yet: no live worker has the activity, or it is "
                "busy; the report counts from now"
            )
            return EXIT_UNANSWERED
        case ReportState.WAITING:
            remedy = "; it is handled when RUNNING is reported" if answer.refusal == TOO_EARLY else ""
            print_message(f"{kind} waits: {reason}{remedy}")
        case ReportState.DUPLICATE:
            print_message(f"{kind} was ignored: {reason}")
        case ReportState.APPLIED:
            pass
    return 0
