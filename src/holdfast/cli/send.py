"""``holdfast event ID NAME``: raise an event to an instance.

Waiting for the answer of a worker: after a moment without one, standard error says why none comes.

``holdfast cancel ID``: ask an instance to end; its code may clean up.

``holdfast query ID NAME``: ask a workflow, which is answered by a worker that has its code.

``holdfast terminate ID``: end an instance now, without asking its code.

``holdfast update ID NAME``: change a workflow by its own function, and print what it gives back.
"""

import asyncio
import shlex
from collections.abc import Coroutine
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from holdfast.cli.application import checked_json
from holdfast.cli.console import json_text, print_line, safe
from holdfast.cli.store_option import StoreName, connected, existing_store
from holdfast.client.client import Client, store_of
from holdfast.client.queries import QUERY_SECONDS
from holdfast.client.views.obstacles import read_unanswered_reasons
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import QueryFailed, UpdateFailed
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.storage.records import InstanceId


def event(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    name: str,
    value: str = "null",
    message_id: str | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Raise an event to an instance. It is on disk when this returns, and reaches the code once."""
    given: Any = msgspec.json.decode(checked_json(value))
    is_taken = asyncio.run(_raise(existing_store(store), instance_id, name, given, message_id))
    if as_json:
        click.echo(json_text({"id": instance_id, "event": name, "taken": is_taken}))
    else:
        said = " was raised to " if is_taken else " was dropped: nobody waits for it in "
        line = Text.assemble(("event ", ""), (safe(name), "bold"), said, (safe(instance_id), "bold cyan"))
        print_line(Console(highlight=False), line)


async def _raise(path: StoreName, instance_id: str, name: str, value: Any, message_id: str | None) -> bool:
    async with connected(path) as client:
        return await client.get(instance_id).raise_event(name, value, id=message_id)


QUIET_SECONDS: Final = 1.0
"""How long a command waits before it looks for a worker that can answer, and between two looks."""


async def answer_of(client: Client, instance_id: str, asked: Coroutine[Any, Any, Any]) -> Any:
    """The answer. While no live worker can give it, the reason is printed once, and the wait continues."""
    answering = asyncio.ensure_future(asked)
    try:
        reasons: list[str] = []
        while not reasons:
            await asyncio.wait({answering}, timeout=QUIET_SECONDS)
            if answering.done():
                break
            reasons = await read_unanswered_reasons(store_of(client), InstanceId(instance_id))
        for reason in reasons:
            click.echo(f"holdfast: still waiting: {safe(reason)}", err=True)
        return await answering
    finally:
        answering.cancel()


def cancel(instance_id: str, reason: str | None = None, store: str | None = None, as_json: bool = False) -> None:
    """Ask an instance to end. Its code gets an `asyncio.CancelledError`, and may clean up or continue."""
    state = asyncio.run(_cancel(existing_store(store), instance_id, reason))
    if as_json:
        fields = {"id": instance_id, "state": state, "status": state, "reason": reason}
        click.echo(json_text(fields))
    else:
        line = Text.assemble((safe(instance_id), "bold cyan"), f" is {state}")
        print_line(Console(highlight=False), line)


async def _cancel(path: StoreName, instance_id: str, reason: str | None) -> str:
    async with connected(path) as client:
        handle = client.get(instance_id)
        await handle.cancel(reason)
        return (await handle.describe()).state


def query(
    instance_id: str, name: str, arguments: str = "[]", timeout: float = QUERY_SECONDS, store: str | None = None
) -> None:
    """Ask a workflow by one of its queries, and print the answer as JSON."""
    answer = asyncio.run(_ask(existing_store(store), instance_id, name, parsed(arguments), timeout))
    print_json(answer)


def parsed(text: str) -> list[Any]:
    """Arguments that somebody typed: an array has them by position, and anything else is the one argument."""
    data = checked_json(text)
    return msgspec.json.decode(data, type=list[Any]) if data.lstrip()[:1] == b"[" else [msgspec.json.decode(data)]


def print_json(value: Any) -> None:
    """An answer, for people and programs alike."""
    click.echo(json_text(value))


async def _ask(path: StoreName, instance_id: str, name: str, arguments: list[Any], seconds: float) -> Any:
    async with connected(path) as client:
        try:
            asked = client.get(instance_id).query(name, *arguments, timeout=seconds)
            return await answer_of(client, instance_id, asked)
        except TimeoutError as error:
            raise QueryFailed(f"{error}; is there a worker that has its code?") from error


def terminate(instance_id: str, reason: str | None = None, store: str | None = None, as_json: bool = False) -> None:
    """End an instance now, without running its code."""
    asyncio.run(_terminate(existing_store(store), instance_id, reason))
    if as_json:
        state = InstanceState.TERMINATED
        fields = {"id": instance_id, "state": state, "status": state, "reason": reason}
        click.echo(json_text(fields))
    else:
        line = Text.assemble((safe(instance_id), "bold cyan"), " was terminated")
        print_line(Console(highlight=False), line)


async def _terminate(path: StoreName, instance_id: str, reason: str | None) -> None:
    async with connected(path) as client:
        await client.get(instance_id).terminate(reason)


def update(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    name: str,
    value: str = "[]",
    update_id: str | None = None,
    timeout: float | None = None,
    store: str | None = None,
) -> None:
    """Change a workflow by one of its updates, wait for it, and print its result as JSON."""
    unique = SystemClockAndIds().unique_text() if update_id is None else update_id
    asked = _send(existing_store(store), instance_id, name, parsed(value), unique, timeout)
    again = f"the same command with --id {shlex.quote(safe(unique))} waits for its answer"
    try:
        print_json(asyncio.run(asked))
    except TimeoutError as error:
        raise UpdateFailed(f"the update {name!r} of {instance_id!r} was not answered in time; {again}") from error
    except KeyboardInterrupt:
        click.echo(f"holdfast: stopped waiting; the update may have been sent: {again}", err=True)
        raise


async def _send(  # noqa: PLR0917 - handed on
    path: StoreName, instance_id: str, name: str, arguments: list[Any], update_id: str, seconds: float | None
) -> Any:
    async with connected(path) as client:
        asked = client.get(instance_id).update(name, *arguments, id=update_id, timeout=seconds)
        return await answer_of(client, instance_id, asked)
