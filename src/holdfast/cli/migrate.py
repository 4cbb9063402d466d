"""``holdfast migrate``: bring the tables of a store up to this release, or print what would do it."""

import asyncio

import click

from holdfast.cli.stores import StoreName, existing_store, shown, store_path
from holdfast.cli.texts import safe
from holdfast.client.engine import connect
from holdfast.errors import UsageError


def migrate(*, only_print: bool = False, after: int = 0, store: str | None = None) -> None:
    """Bring the tables of a store up to this release, or print the SQL that does it on PostgreSQL."""
    place = store_path(store) if only_print else existing_store(store)
    if not only_print:
        asyncio.run(_migrate(place))
        click.echo(f"{safe(shown(place))} is up to date")
        return
    if not isinstance(place, str):
        raise UsageError("only the tables of a PostgreSQL store can be printed; a SQLite file is migrated when opened")
    from holdfast.storage.postgres.address import parse  # noqa: PLC0415 - it needs a library of its own
    from holdfast.storage.postgres.schema import printed  # noqa: PLC0415

    try:
        schema = parse(place).schema
    except ValueError as error:
        raise UsageError(str(error)) from error
    click.echo(printed(schema, after))


async def _migrate(place: StoreName) -> None:
    client = await connect(place)
    await client.close()
