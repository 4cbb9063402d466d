"""``holdfast bench``: the speed of a store with Holdfast, beside the bare limit of the same store.

The measurement uses a scratch store beside the given one (`holdfast.testing.scratch_stores`), so no data of the given
store is read or changed. Each figure is measured in several rounds, in which all figures take turns, because the speed
of a shared machine or server changes from one second to the next.
"""

import asyncio
import os
import shutil
import signal
import statistics
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import click

from holdfast.authoring.activity import activity
from holdfast.authoring.workflow import workflow
from holdfast.cli.console import Column, json_text, print_items, print_message, safe
from holdfast.cli.store_option import store_path
from holdfast.client.engine import Engine
from holdfast.compose import display_name
from holdfast.core.deadlines import MILLISECONDS
from holdfast.errors import UsageError
from holdfast.runtime.platform import ClockAndIds, SystemClockAndIds
from holdfast.testing.scratch_stores import ScratchStore, scratch_store

LEAST_SECONDS: Final = 1.0
MOST_SECONDS: Final = 600.0
ROUNDS: Final = 3
IN_FLIGHT: Final = 50
STEPS: Final = 5
ROW_STEPS: Final = 20
"""Steps of one workflow in a row."""
TOGETHER: Final = 100
"""Rows of one transaction."""
COMMITS_OF_ONE_STEP: Final = 2
"""A workflow of one step is one commit for its start and one for its result."""
SHARES: Final = {"ping": 1, "insert": 1, "rows": 1, "one step": 2, "in a row": 2, "in flight": 3}
"""The parts of a round, by what they measure."""
PERCENT: Final = 100


class Row(NamedTuple):
    """One figure: a value for each round, and how it is read."""

    name: str
    text: str
    unit: str
    values: list[float]
    over: str = ""
    """The figure over the bare limit, in words."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@activity(name="holdfast_bench_step")
async def bench_step(number: int) -> int:
    """The trivial body."""
    return number + 1


@workflow(name="holdfast_bench")
async def bench_steps(steps: int) -> int:
    """Steps in a row."""
    number = 0
    for _ in range(steps):
        number = await bench_step(number)
    return number


def bench(*, seconds: float = 15.0, store: str | None = None, as_json: bool = False) -> None:
    """Measure the speed of a store in a scratch store beside it."""
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise UsageError(f"--seconds is from {LEAST_SECONDS:g} to {MOST_SECONDS:g}, not {seconds:g}")
    path = store_path(store)
    clock = SystemClockAndIds()
    with _terminated_like_interrupted(), scratch_store(path, clock) as scratch:
        _announce(path, scratch, seconds)
        with _Progress() as progress:
            found = _Measurement(scratch, clock, seconds, progress).run()
    rows = _rows(found, is_remote=scratch.is_remote)
    if as_json:
        click.echo(json_text(_report(path, seconds, rows)))
    else:
        print_items(rows, COLUMNS, _fields, as_json=False, empty="")


def _announce(path: Path | str, scratch: ScratchStore, seconds: float) -> None:
    name = safe(display_name(path))
    where = f"the schema {scratch.place}" if scratch.is_remote else f"the folder {safe(scratch.place)}"
    print_message(
        f"measures for about {seconds:g} s beside {name}, in {where}, which is removed at the end; other programs on "
        f"this {'server' if scratch.is_remote else 'disk'} are slower meanwhile"
    )
    if scratch.left_over:
        print_message(
            f"earlier measurements that were killed have left data: {'  '.join(map(safe, scratch.left_over))}"
        )


@contextmanager
def _terminated_like_interrupted() -> Generator[None]:
    """SIGTERM ends the measurement as Ctrl-C does, so that the scratch store is removed."""

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Progress:
    """A line on the terminal, erased at the end; nothing without a terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def show(self, text: str) -> None:
        if self._is_shown:
            columns = shutil.get_terminal_size().columns
            click.echo(f"\r{text[: max(0, columns - 1)]}\x1b[K", nl=False, err=True)


class _Measurement:
    """The values of all figures, one for each round."""

    def __init__(self, scratch: ScratchStore, clock: ClockAndIds, seconds: float, progress: _Progress) -> None:
        self._scratch = scratch
        self._clock = clock
        self._progress = progress
        shares = sum(SHARES.values()) - (0 if scratch.is_remote else SHARES["ping"])
        self._share_ms = seconds * MILLISECONDS / ROUNDS / shares
        self._runs = 0
        self.values: dict[str, list[float]] = {}

    def run(self) -> dict[str, list[float]]:
        for number in range(ROUNDS):
            self._round = f"round {number + 1} of {ROUNDS}"
            self._bare()
            asyncio.run(self._engine())
        return self.values

    def _add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def _limit_ms(self, part: str, text: str) -> float:
        self._progress.show(f"{self._round}: {text}")
        return self._share_ms * SHARES[part]

    def _bare(self) -> None:
        bare = self._scratch.bare
        if self._scratch.is_remote:
            self._add("ping_ms", statistics.median(self._repeat(bare.ping, self._limit_ms("ping", "round trips"))))
        took = self._repeat(lambda: bare.insert(1), self._limit_ms("insert", "bare commits"))
        self._add("insert_ms", statistics.median(took))
        self._add("inserts_per_s", len(took) / sum(took) * MILLISECONDS)
        took = self._repeat(lambda: bare.insert(TOGETHER), self._limit_ms("rows", "bare rows"))
        self._add("rows_per_s", len(took) * TOGETHER / sum(took) * MILLISECONDS)

    def _repeat(self, work: Callable[[], None], limit_ms: float) -> list[float]:
        """The milliseconds of each call, for as long as the limit allows."""
        took: list[float] = []
        begin = self._clock.elapsed_precise_ms()
        now = begin
        while now - begin < limit_ms or not took:
            work()
            before = now
            now = self._clock.elapsed_precise_ms()
            took.append(now - before)
        return took

    async def _engine(self) -> None:
        store = self._scratch.open_store()
        async with Engine(store, workflows=[bench_steps], activities=[bench_step]) as engine:
            await self._one(engine, 1)  # the first run is a warm-up

            limit_ms = self._limit_ms("one step", "workflows of one step")
            took = await self._runs_for(limit_ms, lambda: self._one(engine, 1))
            self._add("one_step_p50_ms", statistics.median(took))
            self._add("one_step_p99_ms", _percentile(took, 99))

            limit_ms = self._limit_ms("in a row", "steps in a row")
            took = await self._runs_for(limit_ms, lambda: self._one(engine, ROW_STEPS))
            self._add("row_steps_per_s", len(took) * ROW_STEPS / sum(took) * MILLISECONDS)

            limit_ms = self._limit_ms("in flight", f"{IN_FLIGHT} workflows in flight")
            await asyncio.gather(*(self._one(engine, STEPS) for _ in range(IN_FLIGHT)))  # a warm-up
            cpu = _processor_ms()
            begin = self._clock.elapsed_precise_ms()
            runs = await asyncio.gather(
                *(self._runs_for(limit_ms, lambda: self._one(engine, STEPS)) for _ in range(IN_FLIGHT))
            )
            elapsed = self._clock.elapsed_precise_ms() - begin
            steps = sum(map(len, runs)) * STEPS
            self._add("steps_per_s", steps / elapsed * MILLISECONDS)
            self._add("cpu_us_per_step", (_processor_ms() - cpu) / steps * MILLISECONDS)

    async def _one(self, engine: Engine, steps: int) -> None:
        self._runs += 1
        await engine.run(bench_steps, steps, id=f"bench-{self._runs}")

    async def _runs_for(self, limit_ms: float, work: Callable[[], Awaitable[None]]) -> list[float]:
        """The milliseconds of each run, for as long as the limit allows."""
        took: list[float] = []
        begin = self._clock.elapsed_precise_ms()
        now = begin
        while now - begin < limit_ms or not took:
            before = self._clock.elapsed_precise_ms()
            await work()
            now = self._clock.elapsed_precise_ms()
            took.append(now - before)
        return took


def _processor_ms() -> float:
    used = os.times()
    return (used.user + used.system) * MILLISECONDS


def _percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[round(percent / PERCENT * (len(ordered) - 1))]


# ---------------------------------------------------------------- output


def _rows(found: dict[str, list[float]], *, is_remote: bool) -> list[Row]:
    def ratio(over: str, under: str, times: int = 1) -> float:
        return statistics.median(
            above / (times * below) for above, below in zip(found[over], found[under], strict=True)
        )

    over_two = f"{ratio('one_step_p50_ms', 'insert_ms', COMMITS_OF_ONE_STEP):.2g} x two bare commits"
    rows = [
        Row("insert_ms", "bare insert and commit, p50", "ms", found["insert_ms"]),
        Row("inserts_per_s", "bare inserts, one in a commit", "/s", found["inserts_per_s"]),
        Row("rows_per_s", f"bare inserts, {TOGETHER} in a commit", "/s", found["rows_per_s"]),
        Row("one_step_p50_ms", "workflow of one step, p50", "ms", found["one_step_p50_ms"], over_two),
        Row("one_step_p99_ms", "workflow of one step, p99", "ms", found["one_step_p99_ms"]),
        Row(
            "row_steps_per_s",
            "steps in a row, one workflow",
            "/s",
            found["row_steps_per_s"],
            f"{ratio('row_steps_per_s', 'inserts_per_s'):.2g} x bare commits",
        ),
        Row(
            "steps_per_s",
            f"steps, {IN_FLIGHT} workflows in flight",
            "/s",
            found["steps_per_s"],
            f"{ratio('steps_per_s', 'inserts_per_s'):.2g} x bare commits",
        ),
        Row("cpu_us_per_step", "processor time of the worker, per step", "us", found["cpu_us_per_step"]),
    ]
    if is_remote:
        rows.insert(0, Row("ping_ms", "round trip to the server, p50", "ms", found["ping_ms"]))
    return rows


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= PERCENT else f"{value:.3g}"


COLUMNS: Final[tuple[Column[Row], ...]] = (
    Column("figure", lambda row: row.text),
    Column("median", lambda row: _number(row.median), "bold", is_right=True),
    Column("unit", lambda row: row.unit),
    Column("least..most", lambda row: f"{_number(min(row.values))}..{_number(max(row.values))}"),
    Column("over the bare limit", lambda row: row.over),
)


def _fields(row: Row) -> dict[str, Any]:
    return {"figure": row.text, "unit": row.unit, "median": row.median, "rounds": row.values}


def _report(path: Path | str, seconds: float, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "store": display_name(path),
        "seconds": seconds,
        "figures": {row.name: _fields(row) for row in rows},
    }
