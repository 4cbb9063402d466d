"""A worker dies that owned very much (W6): what others feel while its work is moved on, a batch at a time."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.measure import Sample, percentile
from holdfast.client.client import Client, connect
from holdfast.client.engine import Engine
from holdfast.core.activity_options import ActivityOptions, encode_options
from holdfast.core.history import ActivityScheduled, HistoryEvent, Payload, Started, encode_event, encode_events
from holdfast.core.leases import Heartbeat, WorkerKey
from holdfast.core.lifecycle import AttemptState
from holdfast.storage.contract import Store
from holdfast.storage.members.instances import Start
from holdfast.storage.members.turns import Turn
from holdfast.storage.members.workers import Registration
from holdfast.storage.records import CommitId, Fence, InstanceId, InstanceNumber, NewAttempt

STORE: Final = "engine.db"
DEAD: Final = WorkerKey("dead")
GROUP: Final = 500
RUNNING: Final = 1_000
"""Of its instances so many had an activity that ran."""
RUNNING_LEDGER: Final = 889_000_000_000_000
CALM_COMMITS: Final = 300
LEASE_MS: Final = 1_000
LONGEST_SECONDS: Final = 180.0


def expiry(folder: Path, scale: float) -> Sample:
    """Others commit one start after the other; the longest gap while a janitor moves everything on."""
    janitor = ("-m", "benchmarks", "--child", "janitor", "--folder", str(folder))
    return asyncio.run(measure(folder / STORE, owned_instances(scale), janitor))


def owned_instances(scale: float) -> int:
    """How many instances the dead worker had."""
    return max(2_000, int(100_000 * scale))


async def measure(store: str | Path, count: int, command: Sequence[str]) -> Sample:
    """The same on any store; the command starts a process of Python that runs `run_janitor` on it."""
    async with await connect(store) as client:
        await _make(client._session.store, count)
        calm = [await _one(client, f"calm {number}") for number in range(CALM_COMMITS)]
        janitor = await _janitor(command)
        gaps: list[float] = []
        done = asyncio.ensure_future(janitor.communicate())
        before = last = time.perf_counter()
        while not done.done():
            await _one(client, f"meanwhile {len(gaps)}")
            now = time.perf_counter()
            gaps.append(now - last)
            last = now
        seconds = float((await done)[0].split()[-1])
        left = [load for load in await client._session.store.worker_loads() if load.key == DEAD]
    if left or janitor.returncode:
        raise AssertionError(f"not everything was moved on: {left}, after {last - before:.1f} s")
    return {
        "seconds": seconds,
        "instances_per_s": count / seconds,
        "longest_ms": max(gaps) * 1000,
        "longest_share": max(gaps) / seconds,
        "p50_ms": percentile(gaps, 50) * 1000,
        "calm_p50_ms": percentile(calm, 50) * 1000,
        "commits": len(gaps),
    }


async def _one(client: Client, name: str) -> float:
    before = time.perf_counter()
    await client.start("nobody has this", id=name)
    return time.perf_counter() - before


# ---------------------------------------------------------------- the janitor


async def _janitor(command: Sequence[str]) -> asyncio.subprocess.Process:
    """A process that finds the dead worker and reassigns its work; it prints a line when it begins."""
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=subprocess.PIPE)
    if process.stdout is None or not await asyncio.wait_for(process.stdout.readline(), LONGEST_SECONDS):
        raise AssertionError("the janitor did not begin")
    return process


async def run_janitor(folder: Path, scale: float) -> None:
    """The program of that process: the seconds that it took."""
    del scale
    await clear_up(folder / STORE)


async def clear_up(store: str | Path) -> None:
    """The same on any store."""
    print("begins", flush=True)
    before = time.perf_counter()
    async with Engine(store):  # an engine looks for dead workers when it starts
        print(time.perf_counter() - before)


# ---------------------------------------------------------------- what it had


async def _make(store: Store, count: int) -> None:
    registration = Registration(host=b"{}", queues="[]", build="")
    store.heartbeat(Heartbeat(DEAD, None, LEASE_MS), registration)
    for first in range(0, count, GROUP):
        numbers = range(first, min(first + GROUP, count))
        starts = [_start(number, runs=number < RUNNING) for number in numbers]
        await store.commit(CommitId(first + 1), starts)
    until = time.perf_counter() + LONGEST_SECONDS
    while (await store.workers())[0].deadline_ms > store.now_ms():
        if time.perf_counter() > until:
            raise TimeoutError("its lease never ends")
        await asyncio.sleep(LEASE_MS / 1000)


def _start(number: int, *, runs: bool) -> Start:
    nothing = Payload(msgspec.Raw(b"{}"))
    started = Started(time_ms=0, workflow="sleeper", version="", seed=1, input=nothing)
    events: list[HistoryEvent] = [started]
    if runs:
        events.append(ActivityScheduled(activity=0, name="step"))
    turn = Turn(
        number=InstanceNumber(0),
        execution=1,
        owner=DEAD,
        fence=Fence(1),
        turn=0,
        stamp_ms=0,
        events=encode_events(events),
        attempts=(_attempt(),) if runs else (),
    )
    return Start(
        id=InstanceId(f"owned {number}"),
        workflow="sleeper",
        version="",
        input=b"{}",
        input_hash=b"{}",
        started=encode_event(started),
        first=turn,
    )


def _attempt() -> NewAttempt:
    return NewAttempt(
        activity=0,
        attempt=1,
        name="step",
        queue="default",
        state=AttemptState.RUNNING,
        ledger=RUNNING_LEDGER,
        input=b"{}",
        options=encode_options(ActivityOptions()),
        available_at_ms=0,
        scheduled_at_ms=0,
        owner=DEAD,
    )
