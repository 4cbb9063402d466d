"""The workloads of the engine (B1-B4, B6, idle, sleepers), each in a fresh process with a fresh store."""

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Sample, gather_bounded, percentile, processor_seconds, resident_megabytes
from benchmarks.programs import (
    ACTIVITIES,
    AN_HOUR,
    WORKFLOWS,
    fan_out,
    sequence,
    sleeper,
    step_times,
    timed_sequence,
)
from holdfast import Engine

IN_FLIGHT: Final = 50
STEPS: Final = 5
WARM_UP: Final = 10
TENTH: Final = 10
SETTLE_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 5.0
STARTS_AT_ONCE: Final = 500
TIMER_SECONDS: Final = 1.0


def open_engine(store: Path | str, **options: Any) -> Engine:
    """An engine with all workflows and activities of the benchmarks."""
    return Engine(store, workflows=WORKFLOWS, activities=ACTIVITIES, **options)


def groups_of(engine: Engine) -> int:
    """How many groups were committed so far; 0 for a source tree that does not count them."""
    worker = getattr(getattr(engine, "_local", engine), "worker", None)
    return getattr(getattr(worker, "committer", None), "groups", 0)


async def b1(store: Path | str, scale: float, server_seconds: Callable[[], float] = float) -> Sample:
    """Throughput: workflows of five steps, 50 in flight. `server_seconds`: the processor time of the database."""
    count = max(IN_FLIGHT, int(500 * scale))
    async with open_engine(store) as engine:

        async def one(number: int) -> None:
            if await engine.run(sequence, STEPS, id=f"b1-{number}") != STEPS:
                raise AssertionError(number)

        await gather_bounded(one, IN_FLIGHT, IN_FLIGHT, first=count)
        groups, cpu, server, before = groups_of(engine), processor_seconds(), server_seconds(), time.perf_counter()
        await gather_bounded(one, count, IN_FLIGHT)
        seconds = time.perf_counter() - before
        steps = count * STEPS
        return {
            "steps_per_s": steps / seconds,
            "seconds": seconds,
            "cpu_us_per_step": (processor_seconds() - cpu) / steps * 1e6,
            "server_us_per_step": (server_seconds() - server) / steps * 1e6,
            "commits_per_step": (groups_of(engine) - groups) / steps,
        }


async def b2(store: Path | str, scale: float) -> Sample:
    """Latency: one workflow of one step at a time."""
    took_ms: list[float] = []
    async with open_engine(store) as engine:
        cpu = 0.0
        for number in range(max(20, int(200 * scale)) + WARM_UP):
            if number == WARM_UP:
                cpu = processor_seconds()
            before = time.perf_counter()
            await engine.run(sequence, 1, id=f"b2-{number}")
            took_ms.append((time.perf_counter() - before) * 1000)
        cpu = processor_seconds() - cpu
    measured = took_ms[WARM_UP:]
    return {
        "p50_ms": percentile(measured, 50),
        "p99_ms": percentile(measured, 99),
        "cpu_us_per_step": cpu / len(measured) * 1e6,
    }


async def b3(folder: Path, scale: float) -> Sample:
    """Fan-out: one workflow with many steps at the same time."""
    steps = max(10, int(500 * scale))
    async with open_engine(folder / "engine.db") as engine:
        await engine.run(sequence, 1, id="warm-up")
        before = time.perf_counter()
        if await engine.run(fan_out, steps, id="b3") != steps:
            raise AssertionError(steps)
        seconds = time.perf_counter() - before
    return {"seconds": seconds, "steps_per_s": steps / seconds}


async def b4(store: Path | str, scale: float) -> Sample:
    """Long history: one workflow with many steps in a row. `growth` is the last tenth against the first."""
    steps = max(100, int(1_000 * scale))
    async with open_engine(store) as engine:
        await engine.run(timed_sequence, STEPS, id="warm-up")
        step_times.clear()
        cpu = processor_seconds()
        before = time.perf_counter()
        await engine.run(timed_sequence, steps, id="b4")
        seconds = time.perf_counter() - before
        cpu = processor_seconds() - cpu
    tenth = steps // TENTH
    gaps = [after - earlier for earlier, after in pairwise(step_times)]
    return {
        "steps_per_s": steps / seconds,
        "cpu_us_per_step": cpu / steps * 1e6,
        "growth": percentile(gaps[-tenth:], 50) / percentile(gaps[:tenth], 50),
        "growth_of_means": sum(gaps[-tenth:]) / sum(gaps[:tenth]),
    }


async def b6(folder: Path, scale: float) -> Sample:
    """Timers: sleepers of one second, started together."""
    count = max(10, int(1_000 * scale))
    async with open_engine(folder / "engine.db") as engine:
        before = time.perf_counter()
        handles = await gather_bounded(
            lambda number: engine.start(sleeper, TIMER_SECONDS, id=f"b6-{number}"), count, IN_FLIGHT
        )
        started = time.perf_counter()
        await asyncio.gather(*(handle.result() for handle in handles))
        done = time.perf_counter()
    return {"seconds_after_last_start": done - started, "seconds": done - before, "start_seconds": started - before}


async def idle(folder: Path, scale: float) -> Sample:
    """The cost of an idle engine, after some work."""
    del scale
    async with open_engine(folder / "engine.db") as engine:
        await gather_bounded(lambda number: engine.run(sequence, STEPS, id=f"idle-{number}"), 100, IN_FLIGHT)
        await asyncio.sleep(SETTLE_SECONDS)
        cpu, before = processor_seconds(), time.perf_counter()
        await asyncio.sleep(IDLE_SECONDS)
        used = (processor_seconds() - cpu) / (time.perf_counter() - before)
        return {"cpu_percent": used * 100, "resident_mb": resident_megabytes()}


async def sleepers(folder: Path, scale: float) -> Sample:
    """Many sleeping instances in one store: memory and processor time of the worker."""
    count = max(1_000, int(100_000 * scale))
    async with open_engine(folder / "engine.db", durability="relaxed") as engine:
        before = time.perf_counter()
        await gather_bounded(
            lambda number: engine.start(sleeper, AN_HOUR, id=f"sleeper-{number}"), count, STARTS_AT_ONCE
        )
        started = time.perf_counter()
        await asyncio.sleep(SETTLE_SECONDS)
        memory, cpu, settled = resident_megabytes(), processor_seconds(), time.perf_counter()
        await asyncio.sleep(IDLE_SECONDS)
        used = (processor_seconds() - cpu) / (time.perf_counter() - settled)
        before_one = time.perf_counter()
        await engine.run(sequence, 1, id="among-sleepers")
        return {
            "resident_mb": memory,
            "sleepers": count,
            "starts_per_s": count / (started - before),
            "cpu_percent": used * 100,
            "one_step_ms": (time.perf_counter() - before_one) * 1000,
        }
