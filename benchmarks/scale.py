"""``python -m benchmarks.scale``: from the measured cost of a step to the servers and workers for a load.

The defaults are the recorded figures of ``make bench-growth``; every one can be replaced by a figure of your own, such
as those of ``holdfast bench``. The calculation is in `plan`. It assumes that cost grows in proportion to the steps,
which `docs/scale.md` discusses.
"""

import argparse
import math
import sys
from typing import Any, Final, NamedTuple

from benchmarks import recorded

MICROSECONDS: Final = 1_000_000
DAY_SECONDS: Final = 86_400
MEGABYTE: Final = 10**6
GIGABYTE: Final = 10**9
CONNECTIONS: Final = 6
"""Of one process of Holdfast, without a pooler."""
STORE: Final = "PostgreSQL"
LOADS: Final = (100, 1_000, 10_000, 100_000)
CORES: Final = 32


class Cost(NamedTuple):
    """What one step costs, with its share of the instance."""

    step_us: float
    """Processor time of the database."""
    worker_us: float
    """Processor time of the process that runs the workflow and the body, without the work of the body."""
    stored_bytes: float
    wal_bytes: float


class Load(NamedTuple):
    """What is wanted, and what there is for it."""

    steps_per_s: float
    cores: int = CORES
    """Of one database server."""
    wal_mb_per_s: float = 200
    """What the disk of the WAL of one server takes, beside the standby and the archive."""
    use: float = 0.6
    """The share of a core that is planned; the rest is for peaks, vacuum, backups and failover."""
    days: float = 30
    """How long closed instances stay in the store."""


class Plan(NamedTuple):
    """The answer."""

    database_cores: float
    databases: int
    by_processor: float
    """Steps per second of one database server, by its cores."""
    by_disk: float
    """The same by its WAL."""
    workers: int
    """Processes, each with one core."""
    connections: int
    """Of all processes."""
    wal_mb_per_s: float
    stored_gb_per_day: float
    stored_gb: float


def plan(load: Load, cost: Cost) -> Plan:
    """The servers and workers for a load."""
    by_processor = load.cores * load.use * MICROSECONDS / cost.step_us
    by_disk = load.wal_mb_per_s * MEGABYTE / cost.wal_bytes
    workers = math.ceil(load.steps_per_s * cost.worker_us / MICROSECONDS / load.use)
    stored_per_day = load.steps_per_s * cost.stored_bytes * DAY_SECONDS / GIGABYTE
    return Plan(
        database_cores=load.steps_per_s * cost.step_us / MICROSECONDS,
        databases=math.ceil(load.steps_per_s / min(by_processor, by_disk)),
        by_processor=by_processor,
        by_disk=by_disk,
        workers=workers,
        connections=workers * CONNECTIONS,
        wal_mb_per_s=load.steps_per_s * cost.wal_bytes / MEGABYTE,
        stored_gb_per_day=stored_per_day,
        stored_gb=stored_per_day * load.days,
    )


def measured(report: dict[str, Any]) -> Cost:
    """The cost in a report of ``make bench-growth``."""
    found = report["costs"][STORE]
    return Cost(
        step_us=found["database_us_per_step"],
        worker_us=found["worker_us_per_step"],
        stored_bytes=found["stored_bytes_per_step"],
        wal_bytes=found["wal_bytes_per_step"],
    )


def markdown(report: dict[str, Any]) -> str:
    """The table of `docs/scale.md`."""
    cost = measured(report)
    costs = (
        f"A step of B1 costs {cost.step_us:.0f} us of a core of the database, {cost.worker_us:.0f} us of a core of the "
        f"worker, {cost.stored_bytes:,.0f} bytes on disk and {cost.wal_bytes:,.0f} bytes of WAL (measured on "
        f"{report['taken']})."
    )
    titles = (
        "steps/s",
        "busy cores of the database",
        f"servers with {CORES} cores",
        "worker processes",
        "connections",
        "WAL MB/s",
        "GB a day",
        "GB in 30 days",
    )
    lines = [costs, "", f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for steps in LOADS:
        found = plan(Load(steps), cost)
        lines.append(
            f"| {steps:,} | {found.database_cores:.2g} | {found.databases} | {found.workers} | {found.connections} | "
            f"{found.wal_mb_per_s:.3g} | {found.stored_gb_per_day:,.1f} | {found.stored_gb:,.0f} |"
        )
    load = Load(1)
    found = plan(load, cost)
    limits = (
        f"The limit of one server with {CORES} cores is {found.by_processor:,.0f} steps/s by its processor, and "
        f"{found.by_disk:,.0f} by a disk that takes {load.wal_mb_per_s:g} MB/s of WAL."
    )
    return "\n".join([*lines, "", limits, "", _apart(report), ""])


def _apart(report: dict[str, Any]) -> str:
    """What a step costs when its client and its workers are processes of their own."""
    found = [
        f"{each['cpu_us_per_step']:.0f} us with {each['count']} worker{'s' if each['count'] > 1 else ''} "
        f"({each['server_us_per_step']:.0f} of them in the database)"
        for each in report["workers"]["PostgreSQL"]
    ]
    return (
        "These are the figures of one busy process that is client and worker. With 50 workflows in flight from a "
        f"client apart from its workers, a step costs {', '.join(found)}, the client included: groups are smaller. "
        "Measure your own ratio with `holdfast bench`, and multiply."
    )


def drawings(report: dict[str, Any]) -> dict[str, str]:
    """There are none."""
    del report
    return {}


def _options() -> argparse.Namespace:
    cost = measured(recorded.load("growth"))
    load = Load(10_000)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--steps-per-second", type=_positive, default=load.steps_per_s, help="the load to plan for")
    parser.add_argument("--cores", type=int, default=load.cores, help="cores of one database server")
    parser.add_argument("--wal-limit", type=_positive, default=load.wal_mb_per_s, help="MB/s of WAL of one server")
    parser.add_argument("--use", type=_positive, default=load.use, help="planned share of each core, up to 1")
    parser.add_argument("--days", type=_positive, default=load.days, help="how long closed instances are kept")
    parser.add_argument("--step-us", type=_positive, default=cost.step_us, help="us of the database for a step")
    parser.add_argument("--worker-us", type=_positive, default=cost.worker_us, help="us of the worker for a step")
    parser.add_argument("--stored-bytes", type=_positive, default=cost.stored_bytes, help="bytes on disk for a step")
    parser.add_argument("--wal-bytes", type=_positive, default=cost.wal_bytes, help="bytes of WAL for a step")
    return parser.parse_args()


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def main() -> int:
    """Print the plan, with every step of the calculation."""
    given = _options()
    if given.cores < 1 or given.use > 1:
        sys.exit("--cores is at least 1, and --use at most 1")
    load = Load(given.steps_per_second, given.cores, given.wal_limit, given.use, given.days)
    cost = Cost(given.step_us, given.worker_us, given.stored_bytes, given.wal_bytes)
    found = plan(load, cost)
    rate = f"{load.steps_per_s:,.0f} steps/s"
    print(f"{rate} x {cost.step_us:.0f} us = {found.database_cores:.1f} busy cores of the database")
    print(
        f"{load.cores} cores x {load.use:g} / {cost.step_us:.0f} us = {found.by_processor:,.0f} steps/s of one server"
    )
    wal = f"{load.wal_mb_per_s:g} MB/s of WAL / {cost.wal_bytes:,.0f} bytes"
    print(f"{wal} = {found.by_disk:,.0f} steps/s of one server")
    print(f"{rate} / {min(found.by_processor, found.by_disk):,.0f} = {found.databases} servers")
    print(f"{rate} x {cost.worker_us:.0f} us / {load.use:g} = {found.workers} worker processes, a core each")
    print(f"{found.workers} processes x {CONNECTIONS} = {found.connections} connections")
    print(f"{rate} x {cost.wal_bytes:,.0f} bytes = {found.wal_mb_per_s:.1f} MB/s of WAL")
    print(f"{rate} x {cost.stored_bytes:,.0f} bytes = {found.stored_gb_per_day:,.0f} GB a day")
    print(f"{load.days:g} days = {found.stored_gb:,.0f} GB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
