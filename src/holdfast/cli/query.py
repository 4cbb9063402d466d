"""``holdfast query ID NAME``: ask a workflow, which is answered by a worker that has its code."""

import asyncio
from typing import Any

import click
import msgspec

from holdfast.cli.inputs import checked_json
from holdfast.cli.stores import StoreName, connected, existing_store
from holdfast.cli.texts import json_text
from holdfast.cli.waiting import answer_of
from holdfast.client.asking import QUERY_SECONDS
from holdfast.errors import QueryFailed


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
