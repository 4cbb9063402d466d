"""``holdfast update ID NAME``: change a workflow by its own function, and print what it gives back."""

import asyncio
import shlex
from typing import Any

import click

from holdfast.cli.query import parsed, print_json
from holdfast.cli.stores import StoreName, connected, existing_store
from holdfast.cli.texts import safe
from holdfast.cli.waiting import answer_of
from holdfast.errors import UpdateFailed
from holdfast.runtime.providers import SystemClockAndIds


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
