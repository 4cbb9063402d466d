"""``holdfast migrate``: bring the tables of a store up to this release, or print what would do it."""

import asyncio
from typing import Annotated

import typer

from holdfast.cli.stores import Place, StoreOption, shown, store_path
from holdfast.cli.texts import safe
from holdfast.client.engine import connect
from holdfast.errors import UsageError


def migrate(
    *,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the SQL for a PostgreSQL store, and connect to nothing.")
    ] = False,
    after: Annotated[
        int,
        typer.Option(
            "--after", metavar="N", min=0, help="With --print: only what comes after schema N, which is there."
        ),
    ] = 0,
    store: StoreOption = None,
) -> None:
    """Bring the tables of a store up to this release. Workers of the release before may go on meanwhile.

    \b
    holdfast migrate --print --store 'postgresql:///shop?schema=holdfast' | psql -v ON_ERROR_STOP=1 shop
    """
    place = store_path(store)
    if not only_print:
        asyncio.run(_migrate(place))
        typer.echo(f"{safe(shown(place))} is up to date")
        return
    if not isinstance(place, str):
        raise UsageError("only the tables of a PostgreSQL store can be printed; a SQLite file is migrated when opened")
    from holdfast.storage.postgres.address import parse  # noqa: PLC0415 - it needs a library of its own
    from holdfast.storage.postgres.schema import printed  # noqa: PLC0415

    try:
        schema = parse(place).schema
    except ValueError as error:
        raise UsageError(str(error)) from error
    typer.echo(printed(schema, after))


async def _migrate(place: Place) -> None:
    client = await connect(place)
    await client.close()
