"""``holdfast update ID NAME``: change a workflow by its own function, and print what it gives back."""

import asyncio
from typing import Annotated, Any

import typer

from holdfast.cli.query import parsed, print_json
from holdfast.cli.stores import Place, StoreOption, connected, existing_store
from holdfast.errors import UpdateFailed


def update(  # noqa: PLR0917 - the options of the command
    instance_id: Annotated[str, typer.Argument(metavar="ID", help="The instance; the newest one of this id.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the update.")],
    value: Annotated[
        str, typer.Option("--input", "-i", metavar="JSON", help="Its arguments: an array, or the one argument itself.")
    ] = "[]",
    update_id: Annotated[
        str | None,
        typer.Option("--id", metavar="TEXT", help="The same id is the same update, however often it is sent."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long to wait for the answer; the update goes on.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Change a workflow by its own function of that name, wait for it, and print its result as JSON."""
    answer = asyncio.run(_send(existing_store(store), instance_id, name, parsed(value), update_id, timeout))
    print_json(answer)


async def _send(  # noqa: PLR0917 - handed on
    path: Place, instance_id: str, name: str, arguments: list[Any], update_id: str | None, seconds: float | None
) -> Any:
    async with connected(path) as client:
        try:
            return await client.get(instance_id).update(name, *arguments, id=update_id, timeout=seconds)
        except TimeoutError as error:
            raise UpdateFailed(str(error)) from error
