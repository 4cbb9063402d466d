"""``holdfast query ID NAME``: ask a workflow, which is answered by a worker that has its code."""

import asyncio
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.inputs import checked_json
from holdfast.cli.stores import Place, StoreOption, connected, existing_store
from holdfast.cli.texts import json_text
from holdfast.client.asking import QUERY_SECONDS
from holdfast.errors import QueryFailed


def query(
    instance_id: Annotated[str, typer.Argument(metavar="ID", help="The instance; the newest one of this id.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the query.")],
    arguments: Annotated[
        str, typer.Argument(metavar="JSON", help="Its arguments: an array, or the one argument itself.")
    ] = "[]",
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for an answer.")] = QUERY_SECONDS,
    store: StoreOption = None,
) -> None:
    """Ask a workflow something, and print the answer as JSON. Nothing is changed by it; a worker has to be there."""
    answer = asyncio.run(_ask(existing_store(store), instance_id, name, parsed(arguments), timeout))
    print_json(answer)


def parsed(text: str) -> list[Any]:
    """Arguments that somebody typed: an array has them by position, and anything else is the one argument."""
    data = checked_json(text)
    return msgspec.json.decode(data, type=list[Any]) if data.lstrip()[:1] == b"[" else [msgspec.json.decode(data)]


def print_json(value: Any) -> None:
    """An answer, for people and programs alike."""
    typer.echo(json_text(value))


async def _ask(path: Place, instance_id: str, name: str, arguments: list[Any], seconds: float) -> Any:
    async with connected(path) as client:
        try:
            return await client.get(instance_id).query(name, *arguments, timeout=seconds)
        except TimeoutError as error:
            raise QueryFailed(f"{error}; is there a worker that has its code?") from error
