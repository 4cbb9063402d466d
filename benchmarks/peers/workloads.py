"""The workloads B1 to B6 for any engine, and the interface that an engine implements for them."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

Sample = dict[str, float]
"""The figures of one run of one workload, by name."""

IN_FLIGHT: Final = 50
STEPS: Final = 5
WARM_UP: Final = 5
EVENT_VALUE: Final = 7
SETTLE_SECONDS: Final = 2.0
"""Before the events of B5, so that every workflow waits."""
BODY_SECONDS: Final = 0.05
LOG_VARIABLE: Final = "HOLDFAST_PEERS_LOG"
"""Names the file to which bodies write a line when they begin (S) and end (E), for B4 and B7."""

SEQUENCE, FAN_OUT, WAITER, SLEEPER, CRASHING = KINDS = ("sequence", "fan_out", "waiter", "sleeper", "crashing")
"""The workflows: `size` steps in a row, `size` parallel steps, a wait for one event, a timer of `size` seconds, and
`size` steps in a row of 50 ms each."""


class Peer:
    """An engine with a worker and a client. Its workflows are the `KINDS`; the result is the number of steps, the value
    of the event, or the seconds of the timer.
    """

    kills_worker_only = False
    """Whether B7 kills a worker process apart from this one, by `kill_worker` and `start_worker`."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store = store
        self.folder = folder

    async def open(self) -> None:
        """Open the store and start the worker. A store that has workflows continues with them."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop the worker."""
        raise NotImplementedError

    async def start(self, kind: str, instance: str, size: int) -> None:
        """Start a workflow, durably."""
        raise NotImplementedError

    async def result(self, instance: str) -> Any:
        """The result of a workflow, also of one that was started before a restart."""
        raise NotImplementedError

    async def run(self, kind: str, instance: str, size: int) -> Any:
        """Start a workflow and wait for its result, in the shortest way that the engine has."""
        await self.start(kind, instance, size)
        return await self.result(instance)

    async def raise_event(self, instance: str, value: int) -> None:
        """Send the event that a `WAITER` waits for."""
        raise NotImplementedError

    def start_worker(self) -> None:
        """Start the worker process again."""
        raise NotImplementedError

    def kill_worker(self) -> None:
        """End the worker process by SIGKILL."""
        raise NotImplementedError


def note(kind: str, instance: str, number: int) -> None:
    """Write one line to the log of bodies, if there is one, without a buffer."""
    path = os.environ.get(LOG_VARIABLE)
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, f"{time.time():.6f} {kind} {instance} {number}\n".encode())
        finally:
            os.close(descriptor)


def body(instance: str, number: int) -> int:
    """The trivial body."""
    note("S", instance, number)
    return number + 1


async def slow_body(instance: str, number: int) -> int:
    """The body of the crash."""
    note("S", instance, number)
    await asyncio.sleep(BODY_SECONDS)
    note("E", instance, number)
    return number + 1


async def gather_bounded(work: Callable[[int], Awaitable[object]], count: int, *, first: int = 0) -> None:
    """Call `work` with `count` numbers from `first` on, with at most 50 calls at a time."""
    numbers = iter(range(first, first + count))

    async def place() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(place() for _ in range(min(IN_FLIGHT, count))))


def _expect(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"the result is {found!r} instead of {expected!r}")


def scaled(count: int, scale: float, least: int) -> int:
    """The size of a workload."""
    return max(least, int(count * scale))


async def b1(peer: Peer, scale: float) -> Sample:
    """Throughput: workflows of five steps, 50 in flight."""
    count = scaled(500, scale, IN_FLIGHT)

    async def one(number: int) -> None:
        _expect(await peer.run(SEQUENCE, f"b1-{number}", STEPS), STEPS)

    await gather_bounded(one, WARM_UP, first=count)
    before = time.perf_counter()
    await gather_bounded(one, count)
    return {"steps_per_s": count * STEPS / (time.perf_counter() - before)}


async def b2(peer: Peer, scale: float) -> Sample:
    """Latency: one workflow of one step at a time."""
    took_ms: list[float] = []
    for number in range(scaled(200, scale, 10) + WARM_UP):
        before = time.perf_counter()
        _expect(await peer.run(SEQUENCE, f"b2-{number}", 1), 1)
        took_ms.append((time.perf_counter() - before) * 1000)
    ordered = sorted(took_ms[WARM_UP:])
    return {"p50_ms": ordered[len(ordered) // 2], "p99_ms": ordered[round(0.99 * (len(ordered) - 1))]}


async def b3(peer: Peer, scale: float) -> Sample:
    """Fan-out: one workflow with many steps at the same time."""
    steps = scaled(500, scale, 10)
    await peer.run(SEQUENCE, "warm-up", 1)
    before = time.perf_counter()
    _expect(await peer.run(FAN_OUT, "b3", steps), steps)
    return {"seconds": time.perf_counter() - before}


async def b4(peer: Peer, scale: float) -> Sample:
    """Long history: one workflow with many steps in a row. `growth` is the last tenth against the first."""
    steps = scaled(1_000, scale, 100)
    await peer.run(SEQUENCE, "warm-up", 1)
    before = time.perf_counter()
    _expect(await peer.run(SEQUENCE, "b4", steps), steps)
    seconds = time.perf_counter() - before
    times = _begin_times("b4")
    tenth = steps // 10
    return {
        "steps_per_s": steps / seconds,
        "growth": (times[-1] - times[-1 - tenth]) / (times[tenth] - times[0]),
    }


def _begin_times(instance: str) -> list[float]:
    """When the bodies of an instance began."""
    log = Path(os.environ[LOG_VARIABLE]).read_text(encoding="ascii")
    return [float(line.split()[0]) for line in log.splitlines() if f" {instance} " in line]


async def b5(peer: Peer, scale: float) -> Sample:
    """Events: workflows that wait for one event each, then all events raised, 50 at a time."""
    count = scaled(200, scale, 20)
    await gather_bounded(lambda number: peer.start(WAITER, f"b5-{number}", 0), count)
    await asyncio.sleep(SETTLE_SECONDS)
    before = time.perf_counter()
    results, _ = await asyncio.gather(
        asyncio.gather(*(peer.result(f"b5-{number}") for number in range(count)), return_exceptions=True),
        gather_bounded(lambda number: peer.raise_event(f"b5-{number}", EVENT_VALUE), count),
    )
    failed = sum(result != EVENT_VALUE for result in results)
    return {"events_per_s": (count - failed) / (time.perf_counter() - before), "failed": failed, "count": count}


async def b6(peer: Peer, scale: float) -> Sample:
    """Timers: sleepers of one second, started together."""
    count = scaled(1_000, scale, 20)
    before = time.perf_counter()
    await gather_bounded(lambda number: peer.start(SLEEPER, f"b6-{number}", 1), count)
    results = await asyncio.gather(*(peer.result(f"b6-{number}") for number in range(count)), return_exceptions=True)
    seconds = time.perf_counter() - before
    return {"seconds": seconds, "failed": sum(result != 1 for result in results), "count": count}


WORKLOADS: Final[dict[str, Callable[[Peer, float], Awaitable[Sample]]]] = {
    "B1": b1,
    "B2": b2,
    "B3": b3,
    "B4": b4,
    "B5": b5,
    "B6": b6,
}
