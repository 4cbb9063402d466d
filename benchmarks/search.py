"""``python -m benchmarks.search``: pages and counts by filters over a million instances (F8, F9).

The store is filled by SQL and has no statistics. Prints the median and the longest of several calls of `client.list`
and `client.count`, beside the targets: 50 ms for a page and 10 ms for a capped count of an indexed filter. With
``--postgres`` on PostgreSQL, on a server of its own.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sized
from functools import partial
from pathlib import Path
from typing import Any, Final

import apsw

from benchmarks.postgres.server import bench_server
from holdfast.client.client import Client, connect
from holdfast.core.attributes import number_key

INSTANCES: Final = 1_000_000
CALLS: Final = 9
PAGE: Final = 50
PAGE_MS: Final = 50.0
COUNT_MS: Final = 10.0
GAP_MS: Final = 10
"""Between two starts."""
DEEP: Final = 20
"""Pages before the one that is measured."""

STATE: Final = (
    "CASE WHEN n % 100 < 3 THEN 'FAILED' WHEN n % 100 = 3 THEN 'TERMINATED' WHEN n % 1000 = 4 THEN 'RUNNING'"
    " WHEN n % 20000 = 5 THEN 'BLOCKED' ELSE 'COMPLETED' END"
)
INSERTS: Final = (
    f"""INSERT INTO instances (number, id, workflow, version, state, execution, turn, fence, stamp_ms, input,
        input_hash, outcome, created_at_ms, closed_at_ms, error)
    SELECT n, 'order-' || n, CASE WHEN n % 10 < 6 THEN 'checkout' WHEN n % 5000 = 7 THEN 'rare' ELSE 'ship' END, '',
        {STATE}, 1, 3, 1, {{now}} - ({{many}} - n) * {GAP_MS}, '[1, 2, 3]', 'hash', '{{{{"data":1}}}}',
        {{now}} - ({{many}} - n) * {GAP_MS},
        CASE WHEN n % 1000 <> 4 AND n % 20000 <> 5 THEN {{now}} - ({{many}} - n) * {GAP_MS} + n % 50000 END,
        CASE WHEN n % 100 < 3 THEN 'Declined' END
    FROM numbers""",
    """INSERT INTO attributes (number, name, position, type, value, created_at_ms)
    SELECT number, 'customer', 0, 'text', 't' || CASE WHEN number % 3 = 0 THEN 'acme' ELSE 'c' || (number % 23000) END,
        created_at_ms FROM instances""",
    """INSERT INTO attributes (number, name, position, type, value, created_at_ms)
    SELECT number, 'plan', 0, 'int', CASE WHEN number % 2 = 0 THEN '{one}' ELSE '{two}' END, created_at_ms
    FROM instances""",
)  # fmt: skip
PAGES: Final = {
    "newest": None,
    "state = FAILED": "state = FAILED",
    "state of 1 %": "state = TERMINATED",
    "state of 0.005 %": "state = BLOCKED",
    "most common state": "state = COMPLETED",
    "two tests, the second filtered": 'workflow = "checkout" and state = FAILED',
    "rare workflow": 'workflow = "rare"',
    "rare attribute": 'a.customer = "c8"',
    "common attribute": 'a.customer = "acme"',
    "common attribute, 3 %": 'a.customer = "acme" and state = FAILED',
    "common attribute, 1 %": 'a.customer = "acme" and state = TERMINATED',
    "two common attributes": 'a.customer = "acme" and a.plan = 1',
    "range of an attribute": "a.plan > 1",
    "prefix of an attribute": 'a.customer starts with "c77"',
    "time range": "created > now - 1h and not state = COMPLETED",
    "old time range": "created between now - 2h and now - 1h and state = FAILED",
    "error": 'error = "Declined"',
    "id": 'id = "order-77777"',
    "prefix of an id": 'id starts with "order-7777"',
    "or": 'state = BLOCKED or a.customer = "c8" or workflow = "rare"',
}
ORDERED: Final = {"by end": ("closed > now - 1h", "closed"), "by duration": ("closed > now - 1m", "duration")}
COUNTS: Final = (
    *("newest", "state = FAILED", "state of 0.005 %", "most common state", "rare workflow"),
    *("rare attribute", "common attribute"),
)


def fill_sqlite(path: Path, many: int) -> None:
    connection: Any = apsw.Connection(str(path))
    numbers = f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {many}) "
    now = int(time.time() * 1000)
    connection.execute("BEGIN")
    for place, text in enumerate(INSERTS):
        connection.execute((numbers if place == 0 else "") + _statement(text, now, many))
    connection.execute("COMMIT")
    connection.close()


def _statement(text: str, now: int, many: int) -> str:
    return text.format(now=now, many=many, one=number_key(1), two=number_key(2))


def fill_postgres(place: Any, many: int) -> None:
    now = int(time.time() * 1000)
    with place.connect() as connection:
        connection.execute(f'SET search_path TO "{place.schema}"')
        for table in ("instances", "attributes"):
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        connection.execute(f"CREATE TEMP VIEW numbers AS SELECT n FROM generate_series(1, {many}) AS n")
        for text in INSERTS:
            connection.execute(_statement(text, now, many))


def vacuum_postgres(place: Any) -> None:
    """What autovacuum does after inserts, without its ANALYZE: an index alone then answers a count."""
    with place.connect() as connection:
        for table in ("instances", "attributes"):
            connection.execute(f'VACUUM "{place.schema}".{table}')


async def measure(store: str | Path, fill: Callable[[], None], vacuum: Callable[[], None] = lambda: None) -> int:
    """Fill the store, and print the time of each call. Returns how many targets were missed."""
    client = await connect(store)
    await client.close()
    begun = time.perf_counter()
    fill()
    print(f"filled in {time.perf_counter() - begun:.0f} s, not analysed")
    missed = 0
    async with connect(store) as client:
        for name, text in PAGES.items():
            missed += await _report(f"page: {name}", partial(client.list, text, limit=PAGE), PAGE_MS)
        for name in ("newest", "state = FAILED", "common attribute"):
            deep = partial(client.list, PAGES[name], limit=PAGE, cursor=await _deep(client, PAGES[name]))
            missed += await _report(f"page {DEEP}: {name}", deep, PAGE_MS)
        for name, (text, order) in ORDERED.items():
            by_order = partial(client.list, text, order=order, limit=PAGE)
            missed += await _report(f"page: {name}", by_order, PAGE_MS)
        await asyncio.to_thread(vacuum)
        for name in COUNTS:
            missed += await _report(f"count: {name}", partial(client.count, PAGES[name]), COUNT_MS)
    return missed


async def _deep(client: Client, text: str | None) -> str | None:
    cursor: str | None = None
    for _ in range(DEEP):
        cursor = (await client.list(text, limit=PAGE, cursor=cursor)).cursor
    return cursor


async def _report(name: str, call: Callable[[], Awaitable[Any]], target_ms: float) -> int:
    found = await call()
    times: list[float] = []
    for _ in range(CALLS):
        before = time.perf_counter()
        await call()
        times.append((time.perf_counter() - before) * 1000)
    median = statistics.median(times)
    shown = len(found) if isinstance(found, Sized) else str(found)
    print(f"{name:<40} {median:8.2f} ms  longest {max(times):8.2f}  target {target_ms:g}  found {shown}")
    return int(median > target_ms)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL, a server of its own")
    parser.add_argument("--instances", type=int, default=INSTANCES)
    options = parser.parse_args()
    if options.postgres:
        from tests.postgres.server import place  # noqa: PLC0415 - needs psycopg

        with bench_server() as server, place(server) as mine:
            fill = partial(fill_postgres, mine, options.instances)
            return asyncio.run(measure(mine.url, fill, partial(vacuum_postgres, mine)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "search.db"
        return asyncio.run(measure(path, lambda: fill_sqlite(path, options.instances)))


if __name__ == "__main__":
    sys.exit(main())
