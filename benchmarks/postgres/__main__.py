"""``python -m benchmarks.postgres``: what many machines cost, on a real PostgreSQL with full durability.

Starts a server of its own, or uses the one that `$HOLDFAST_BENCH_POSTGRES` names (a URL that libpq understands, of a
role that may create schemas and databases). DBOS runs beside us: `$HOLDFAST_BENCH_DBOS` names an interpreter that has
it; ``make bench-postgres`` takes care of that.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.postgres.server import Place

from benchmarks import contract, expiry, opening, retention, targets, together, workloads
from benchmarks.database import server_version
from benchmarks.measure import Sample
from benchmarks.postgres import bare, dbos, wakes
from benchmarks.postgres.claims import claim_pages
from benchmarks.postgres.server import bench_server, processor_seconds_of
from benchmarks.postgres.workers import draw_apart, work_of
from benchmarks.report import Bench, Figure, Target, engines_bench, in_pairs, of, ratio, retention_bench
from benchmarks.running import run_benches

LONGEST_SECONDS: Final = 600

ROLES: Final[dict[str, Callable[[str], None]]] = {
    "hear": lambda url: asyncio.run(wakes.hear(url)),
    "answer": wakes.answer,
    "echo": lambda url: asyncio.run(wakes.echo(url)),
    "janitor": lambda url: asyncio.run(expiry.clear_up(url)),
}
"""Processes beside the one that measures."""
MEASURES: Final[dict[str, Callable[[Place, float], Sample]]] = {
    "B1": lambda place, scale: asyncio.run(workloads.b1(place.url, scale, lambda: processor_seconds_of(place.server))),
    "B1 bare": bare.b1,
    "B1 DBOS": lambda place, scale: dbos.sample("B1", place, scale),
    "B2": lambda place, scale: asyncio.run(workloads.b2(place.url, scale)),
    "B2 DBOS": lambda place, scale: dbos.sample("B2", place, scale),
    "B4": lambda place, scale: asyncio.run(workloads.b4(place.url, scale)),
    "B4 DBOS": lambda place, scale: dbos.sample("B4", place, scale),
    "ONE TURN": bare.one_turn,
    "WAKE": lambda place, scale: asyncio.run(wakes.round_trip(place.url, max(20, int(200 * scale)))),
    "WAKE by a start": lambda place, scale: asyncio.run(wakes.wake_up(place.url, max(20, int(200 * scale)))),
    "WAKE bare": lambda place, scale: wakes.bare_round_trip(place.server, max(20, int(200 * scale))),
    "ONE WORKER": lambda place, scale: asyncio.run(work_of(place.url, workers=1, bodies=max(20, int(200 * scale)))),
    "TWO WORKERS": lambda place, scale: asyncio.run(work_of(place.url, workers=2, bodies=max(20, int(200 * scale)))),
    "ENGINES 1": lambda place, scale: _engines(place, 1, scale),
    "ENGINES 2": lambda place, scale: _engines(place, 2, scale),
    "ENGINES 4": lambda place, scale: _engines(place, 4, scale),
    "APART 1": lambda place, scale: _apart(place, 1, scale),
    "APART 2": lambda place, scale: _apart(place, 2, scale),
    "APART 4": lambda place, scale: _apart(place, 4, scale),
    "APART one at a time": lambda place, scale: together.round_trips(place.url, scale),
    "STARTS": lambda place, scale: asyncio.run(contract.starts_by_client(place.url, scale)),
    "STARTS by rows": lambda place, scale: asyncio.run(contract.starts_by_rows(place.url, scale)),
    "EXTERNAL": lambda place, scale: asyncio.run(contract.round_trips(place.url, scale)),
    "EXPIRY": lambda place, scale: asyncio.run(
        expiry.measure(
            place.url,
            expiry.owned_instances(scale),
            ("-m", "benchmarks.postgres", "--role", "janitor", "--url", place.url),
        )
    ),
    "RETENTION": lambda place, scale: asyncio.run(retention.retention(place.url, scale)),
    "OPEN": lambda place, _scale: opening.opening(place.url),
    "CLAIM few": lambda place, _scale: asyncio.run(claim_pages(place, finished=1_000, waiting=100)),
    "CLAIM many": lambda place, scale: asyncio.run(
        claim_pages(place, finished=max(2_000, int(1_000_000 * scale)), waiting=max(200, int(100_000 * scale)))
    ),
}


def _engines(place: Place, count: int, scale: float) -> Sample:
    return together.engines(place.url, count, scale, lambda: processor_seconds_of(place.server))


def _apart(place: Place, workers: int, scale: float) -> Sample:
    return together.apart(place.url, workers, scale, lambda: processor_seconds_of(place.server))


def _more(name: str) -> Figure:
    return lambda found: found["CLAIM many"][name] - found["CLAIM few"][name]


BENCHES: Final = (
    Bench(
        "TURN",
        ("ONE TURN",),
        5,
        (
            Target("a commit of one turn over a bare insert, p50", "x", of("ONE TURN", "of_insert"), 2.5),
            Target("a commit of one turn, p50", "ms", of("ONE TURN", "turn_p50_ms")),
            Target("a bare autocommitted insert, p50", "ms", of("ONE TURN", "insert_p50_ms")),
        ),
    ),
    Bench(
        "B1",
        ("B1", "B1 bare", "B1 DBOS"),
        5,
        (
            Target("steps/s over DBOS", "x", in_pairs(("B1", "steps_per_s"), ("B1 DBOS", "steps_per_s")), 35, True),
            Target(
                "steps/s of the bare limit by sets",
                "x",
                in_pairs(("B1", "steps_per_s"), ("B1 bare", "steps_per_s")),
                0.5,
                True,
            ),
            Target("processor per step of the database", "us", of("B1", "server_us_per_step"), 75),
            Target("processor per step of the engine", "us", of("B1", "cpu_us_per_step")),
            Target("steps", "/s", of("B1", "steps_per_s")),
            Target("steps of the bare limit", "/s", of("B1 bare", "steps_per_s")),
            Target("steps of DBOS", "/s", of("B1 DBOS", "steps_per_s")),
            Target("commits per step", "", of("B1", "commits_per_step"), 0.1),
        ),
    ),
    Bench(
        "B2",
        ("B2", "B2 DBOS"),
        3,
        (
            Target("p50 over that of DBOS", "x", in_pairs(("B2", "p50_ms"), ("B2 DBOS", "p50_ms")), 0.3),
            Target("p50", "ms", of("B2", "p50_ms")),
            Target("p99", "ms", of("B2", "p99_ms")),
            Target("p50 of DBOS", "ms", of("B2 DBOS", "p50_ms")),
        ),
    ),
    Bench(
        "B4",
        ("B4", "B4 DBOS"),
        3,
        (
            Target("steps/s over DBOS", "x", in_pairs(("B4", "steps_per_s"), ("B4 DBOS", "steps_per_s")), 4, True),
            Target("steps", "/s", of("B4", "steps_per_s")),
            Target("steps of DBOS", "/s", of("B4 DBOS", "steps_per_s")),
        ),
    ),
    Bench(
        "WAKE",
        ("WAKE", "WAKE bare", "WAKE by a start"),
        5,
        (
            Target(
                "p50 there and back, over a bare NOTIFY", "x", ratio(("WAKE", "p50_ms"), ("WAKE bare", "p50_ms")), 3
            ),
            Target("p50", "ms", of("WAKE", "p50_ms")),
            Target("p50 of a bare NOTIFY there and back", "ms", of("WAKE bare", "p50_ms")),
            Target("p50 from a start to another process, with its commit", "ms", of("WAKE by a start", "p50_ms")),
        ),
    ),
    Bench(
        "WORKERS",
        ("ONE WORKER", "TWO WORKERS"),
        3,
        (
            Target(
                "two over one, 20 ms of processor per body",
                "x",
                ratio(("TWO WORKERS", "bodies_per_s"), ("ONE WORKER", "bodies_per_s")),
                1.3,
                True,
            ),
            Target("bodies with two", "/s", of("TWO WORKERS", "bodies_per_s")),
        ),
    ),
    engines_bench(two_runs=1.6, four_runs=None, two_cpu=1.15, four_cpu=1.4),
    Bench(
        "APART",
        ("B1", "APART 1", "APART 2", "APART 4", "APART one at a time"),
        3,
        (
            Target(
                "B1 from a client apart from one worker, over one engine",
                "x",
                in_pairs(("APART 1", "steps_per_s"), ("B1", "steps_per_s")),
                0.3,
                True,
            ),
            Target(
                "two workers over one", "x", in_pairs(("APART 2", "steps_per_s"), ("APART 1", "steps_per_s")), 1.0, True
            ),
            Target(
                "processor time per step, two workers over one",
                "x",
                in_pairs(("APART 2", "cpu_us_per_step"), ("APART 1", "cpu_us_per_step")),
                1.15,
            ),
            Target("steps with one worker", "/s", of("APART 1", "steps_per_s")),
            Target("with two", "/s", of("APART 2", "steps_per_s")),
            Target("with four", "/s", of("APART 4", "steps_per_s")),
            Target("cores used with one worker", "", of("APART 1", "cores")),
            Target("with two", "", of("APART 2", "cores")),
            Target("with four", "", of("APART 4", "cores")),
            Target("reads of the client per run", "", of("APART 1", "client_reads_per_run")),
            Target("start to result, one at a time, p50", "ms", of("APART one at a time", "p50_ms")),
            Target("the same, p99; 35 before wake-ups were routed", "ms", of("APART one at a time", "p99_ms"), 35),
        ),
    ),
    Bench(
        "EXPIRY",
        ("EXPIRY",),
        3,
        (
            Target("longest gap of others, of the whole", "x", of("EXPIRY", "longest_share"), 0.1),
            Target("100,000 instances of a dead worker", "s", of("EXPIRY", "seconds")),
            Target("longest gap of others", "ms", of("EXPIRY", "longest_ms")),
            Target("a commit of others, p50", "ms", of("EXPIRY", "p50_ms")),
            Target("over a calm one", "x", ratio(("EXPIRY", "p50_ms"), ("EXPIRY", "calm_p50_ms"))),
        ),
    ),
    Bench(
        "CONTRACT",
        ("STARTS", "STARTS by rows", "EXTERNAL"),
        3,
        (
            Target(
                "starts by rows over client.start, until they have ended",
                "x",
                ratio(("STARTS by rows", "starts_per_s"), ("STARTS", "starts_per_s")),
                0.5,
                True,
            ),
            Target("starts by rows", "/s", of("STARTS by rows", "starts_per_s")),
            Target("external activity: QUEUED, RUNNING, COMPLETED by rows, p50", "ms", of("EXTERNAL", "p50_ms"), 20),
            Target("the same, p99", "ms", of("EXTERNAL", "p99_ms")),
        ),
    ),
    retention_bench(),
    Bench(
        "OPEN",
        ("OPEN",),
        3,
        (
            Target("CPU of a process that opens an engine", "ms", of("OPEN", "cpu_ms"), 350.0),
            Target("the same, with a new schema", "ms", of("OPEN", "new_cpu_ms")),
        ),
    ),
    Bench(
        "CLAIM",
        ("CLAIM few", "CLAIM many"),
        1,
        (
            Target("more pages, instance", "", _more("instance_pages"), 4),
            Target("more pages, attempt", "", _more("attempt_pages"), 4),
            Target("pages of one among many, instance", "", of("CLAIM many", "instance_pages")),
            Target("pages of one among many, attempt", "", of("CLAIM many", "attempt_pages")),
        ),
    ),
)


def main() -> int:
    """Run what was asked for; 1 if a target was missed."""
    options = _options()
    if options.role:
        ROLES[options.role](options.url)
        return 0
    if options.sample:
        print(json.dumps(MEASURES[options.sample](Place(options.url, options.schema), options.scale)))
        return 0
    chosen = [bench for bench in BENCHES if not options.workload or bench.name in options.workload]
    with bench_server() as url:
        begun = targets.started({"PostgreSQL": server_version(url)})
        missed = run_benches(
            chosen,
            lambda name: _in_fresh_process(url, name, options.scale),
            rounds=options.rounds,
            scale=options.scale,
            out=Path(options.out),
            record=partial(targets.record, targets.POSTGRES, begun) if options.record else None,
        )
    draw_apart(Path(options.out))
    return missed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres", description=__doc__)
    names = [bench.name for bench in BENCHES]
    parser.add_argument("--workload", action="append", choices=names, help="only this one; may be given several times")
    parser.add_argument("--rounds", type=int, default=5, help="at most so many rounds of each (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="the size of the workloads (default 1.0)")
    parser.add_argument("--out", default="build/bench-postgres", help="where the figures and the plot go")
    parser.add_argument("--record", action="store_true", help="also keep the figures and write docs/performance.md")
    parser.add_argument("--sample", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--schema", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record and (options.workload or options.scale != 1):
        parser.error("--record keeps a whole run only: without --workload and --scale")
    return options


def _in_fresh_process(url: str, name: str, scale: float) -> Sample:
    """Each sample has a schema of its own, which is dropped after it."""
    place = Place(url, f"holdfast_bench_{os.getpid()}_{time.time_ns()}")
    words = ["--sample", name, "--scale", str(scale), "--url", url, "--schema", place.schema]
    try:
        done = subprocess.run(  # noqa: S603 - this very program
            [sys.executable, "-m", "benchmarks.postgres", *words],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=LONGEST_SECONDS,
        )
    finally:
        place.drop()
    sample: Sample = json.loads(done.stdout.splitlines()[-1])
    return sample


if __name__ == "__main__":
    sys.exit(main())
