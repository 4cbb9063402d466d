"""Many closed instances in a store, as copies of the rows that the engine wrote for one.

A copy has a number and an id of its own; everything else is as the engine stored it. Only tables with a row of that
instance are filled.
"""

import os
from typing import Any, Final

import apsw
import psycopg

from benchmarks.programs import sequence, step
from holdfast import Engine
from holdfast.storage.postgres.address import parse

TEMPLATE: Final = "closed-0"
STEPS: Final = 1
ID: Final = "'closed-' || series.number"
NO_SYNC: Final = ("PRAGMA synchronous = OFF", "PRAGMA cache_size = -200000")
SYNC: Final = "PRAGMA wal_checkpoint(TRUNCATE)"


async def make_template(store: str) -> None:
    """One closed instance, by the engine."""
    async with Engine(store, workflows=[sequence], activities=[step]) as engine:
        await engine.run(sequence, STEPS, id=TEMPLATE)


def fill(store: str, count: int) -> None:
    """Add `count` closed instances. No engine has the store open."""
    if "://" in store:
        _fill_postgres(store, count)
    else:
        _fill_sqlite(store, count)


def _copies(table: str, columns: list[str], series: str) -> str:
    """The statement that copies the rows of the template for each number of a series."""
    values = {"number": "series.number", **({"id": ID} if table == "instances" else {})}
    listed = ", ".join(values.get(name, f"rows.{name}") for name in columns)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {listed} FROM {series} CROSS JOIN "
        f"(SELECT * FROM {table} WHERE number = {{template}}) AS rows"
    )


def _fill_sqlite(store: str, count: int) -> None:
    connection: Any = apsw.Connection(store)
    try:
        for statement in NO_SYNC:
            connection.execute(statement)
        template, last = connection.execute(
            "SELECT min(number) FILTER (WHERE id = ?), max(number) FROM instances", (TEMPLATE,)
        ).fetchall()[0]
        series = (
            f"(WITH RECURSIVE found(number) AS (SELECT {last + 1} UNION ALL "
            f"SELECT number + 1 FROM found WHERE number < {last + count}) SELECT number FROM found) AS series"
        )
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('instances', 'history', 'attempts')"
        ).fetchall()
        connection.execute("BEGIN IMMEDIATE")
        for (table,) in tables:
            columns = [name for (name,) in connection.execute(f"SELECT name FROM pragma_table_info('{table}')")]
            connection.execute(_copies(table, columns, series).format(template=template))
        connection.execute("COMMIT")
        connection.execute(SYNC)
    finally:
        connection.close()
    descriptor = os.open(store, os.O_RDWR)
    os.fsync(descriptor)  # otherwise the first commits of the measurement wait for these pages
    os.close(descriptor)


def _fill_postgres(store: str, count: int) -> None:
    address = parse(store)
    with psycopg.connect(**dict(address.parameters), autocommit=True) as opened:  # type: ignore[arg-type]
        connection: Any = opened
        connection.execute(f'SET search_path = "{address.schema}"')
        connection.execute("SET synchronous_commit = off")
        template, last = connection.execute(
            "SELECT min(number) FILTER (WHERE id = %s), nextval('instance_numbers') FROM instances", (TEMPLATE,)
        ).fetchone()
        series = f"generate_series({last + 1}, {last + count}) AS series(number)"
        for table in ("instances", "history", "attempts"):
            columns = [
                name
                for (name,) in connection.execute(
                    "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s "
                    "ORDER BY ordinal_position",
                    (address.schema, table),
                ).fetchall()
            ]
            connection.execute(_copies(table, columns, series).format(template=template))
        connection.execute("SELECT setval('instance_numbers', %s)", (last + count,))
        for table in ("instances", "history", "attempts"):
            connection.execute(f"VACUUM ANALYZE {table}")
        connection.execute("CHECKPOINT")  # otherwise the measurement meets it
