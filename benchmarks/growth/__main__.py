"""``python -m benchmarks.growth``: measure growth on both stores, write the figures and the drawings.

Measures of the two stores take turns. Figures that are measured in several rounds are medians.
"""

import argparse
import asyncio
import datetime as dt
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from tests.postgres.server import Place

from benchmarks import recorded, together
from benchmarks.database import default_server, server_version
from benchmarks.growth import filling, measures, report
from benchmarks.machine import machine, versions
from benchmarks.measure import Sample, medians
from benchmarks.postgres.server import processor_seconds_of
from holdfast.storage.postgres.address import parse

ENGINES: Final = (1, 2, 4, 8)
WORKERS: Final = (1, 2, 4)
SIZE: Final = """
    SELECT sum(pg_total_relation_size(pg_class.oid)), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s AND relkind = 'r'
"""


class Extent(NamedTuple):
    """How far the measurement goes."""

    history: int
    closed: tuple[int, ...]
    payloads: tuple[int, ...]
    rounds: int
    scale: float


FULL: Final = Extent(40_000, (1_000, 10_000, 100_000, 1_000_000), (100, 1_000, 10_000, 100_000, 1_000_000), 3, 1.0)
QUICK: Final = Extent(4_000, (1_000, 10_000), (100, 10_000, 100_000), 1, 0.2)


class Stores:
    """New stores of both kinds. They are removed when the next part begins."""

    def __init__(self, server: str, folder: Path) -> None:
        self.server = server
        self._folder = folder
        self._number = 0
        self._places: list[Place] = []

    def new(self) -> dict[str, str]:
        """A store of each kind, by its name."""
        self._number += 1
        place = Place(self.server, f"holdfast_growth_{os.getpid()}_{self._number}")
        self._places.append(place)
        return {report.SQLITE: str(self._folder / f"{self._number}.db"), report.POSTGRES: place.url}

    def clear(self) -> None:
        """Remove the stores so far."""
        for place in self._places:
            place.drop()
        self._places.clear()
        for path in self._folder.iterdir():
            with suppress(OSError):
                path.unlink()

    def server_cpu(self, name: str) -> Callable[[], float]:
        """The processor time of the database so far."""
        return (lambda: processor_seconds_of(self.server)) if name == report.POSTGRES else together.no_server


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def histories(stores: Stores, extent: Extent) -> report.Series:
    """The cost of a step by the length of the history."""
    found: report.Series = {}
    for name, store in stores.new().items():
        say(f"history of {extent.history:,} steps, {name}")
        found[name] = measures.history(store, extent.history)
    return found


def closed_instances(stores: Stores, extent: Extent) -> report.Series:
    """B1 and ``holdfast list`` by the number of closed instances in the store."""
    places = stores.new()
    for store in places.values():
        asyncio.run(filling.make_template(store))
    found: report.Series = {name: [] for name in places}
    present = 1
    for count in extent.closed:
        for name, store in places.items():
            say(f"{count:,} closed instances, {name}")
            server_cpu = stores.server_cpu(name)
            first = measures.closed(store, count, present, extent.scale, server_cpu)
            again = [
                measures.throughput(store, f"among-{count}-{number}", extent.scale, server_cpu)
                for number in range(1, extent.rounds)
            ]
            found[name].append({**first, **medians([first, *again])})
        present = count
    return found


def several(stores: Stores, extent: Extent, counts: tuple[int, ...], measure: Any, what: str) -> report.Series:
    """Measures with several processes, in rounds."""
    samples: dict[tuple[str, int], list[Sample]] = {}
    for _ in range(extent.rounds):
        for count in counts:
            for name, store in stores.new().items():
                say(f"{count} {what}, {name}")
                samples.setdefault((name, count), []).append(
                    measure(store, count, extent.scale, stores.server_cpu(name))
                )
    return {
        name: [{"count": count, **medians(samples[name, count])} for count in counts]
        for name in (report.SQLITE, report.POSTGRES)
    }


def payloads(stores: Stores, extent: Extent) -> report.Series:
    """The cost of a step by the size of its argument and its result."""
    samples: dict[tuple[str, int], list[Sample]] = {}
    for number in range(extent.rounds):
        places = stores.new()
        for size in extent.payloads:
            for name, store in places.items():
                say(f"payloads of {size:,} bytes, {name}")
                samples.setdefault((name, size), []).append(measures.payload(store, size, f"{number}-{size}"))
    return {
        name: [medians(samples[name, size]) for size in extent.payloads] for name in (report.SQLITE, report.POSTGRES)
    }


def costs(stores: Stores, extent: Extent) -> dict[str, Sample]:
    """What a step of B1 costs the worker, the database, the WAL and the disk."""
    found: dict[str, list[Sample]] = {}
    for _ in range(extent.rounds):
        for name, store in stores.new().items():
            say(f"cost of a step, {name}")
            found.setdefault(name, []).append(_cost(stores, name, store, extent.scale))
    return {name: medians(samples) for name, samples in found.items()}


def _cost(stores: Stores, name: str, store: str, scale: float) -> Sample:
    measures.throughput(store, "first", scale)
    bytes_before, wal_before = _size(store)
    sample = measures.throughput(store, "measured", scale, stores.server_cpu(name))
    bytes_after, wal_after = _size(store)
    steps = (measures.instances(scale) + measures.IN_FLIGHT) * measures.STEPS  # with those of the warm-up
    return {
        "steps_per_s": sample["steps_per_s"],
        "worker_us_per_step": sample["worker_us_per_step"],
        "database_us_per_step": sample["database_us_per_step"],
        "stored_bytes_per_step": (bytes_after - bytes_before) / steps,
        "wal_bytes_per_step": (wal_after - wal_before) / steps,
    }


def _size(store: str) -> tuple[float, float]:
    """The bytes of the tables and indexes, and the position of the WAL."""
    if "://" not in store:
        return float(Path(store).stat().st_size), 0.0
    address = parse(store)
    with psycopg.connect(**dict(address.parameters), autocommit=True) as connection:  # type: ignore[arg-type]
        [(size, position)] = connection.execute(SIZE, (address.schema,)).fetchall()
    return float(size), float(position)


PARTS: Final[dict[str, Callable[[Stores, Extent], Any]]] = {
    "costs": costs,
    "history": histories,
    "closed": closed_instances,
    "engines": lambda stores, extent: several(stores, extent, ENGINES, together.engines, "engines"),
    "workers": lambda stores, extent: several(stores, extent, WORKERS, together.apart, "workers apart from the client"),
    "payloads": payloads,
}


def main() -> int:
    """Measure, print the tables, write them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes and one round, about two minutes")
    parser.add_argument("--rounds", type=int, help="rounds of each measure except the history (default 3)")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; repeatable")
    parser.add_argument("--out", default="build/bench-growth", help="where figures, tables and drawings go")
    parser.add_argument("--record", action="store_true", help="also keep the figures and write the documentation")
    options = parser.parse_args()
    if options.record and (options.quick or options.part):
        parser.error("--record keeps a whole run only: without --quick and --part")
    extent = QUICK if options.quick else FULL
    extent = extent._replace(rounds=options.rounds or extent.rounds)
    begun = time.perf_counter()
    found: dict[str, Any] = {
        "taken": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": machine(),
        "rounds": {name: 1 if name == "history" else extent.rounds for name in options.part or PARTS},
    }
    with default_server() as server, tempfile.TemporaryDirectory(prefix="holdfast-growth-") as folder:
        found["versions"] = {**versions(), "PostgreSQL": server_version(server)}
        stores = Stores(server, Path(folder))
        for name in options.part or PARTS:
            found[name] = PARTS[name](stores, extent)
            stores.clear()
    found["seconds"] = round(time.perf_counter() - begun)
    print(report.markdown(found))
    recorded.write(Path(options.out), "growth", found, report.markdown(found), report.drawings(found))
    if options.record:
        recorded.record("growth", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
