"""``holdfast start`` and ``holdfast requests``: rows of the table `requests`, without the code of the application (C2).

``start`` inserts a request and waits two seconds for the answer of a worker. A request that no worker has handled by
then stays in the store, and a worker that has the workflow takes it later.
"""

import datetime as dt
import shlex
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from holdfast.authoring.validation import checked_duration_ms, checked_name
from holdfast.cli.application import checked_json
from holdfast.cli.console import (
    Column,
    json_text,
    moment_text,
    print_items,
    print_line,
    print_message,
    safe,
    standard_output,
    visible_json,
)
from holdfast.cli.exits import EXIT_REFUSED, EXIT_UNANSWERED
from holdfast.cli.store_option import read_store, use_client
from holdfast.client.client import Client, calls_of, store_of
from holdfast.client.handle import Handle
from holdfast.client.requests import live_workflows, submit_request, wait_for_request
from holdfast.client.views.instances import NEWEST, moment
from holdfast.compose import open_contract_of
from holdfast.core.admission import IdPolicy
from holdfast.core.checks import parse_enum
from holdfast.core.deadlines import MILLISECONDS
from holdfast.errors import UsageError
from holdfast.payloads.encoding import encode
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.storage.contract import OpenableStore
from holdfast.storage.members.contract_rows import InsertRequest
from holdfast.storage.records import InstanceId, RequestRecord, RequestState

ANSWER_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 30.0
"""The time between two checks while ``--wait`` waits for a worker."""
DEFAULT_LIMIT: Final = 50
LARGEST_LIMIT: Final = 10_000


def start(
    workflow: str,
    *,
    input_json: str | None = None,
    instance_id: str | None = None,
    wait: bool = False,
    policy: str | None = None,
    start_at: str | None = None,
    deadline: float | None = None,
    request_id: str | None = None,
    source: str | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Start a workflow on the workers of a store."""
    request = InsertRequest(
        request_id=SystemClockAndIds().unique_text() if request_id is None else checked_name(request_id, "a request"),
        workflow=checked_name(workflow, "a workflow"),
        instance_id=None if instance_id is None else checked_name(instance_id, "an instance"),
        input=_arguments(input_json),
        policy=None if policy is None else parse_enum(IdPolicy, policy, "policy for ids").value,
        start_at_ms=None if start_at is None else parse_moment_ms(start_at),
        deadline_after_ms=None if deadline is None else checked_duration_ms(deadline, "--deadline"),
        source=None if source is None else checked_name(source, "a source"),
    )

    async def send(client: Client) -> tuple[RequestRecord, str, Any]:
        answered = await submit_request(calls_of(client), request, ANSWER_SECONDS)
        obstacle = await _obstacle(client, answered) if answered.state == RequestState.NEW else ""
        if not wait:
            return answered, obstacle, None
        if obstacle:
            print_message(f"still waiting: {obstacle}")
        while answered.state == RequestState.NEW:
            answered = await wait_for_request(calls_of(client), request.request_id, PATIENCE_SECONDS)
        if answered.state != RequestState.ACCEPTED or answered.instance_number is None:
            return answered, "", None
        if not as_json:
            print_line(standard_output(), _line(answered))
        handle: Handle[Any] = Handle(
            calls_of(client), InstanceId(_instance_id(answered)), None, number=answered.instance_number
        )
        return answered, "", await handle.result()

    try:
        answered, obstacle, result = use_client(store, send)
    except KeyboardInterrupt:
        again = shlex.quote(safe(request.request_id))
        print_message(f"stopped waiting; the same command with --request-id {again} waits for the same result")
        raise
    if wait and answered.state == RequestState.ACCEPTED:
        encoded = encode(result, what="the result").decode()
        if as_json:
            click.echo(visible_json(encoded))
        else:
            print_line(standard_output(), Text.assemble(("result ", "bold green"), safe(encoded)))
        return
    _print_answer(answered, obstacle, as_json=as_json)


def _arguments(text: str | None) -> str:
    """The column `input`: an object or an array as it is, any other JSON value as the only argument."""
    if text is None:
        return "[]"
    data = checked_json(text)
    return text if data.lstrip()[:1] in {b"[", b"{"} else f"[{text}]"


def parse_moment_ms(text: str) -> int:
    """A time in ISO 8601, in UTC if it names no other zone, in milliseconds."""
    try:
        moment_at = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text[:100]!r} is not a time such as 2030-01-31T07:00:00Z") from error
    if moment_at.tzinfo is None:
        moment_at = moment_at.replace(tzinfo=dt.UTC)
    return round(moment_at.timestamp() * MILLISECONDS)


def _instance_id(request: RequestRecord) -> str:
    return request.instance_id or request.request_id


async def _obstacle(client: Client, request: RequestRecord) -> str:
    """The reason why a request is still NEW, and the remedy."""
    if request.workflow in await live_workflows(store_of(client)):
        return "a live worker has the workflow and has not handled the request yet"
    return f"no live worker has the workflow {safe(request.workflow or '')!r}; start one: holdfast worker APP"


def _line(request: RequestRecord) -> Text:
    return Text.assemble(
        (safe(request.workflow or ""), "bold"), " ", (safe(_instance_id(request)), "cyan"), f" {safe(request.state)}"
    )


def _print_answer(request: RequestRecord, obstacle: str, *, as_json: bool) -> None:
    """Prints the state of a request; the exit code shows whether it was accepted."""
    if as_json:
        click.echo(json_text(_fields(request)))
    else:
        print_line(standard_output(), _line(request))
    if request.state == RequestState.REFUSED:
        print_message(f"the request was refused: {safe(request.refusal or 'no reason is stored')}")
        raise SystemExit(EXIT_REFUSED)
    if request.state == RequestState.NEW:
        again = f"holdfast requests --state NEW lists it as {safe(request.request_id)}"
        print_message(f"the request is stored and not handled yet: {obstacle}; {again}")
        raise SystemExit(EXIT_UNANSWERED)


# ---------------------------------------------------------------- the list of requests


def requests(
    *, state: str | None = None, limit: int = DEFAULT_LIMIT, store: str | None = None, as_json: bool = False
) -> None:
    """List the requests of clients, newest first."""
    if not 1 <= limit <= LARGEST_LIMIT:
        raise UsageError(f"--limit must be from 1 to {LARGEST_LIMIT:,}, not {limit}")
    wanted = None if state is None else parse_enum(RequestState, state.upper(), "state of a request")

    async def read(opened: OpenableStore) -> list[tuple[RequestRecord, bool]]:
        served = await live_workflows(opened)
        found = await open_contract_of(opened).list_requests(before=NEWEST, limit=limit, state=wanted)
        return [(request, not is_unserved(request, served)) for request in found]

    listed = read_store(store, read)
    print_items(listed, REQUEST_COLUMNS, _listed_fields, as_json=as_json, empty="No requests.")
    if not as_json and len(listed) == limit:
        print_line(standard_output(), Text(f"the newest {limit}; there may be more (--limit)", "dim"))


def is_unserved(request: RequestRecord, served: set[str]) -> bool:
    """Whether a request waits for a worker that has its workflow, and none is live."""
    return request.state == RequestState.NEW and request.kind == "start" and request.workflow not in served


STATE_STYLES: Final[dict[str, str]] = {
    RequestState.NEW: "yellow",
    RequestState.ACCEPTED: "green",
    RequestState.REFUSED: "red",
    RequestState.TRACE: "dim",
}


def _target(request: RequestRecord) -> str:
    """The workflow of a start; the event of an event."""
    return request.workflow or request.event_name or ""


def _note(listed: tuple[RequestRecord, bool]) -> Text:
    request, is_served = listed
    if not is_served:
        return Text("no live worker has the workflow", "bold red")
    return Text(safe(request.refusal or ""), "red")


REQUEST_COLUMNS: Final[tuple[Column[tuple[RequestRecord, bool]], ...]] = (
    Column("request", lambda item: item[0].request_id, "cyan"),
    Column("kind", lambda item: item[0].kind),
    Column("target", lambda item: _target(item[0])),
    Column("state", lambda item: Text(safe(item[0].state), STATE_STYLES.get(item[0].state, ""))),
    Column("instance", lambda item: item[0].instance_id or "", is_optional=True),
    Column("inserted (UTC)", lambda item: moment_text(item[0].inserted_at_ms)),
    Column("source", lambda item: item[0].source or "", is_optional=True),
    Column("", _note, is_optional=True),
)


def _fields(request: RequestRecord) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(request)
    del fields["row"]
    fields["instance_id"] = request.instance_id or (request.request_id if request.kind == "start" else None)
    fields["inserted_at"] = moment(request.inserted_at_ms)
    return fields


def _listed_fields(listed: tuple[RequestRecord, bool]) -> dict[str, Any]:
    request, is_served = listed
    return {**_fields(request), "is_served": is_served}
