"""The bare limit: the rows that the engine writes, written by a loop that does nothing else.

The same tables, statements, guards and durability (WAL, ``synchronous=FULL``) as the store has, and the same rows:
every history event, input and result is that of its step (a test compares them). No event loop, no workflow code, no
types, no lock between processes, no reads. There are two ways of writing a group, because the way matters as much as
the disk: row by row, as a group of unlike members is applied, and each kind of statement for all members at once
(``executemany``). The ratios of the report name the one they stand on.
"""

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from benchmarks.measure import Sample, percentile, processor_seconds
from benchmarks.programs import sequence, step
from holdfast.core.history import (
    ActivityCompleted,
    ActivityScheduled,
    ExecutionCompleted,
    HistoryEvent,
    Payload,
    Started,
    encode_events,
)
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.payloads.signature import input_hash
from holdfast.storage.sqlite.connection import migrate, open_writer, statements

sql = statements()

OWNER: Final = "0123456789abcdef"
RUNNING_LEDGER: Final = 889_000_000_000_000
APPLIED_LEDGER: Final = 888_000_001_000_001
FENCE: Final = 1
CHECKPOINT_PAGES: Final = 1_000
WARM_UP: Final = 50


class Flight(NamedTuple):
    """An instance on its way: its number and the turn it is at."""

    number: int
    turn: int


class BareLoop:
    """Writes groups. `batched`: every kind of statement once for all members of the group."""

    def __init__(self, path: Path, *, batched: bool) -> None:
        opened = open_writer(path, durability="full")
        migrate(opened, path)
        opened.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self._connection: Any = opened  # the library's own type, whose annotations are partly unknown
        self._cursor: Any = opened.cursor()
        self._write: Callable[[str, Sequence[tuple[Any, ...]]], None] = self._many if batched else self._singly
        self._now_ms = 0
        self._commits = 0
        self._ids = 0

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def group(self) -> Generator[None]:
        """One transaction with what the store writes in each: the clock's mark and the commit's id."""
        self._now_ms = time.time_ns() // 1_000_000
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cursor.execute(sql.advance_clock, (self._now_ms,)).fetchall()
        yield
        self._commits += 1
        self._cursor.execute(sql.insert_commit, (self._commits, self._now_ms))
        self._cursor.execute("COMMIT")

    def _singly(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        execute, changes = self._cursor.execute, self._connection.changes
        for row in rows:
            execute(statement, row)
            if changes() != 1:
                raise AssertionError(statement)

    def _many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        before = self._connection.total_changes()
        self._cursor.executemany(statement, rows)
        if self._connection.total_changes() - before != len(rows):
            raise AssertionError(statement)

    def start(self, count: int, *, steps: int, activities: int = 1) -> list[Flight]:
        """New instances with their first turns: instance, history and the first attempts."""
        now = self._now_ms
        numbers: list[int] = []
        histories: list[tuple[Any, ...]] = []
        for _ in range(count):
            self._ids += 1
            given = b'{"steps":%d}' % steps
            row = (f"bare-{self._ids}", sequence.name, "", "RUNNING", 1, FENCE, OWNER, None, now, given)
            [[number]] = self._cursor.execute(sql.start_instance, (*row, input_hash(given), now, None, None)).fetchall()
            numbers.append(number)
            started = Started(
                time_ms=now,
                workflow=sequence.name,
                version="",
                seed=2**52 + number,
                input=Payload(msgspec.Raw(given)),
                payload_limit=PAYLOAD_LIMIT_BYTES,
            )
            calls = [ActivityScheduled(activity=activity, name=step.name) for activity in range(activities)]
            histories.append((number, 1, 0, encode_events([started, *calls])))
        self._write(sql.append_history, histories)
        self._open_attempts([(number, activity) for number in numbers for activity in range(activities)])
        return [Flight(number, 1) for number in numbers]

    def _open_attempts(self, keys: Sequence[tuple[int, int]]) -> None:
        now = self._now_ms
        head = (1, step.name, "default", "RUNNING", RUNNING_LEDGER, OWNER)
        tail = (step.encoded_options, now, now, now, None, 0, 0, None)
        self._write(
            sql.insert_attempt,
            [(number, 1, activity, *head, b'{"number":%d}' % activity, *tail) for number, activity in keys],
        )

    def _close_attempts(self, keys: Sequence[tuple[int, int]]) -> None:
        after = ("COMPLETED", APPLIED_LEDGER, None, self._now_ms)
        before = (OWNER, "RUNNING", RUNNING_LEDGER, None)
        self._write(sql.move_attempt, [(*after, number, 1, activity, "", 1, *before) for number, activity in keys])

    def _advance(self, flights: Sequence[Flight], *, activities: int = 1, is_last: bool = False) -> None:
        now = self._now_ms
        self._write(sql.commit_turn, [(turn + 1, now, number, FENCE, OWNER, turn) for number, turn in flights])
        histories: list[tuple[Any, ...]] = []
        for number, turn in flights:
            ended = turn - 1 + activities
            events: list[HistoryEvent] = [
                ActivityCompleted(time_ms=now, activity=activity, result=Payload(msgspec.Raw(b"%d" % (activity + 1))))
                for activity in range(turn - 1, ended)
            ]
            if is_last:
                events.append(ExecutionCompleted(result=Payload(msgspec.Raw(b"%d" % ended))))
            else:
                events.append(ActivityScheduled(activity=turn, name=step.name))
            histories.append((number, 1, turn, encode_events(events)))
        self._write(sql.append_history, histories)

    def go_on(self, flights: Sequence[Flight]) -> list[Flight]:
        """A turn in the middle: the attempt before is closed, the next one opens."""
        self._close_attempts([(number, turn - 1) for number, turn in flights])
        self._advance(flights)
        self._open_attempts([(number, turn) for number, turn in flights])
        return [Flight(number, turn + 1) for number, turn in flights]

    def finish(self, flights: Sequence[Flight], *, activities: int = 1) -> None:
        """The last turn: the last attempts are closed, and the instance."""
        last = [(number, turn - 1 + extra) for number, turn in flights for extra in range(activities)]
        self._close_attempts(last)
        self._advance(flights, activities=activities, is_last=True)
        now = self._now_ms
        self._write(
            sql.close_instance,
            [("COMPLETED", b'{"data":%d}' % (turn - 1 + activities), now, number) for number, turn in flights],
        )


def throughput(folder: Path, *, instances: int, steps: int, in_flight: int, batched: bool) -> Sample:
    """B1, and B4 with one in flight: so many instances of so many steps."""
    loop = BareLoop(folder / "bare.db", batched=batched)
    drive(loop, min(WARM_UP, instances), min(steps, 5), in_flight)
    cpu, before = processor_seconds(), time.perf_counter()
    drive(loop, instances, steps, in_flight)
    seconds = time.perf_counter() - before
    per_step_us = (processor_seconds() - cpu) / (instances * steps) * 1e6
    loop.close()
    return {"steps_per_s": instances * steps / seconds, "seconds": seconds, "cpu_us_per_step": per_step_us}


def drive(loop: BareLoop, instances: int, steps: int, in_flight: int) -> None:
    """Write instances of so many steps each, so many of them at a time."""
    left = instances
    flights: list[Flight] = []
    while left or flights:
        due = [flight for flight in flights if flight.turn >= steps]
        rest = [flight for flight in flights if flight.turn < steps]
        new = min(left, in_flight - len(flights))
        left -= new
        with loop.group():
            if due:
                loop.finish(due)
            moved = loop.go_on(rest) if rest else []
            begun = loop.start(new, steps=steps) if new else []
        flights = moved + begun


def latency(folder: Path, *, runs: int) -> Sample:
    """B2: two commits, one after the other: the instance with its step, and the step's result with the end."""
    loop = BareLoop(folder / "bare.db", batched=False)
    took_ms: list[float] = []
    for _ in range(runs):
        before = time.perf_counter()
        with loop.group():
            flights = loop.start(1, steps=1)
        with loop.group():
            loop.finish(flights)
        took_ms.append((time.perf_counter() - before) * 1000)
    loop.close()
    return {"p50_ms": percentile(took_ms, 50), "p99_ms": percentile(took_ms, 99)}


def disk(folder: Path, *, writes: int) -> Sample:
    """What one page takes to the disk: ratios to the bare limit mean more on a disk that is fast."""
    took_ms: list[float] = []
    descriptor = os.open(folder / "page", os.O_WRONLY | os.O_CREAT, 0o600)
    for number in range(writes):
        before = time.perf_counter()
        os.pwrite(descriptor, b"x" * 4096, number * 4096)
        os.fdatasync(descriptor)
        took_ms.append((time.perf_counter() - before) * 1000)
    os.close(descriptor)
    return {"p50_ms": percentile(took_ms, 50)}


def fan_out(folder: Path, *, steps: int) -> Sample:
    """B3: all attempts in one commit, all their results in another."""
    loop = BareLoop(folder / "bare.db", batched=True)
    before = time.perf_counter()
    with loop.group():
        flights = loop.start(1, steps=steps, activities=steps)
    with loop.group():
        loop.finish(flights, activities=steps)
    seconds = time.perf_counter() - before
    loop.close()
    return {"seconds": seconds, "steps_per_s": steps / seconds}
