"""``holdfast update ID NAME``: change a workflow by its own function, and print what it gives back."""

import asyncio
from typing import Any

from holdfast.cli.query import parsed, print_json
from holdfast.cli.stores import Place, connected, existing_store
from holdfast.cli.waiting import answer_of
from holdfast.errors import UpdateFailed


def update(  # noqa: PLR0917 - the options of the command
    instance_id: str,
    name: str,
    value: str = "[]",
    update_id: str | None = None,
    timeout: float | None = None,
    store: str | None = None,
) -> None:
    """Change a workflow by one of its updates, wait for it, and print its result as JSON."""
    answer = asyncio.run(_send(existing_store(store), instance_id, name, parsed(value), update_id, timeout))
    print_json(answer)


async def _send(  # noqa: PLR0917 - handed on
    path: Place, instance_id: str, name: str, arguments: list[Any], update_id: str | None, seconds: float | None
) -> Any:
    async with connected(path) as client:
        try:
            asked = client.get(instance_id).update(name, *arguments, id=update_id, timeout=seconds)
            return await answer_of(client, instance_id, asked)
        except TimeoutError as error:
            raise UpdateFailed(str(error)) from error
