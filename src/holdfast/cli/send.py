"""The commands that send a message to an instance: events, queries, updates, releases, retries and the ends.

``query``, ``update`` and ``release`` wait for a worker. If no live worker can answer, standard error has the reason
after a second.
"""

import asyncio
import shlex
from collections.abc import Coroutine
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from holdfast.cli.application import checked_json
from holdfast.cli.console import json_text, print_line, print_message, safe, standard_output
from holdfast.cli.store_option import use_client
from holdfast.client.client import Client, store_of
from holdfast.client.queries import QUERY_SECONDS
from holdfast.client.views.obstacles import read_unanswered_reasons
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.flow.definition import span_ms
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.errors import QueryFailed, UpdateFailed, UsageError
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.storage.records import InstanceId

PATIENCE_SECONDS: Final = 1.0
"""The time before a command that waits checks for live workers, and between two checks."""


def event(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    name: str,
    value: str = "null",
    message_id: str | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Raise an event to an instance."""
    decoded: Any = msgspec.json.decode(checked_json(value))

    async def send(client: Client) -> bool:
        return await client.get(instance_id).raise_event(name, decoded, id=message_id)

    is_taken = use_client(store, send)
    outcome = "was raised to" if is_taken else "was dropped, because no wait is open for it in"
    line = Text.assemble("event ", (safe(name), "bold"), f" {outcome} ", (safe(instance_id), "bold cyan"))
    _print(line, {"id": instance_id, "event": name, "taken": is_taken}, as_json=as_json)


def cancel(instance_id: str, reason: str | None = None, store: str | None = None, as_json: bool = False) -> None:
    """Request the cancellation of an instance."""

    async def send(client: Client) -> InstanceState:
        handle = client.get(instance_id)
        await handle.cancel(reason)
        return (await handle.describe()).state

    state = use_client(store, send)
    line = Text.assemble((safe(instance_id), "bold cyan"), f" is {state}")
    _print(line, _state_fields(instance_id, state, reason), as_json=as_json)


def pause(
    instance_id: str,
    reason: str | None = None,
    family: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Pause an instance."""

    async def send(client: Client) -> InstanceState:
        handle = client.get(instance_id)
        await handle.pause(reason, family=family)
        return (await handle.describe()).state

    state = use_client(store, send)
    line = Text.assemble((safe(instance_id), "bold cyan"), f" is {state}: holdfast resume lets it continue")
    _print(line, {"id": instance_id, "state": state, "reason": reason}, as_json=as_json)


def resume(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    extend: str | None = None,
    fail: bool = False,
    family: bool = False,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Let an instance continue: a PAUSED one is resumed, a BLOCKED one is tried again."""
    extend_seconds = None if extend is None else _seconds(extend, "--extend")

    async def send(client: Client) -> InstanceState:
        handle = client.get(instance_id)
        is_blocked = (await handle.describe()).state is InstanceState.BLOCKED
        if is_blocked and not (fail or family or extend_seconds is not None):
            await handle.retry_blocked()
        else:
            await handle.resume(extend=extend_seconds, fail=fail, family=family)
        return (await handle.describe()).state

    state = use_client(store, send)
    what_next = "" if state in INSTANCE_FINAL else ": a worker that has its workflow continues it"
    line = Text.assemble((safe(instance_id), "bold cyan"), f" is {state}{what_next}")
    _print(line, {"id": instance_id, "state": state}, as_json=as_json)


def _seconds(text: str, option: str) -> float:
    """The seconds of a duration such as ``90``, ``30m`` or ``1h30m``."""
    try:
        return span_ms(float(text) if text.replace(".", "", 1).isdecimal() else text, option, least_ms=1) / MILLISECONDS
    except ValueError as error:
        raise UsageError(f"{option} takes seconds or a duration such as 30m or 2d, not {text!r}") from error


def terminate(instance_id: str, reason: str | None = None, store: str | None = None, as_json: bool = False) -> None:
    """End an instance without running its code."""

    async def send(client: Client) -> None:
        await client.get(instance_id).terminate(reason)

    use_client(store, send)
    line = Text.assemble((safe(instance_id), "bold cyan"), " was terminated")
    _print(line, _state_fields(instance_id, InstanceState.TERMINATED, reason), as_json=as_json)


def _state_fields(instance_id: str, state: InstanceState, reason: str | None) -> dict[str, Any]:
    return {"id": instance_id, "state": state, "status": state, "reason": reason}  # `status` is deprecated


def _print(line: Text, fields: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(fields))
    else:
        print_line(standard_output(), line)


# ---------------------------------------------------------------- commands that wait for an answer


def query(
    instance_id: str, name: str, arguments: str = "[]", timeout: float = QUERY_SECONDS, store: str | None = None
) -> None:
    """Query a workflow, and print the answer as JSON."""
    parsed = _arguments(arguments)

    async def send(client: Client) -> Any:
        answer = client.get(instance_id).query(name, *parsed, timeout=timeout)
        return await _wait_for(answer, client, instance_id)

    try:
        click.echo(json_text(use_client(store, send)))
    except TimeoutError as error:
        raise QueryFailed(f"{error}; start a worker that has its workflow, or raise --timeout") from error


def update(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    name: str,
    value: str = "[]",
    update_id: str | None = None,
    timeout: float | None = None,
    no_wait: bool = False,
    store: str | None = None,
) -> None:
    """Send an update to a workflow, wait for its result, and print it as JSON; with `no_wait` its ids."""
    unique = SystemClockAndIds().unique_text() if update_id is None else update_id
    parsed = _arguments(value)
    remedy = f"the same command with --id {shlex.quote(safe(unique))} waits for its answer"

    async def send(client: Client) -> Any:
        handle = client.get(instance_id)
        if no_wait:
            sent = await _wait_for(handle.start_update(name, *parsed, id=unique, timeout=timeout), client, instance_id)
            return {"id": sent.instance_id, "update": sent.id}
        answer = handle.update(name, *parsed, id=unique, timeout=timeout)
        return await _wait_for(answer, client, instance_id)

    try:
        click.echo(json_text(use_client(store, send)))
    except TimeoutError as error:
        raise UpdateFailed(f"the update {name!r} of {instance_id!r} was not answered in time; {remedy}") from error
    except KeyboardInterrupt:
        print_message(f"stopped waiting; the update may have been sent: {remedy}")
        raise


def update_result(instance_id: str, update_id: str, timeout: float | None = None, store: str | None = None) -> None:
    """Wait for the result of an update that was sent before, and print it as JSON."""

    async def read(client: Client) -> Any:
        answer = client.get_update(instance_id, update_id).result(timeout=timeout)
        return await _wait_for(answer, client, instance_id)

    try:
        click.echo(json_text(use_client(store, read)))
    except TimeoutError as error:
        raise UpdateFailed(str(error)) from error


def release(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    node: str,
    output: str | None = None,
    release_id: str | None = None,
    timeout: float | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Release a node of a flow that is held."""
    unique = SystemClockAndIds().unique_text() if release_id is None else release_id
    replacement: Any = ... if output is None else msgspec.json.decode(checked_json(output))
    remedy = f"the same command with --id {shlex.quote(safe(unique))} waits for it"

    async def send(client: Client) -> None:
        released = client.get(instance_id).release(node, output=replacement, id=unique, timeout=timeout)
        await _wait_for(released, client, instance_id)

    try:
        use_client(store, send)
    except TimeoutError as error:
        raise UpdateFailed(f"the release of {node!r} of {instance_id!r} was not applied in time; {remedy}") from error
    except KeyboardInterrupt:
        print_message(f"stopped waiting; the release may have been sent: {remedy}")
        raise
    line = Text.assemble("node ", (safe(node), "bold"), " of ", (safe(instance_id), "bold cyan"), " was released")
    _print(line, {"id": instance_id, "node": node, "released": True}, as_json=as_json)


def _arguments(text: str) -> list[Any]:
    """The elements of a JSON array, or any other JSON value as the only argument."""
    data = checked_json(text)
    return msgspec.json.decode(data, type=list[Any]) if data.lstrip()[:1] == b"[" else [msgspec.json.decode(data)]


async def _wait_for(answer: Coroutine[Any, Any, Any], client: Client, instance_id: str) -> Any:
    """Waits for an answer. While no live worker can give it, prints the reasons once and keeps waiting."""
    answering = asyncio.ensure_future(answer)
    try:
        reasons: list[str] = []
        while not reasons:
            await asyncio.wait({answering}, timeout=PATIENCE_SECONDS)
            if answering.done():
                break
            reasons = await read_unanswered_reasons(store_of(client), InstanceId(instance_id))
        for reason in reasons:
            print_message(f"still waiting: {safe(reason)}")
        return await answering
    finally:
        answering.cancel()
