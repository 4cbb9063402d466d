"""What a crash costs (B7, B8): processes that are killed by SIGKILL and started again."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.measure import Sample, gather_bounded
from benchmarks.programs import LOG_VARIABLE, logged_sequence, sequence_then_sleep
from benchmarks.workloads import STARTS_AT_ONCE, STEPS, open_engine
from holdfast.core.history import HistoryEvent, decode_events
from holdfast.core.run import ExecutionId
from holdfast.replay.guard import Guard
from holdfast.replay.run import WorkflowRun
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.storage.sqlite.connection import open_reader
from holdfast.storage.sqlite.store import SqliteStore

KILL_AT: Final = 0.4
POLL_SECONDS: Final = 0.01
LONGEST_SECONDS: Final = 120.0
STORE: Final = "engine.db"


class Log(NamedTuple):
    """What the bodies wrote: when each began and ended, by instance and step."""

    begun: Counter[tuple[str, str]]
    ended: Counter[tuple[str, str]]
    times: list[float]


def read_log(path: Path) -> Log:
    """Everything that bodies have written so far."""
    log = Log(Counter(), Counter(), [])
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    for line in lines:
        time_text, kind, instance, number = line.split()
        (log.begun if kind == "S" else log.ended)[instance, number] += 1
        log.times.append(float(time_text))
    return log


# ---------------------------------------------------------------- B7


async def run_crashing(folder: Path, scale: float) -> None:
    """The process that is killed, and the one that comes after it: the same program."""
    count = crashing_instances(scale)
    async with open_engine(folder / STORE) as engine:
        await gather_bounded(
            lambda number: engine.run(logged_sequence, f"b7-{number}", STEPS, id=f"b7-{number}"), count, count
        )


def crashing_instances(scale: float) -> int:
    """How many workflows the crash meets."""
    return max(10, int(200 * scale))


def b7(folder: Path, scale: float) -> Sample:
    """Kill at 40 % of the steps, start again: first step, end, and which bodies ran more than once."""
    log_path = folder / "steps.log"
    total = crashing_instances(scale) * STEPS
    with _child("crashing", folder, scale, log_path) as child:
        _wait_until(lambda: sum(read_log(log_path).ended.values()) >= KILL_AT * total or child.poll() is not None)
        child.send_signal(signal.SIGKILL)
        child.wait()
    killed = time.time()
    before = read_log(log_path)
    in_flight = _running_attempts(folder / STORE)
    with _child("crashing", folder, scale, log_path) as child:
        child.wait(LONGEST_SECONDS)
    finished = time.time()
    after = read_log(log_path)
    later = after.times[len(before.times) :]
    again = {key for key, times in after.begun.items() if times > 1}
    return {
        "first_step_seconds": min(later) - killed,
        "seconds": finished - killed,
        "bodies_in_flight": len(in_flight),
        "bodies_run_twice": len(again),
        "bodies_run_twice_beyond": len(again - in_flight),
        "steps_missing": total - len(after.ended),
        "exit_code": child.returncode,
    }


def _running_attempts(path: Path) -> set[tuple[str, str]]:
    """The attempts that the store had as RUNNING at the kill: their bodies are in flight, or not recorded."""
    reader = open_reader(path)
    rows = reader.execute(
        "SELECT id, activity FROM attempts JOIN instances USING (number) WHERE attempts.state = 'RUNNING'"
    ).fetchall()
    reader.close()
    return {(str(instance), str(activity)) for instance, activity in rows}


# ---------------------------------------------------------------- B8: open instances


async def run_open_instances(folder: Path, scale: float) -> None:
    """Start instances that stay open, and wait for the kill."""
    count = open_instances(scale)
    async with open_engine(folder / STORE, durability="relaxed", cache_size=count) as engine:  # it owns them all
        await gather_bounded(
            lambda number: engine.start(sequence_then_sleep, 1, id=f"b8-{number}"), count, STARTS_AT_ONCE
        )
        await _until_timers(folder / STORE, count)
        (folder / "ready").touch()
        await asyncio.sleep(LONGEST_SECONDS)


def open_instances(scale: float) -> int:
    """How many instances are open when the worker dies."""
    return max(100, int(10_000 * scale))


async def _until_timers(path: Path, count: int) -> None:
    while _count(path, "SELECT count(*) FROM timers") < count:  # noqa: ASYNC110 - asks the disk
        await asyncio.sleep(0.05)


def b8_recover(folder: Path, scale: float) -> Sample:
    """Kill a worker with many open instances; until a new one has looked at every one of them."""
    with _child("open", folder, scale, folder / "none.log") as child:
        _wait_until(lambda: (folder / "ready").exists() or child.poll() is not None)
        child.send_signal(signal.SIGKILL)
        child.wait()
    return asyncio.run(_recover(folder / STORE, open_instances(scale)))


async def _recover(path: Path, count: int) -> Sample:
    before = time.perf_counter()
    async with open_engine(path) as engine:
        opened = time.perf_counter()
        worker = engine._local.running
        key = worker.lease.key if worker is not None else ""
        unseen = f"SELECT count(*) FROM instances WHERE claimable_at_ms = 0 OR (owner IS NOT NULL AND owner <> '{key}')"
        while _count(path, unseen):
            if time.perf_counter() - before > LONGEST_SECONDS:
                raise TimeoutError(f"{_count(path, unseen)} of {count} instances were never recovered")
            await asyncio.sleep(0.02)
        done = time.perf_counter()
    return {"seconds": done - before, "open_seconds": opened - before, "instances_per_s": count / (done - before)}


def _count(path: Path, statement: str) -> int:
    reader = open_reader(path)
    rows = reader.execute(statement).fetchall()
    reader.close()
    return int(str(rows[0][0]))


# ---------------------------------------------------------------- B8: replay


async def b8_replay(folder: Path, scale: float) -> Sample:
    """Rebuild one instance from its history: read it, decode it, run the code through it."""
    steps = max(100, int(10_000 * scale))
    path = folder / STORE
    async with open_engine(path, durability="relaxed") as engine:
        handle = await engine.start(sequence_then_sleep, steps, id="b8")
        await _until_timers(path, 1)
        number = await engine._session.store.find_instance(handle.id)  # type: ignore[arg-type]  # an id it gave itself
    if number is None:
        raise AssertionError(handle.id)
    store = SqliteStore(path, clock=SystemClockAndIds().now_ms)
    await store.open()
    try:
        before = time.perf_counter()
        loaded = await store.load(number.number, 1)
        read = time.perf_counter()
        history: list[HistoryEvent] = []
        for row in loaded.history:
            history += decode_events(row.events)
        run = _new_run(loaded.payloads)
        run.replay(history)
        seconds = time.perf_counter() - before
        run.evict()
    finally:
        await store.close()
    return {"events_per_s": len(history) / seconds, "seconds": seconds, "load_seconds": read - before}


def _new_run(payloads: dict[str, bytes]) -> WorkflowRun:
    guard = Guard()
    identity = ExecutionId("b8", sequence_then_sleep.name, 1)
    return WorkflowRun(sequence_then_sleep, identity, lambda _: None, guard.turn, payloads)


# ---------------------------------------------------------------- processes


def _child(program: str, folder: Path, scale: float, log: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "benchmarks", "--child", program, "--folder", str(folder), "--scale", str(scale)]
    environment: dict[str, Any] = {**os.environ, LOG_VARIABLE: str(log)}
    return subprocess.Popen(command, env=environment)  # noqa: S603 - this very program


def _wait_until(condition: Any) -> None:
    until = time.perf_counter() + LONGEST_SECONDS
    while not condition():
        if time.perf_counter() > until:
            raise TimeoutError("the process under test did not get so far")
        time.sleep(POLL_SECONDS)
