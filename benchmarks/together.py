"""Several processes on one store: engines that have only their own work, and a client apart from its workers.

Each process is a program of its own (``python -m benchmarks.together``). It prints a line when it is ready, begins when
a line arrives, and prints its figures at the end.
"""

import asyncio
import inspect
import json
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from benchmarks.measure import Sample, gather_bounded, percentile, processor_seconds
from benchmarks.programs import ACTIVITIES, sequence
from benchmarks.workloads import STEPS, groups_of, open_engine
from holdfast import Engine, Worker, connect
from holdfast.client.client import Client
from holdfast.runtime.duties.claimer import Claimer
from holdfast.runtime.session import StoreSession
from holdfast.storage.wakeups import Wakeup

IN_FLIGHT: Final = 4
SECONDS: Final = 4.0
RUN_STEPS: Final = 2
CLIENT_IN_FLIGHT: Final = 50
RUNS_APART: Final = 1_000
WARM_UP_RUNS: Final = 400
"""Several times what is in flight, so that every worker runs some: one claim takes all that is in flight, and the
first steps of a worker cost more, as its connection to PostgreSQL plans the statements of the group function."""
READY: Final = "ready"
Cpu = Callable[[], float]
"""The processor time of the database so far, in seconds."""


def no_server() -> float:
    """The processor time of a database without a server."""
    return 0.0


class Counter:
    """Counts the reads of a client, each of which is a transaction of its own."""

    def __init__(self, client: Client) -> None:
        self.reads = 0
        self.lookups = 0
        """Reads of the id of a start, which are no polls."""
        store: Any = client._session.store
        for name in dir(store):
            method = getattr(store, name)
            if (
                not name.startswith("_")
                and name not in ("commit", "check_files")
                and inspect.iscoroutinefunction(method)
            ):
                setattr(store, name, self._counted(method, is_lookup=name == "find_instance"))

    def _counted(self, method: Callable[..., Any], *, is_lookup: bool) -> Callable[..., Any]:
        async def call(*given: Any, **named: Any) -> Any:
            self.reads += 1
            self.lookups += is_lookup
            return await method(*given, **named)

        return call


# ---------------------------------------------------------------- engines with work of their own


def engines(store: str, count: int, scale: float, server_cpu: Cpu = no_server) -> Sample:
    """Two-step workflows, four in flight in each of `count` engines, none of which has work for another."""
    children = [_child("engine", store, f"{count}-{place}", scale) for place in range(count)]
    before = server_cpu()
    found = _together(children)
    after = server_cpu()
    _end(children)
    runs = sum(each["runs"] for each in found)
    return {
        "runs_per_s": runs / max(each["seconds"] for each in found),
        "cpu_ms_per_run": (sum(each["cpu"] for each in found) + after - before) / runs * 1000,
        "transactions_per_run": sum(each["groups"] + each["reads"] for each in found) / runs,
        "polls_per_run": sum(each["reads"] - each["lookups"] for each in found) / runs,
        "wakeups_per_run": sum(each["wakeups"] for each in found) / runs,
        "p50_ms": max(each["p50_ms"] for each in found),
    }


async def run_engine(store: str, tag: str, scale: float) -> None:
    """One of the engines."""
    heard = 0
    notified = StoreSession.notified

    def count(session: StoreSession, wakeup: Wakeup) -> None:
        nonlocal heard
        heard += 1
        notified(session, wakeup)

    setattr(StoreSession, "notified", count)  # noqa: B010 - this process is for nothing else
    took_ms: list[float] = []
    async with open_engine(store) as engine:
        await _warm_up(engine, tag)
        counter = Counter(engine)
        print(READY, flush=True)
        await _next_line()
        heard, groups, cpu, begin = 0, groups_of(engine), processor_seconds(), time.perf_counter()

        async def place(number: int) -> None:
            at = 0
            while time.perf_counter() - begin < SECONDS * scale:
                before = time.perf_counter()
                await engine.run(sequence, RUN_STEPS, id=f"{tag}-{number}-{at}")
                took_ms.append((time.perf_counter() - before) * 1000)
                at += 1

        await asyncio.gather(*(place(number) for number in range(IN_FLIGHT)))
        figures = {
            "runs": len(took_ms),
            "seconds": time.perf_counter() - begin,
            "cpu": processor_seconds() - cpu,
            "groups": groups_of(engine) - groups,
            "reads": counter.reads,
            "lookups": counter.lookups,
            "wakeups": heard,
            "p50_ms": percentile(took_ms, 50),
        }
        print(json.dumps(figures), flush=True)
        await _next_line()


async def _warm_up(engine: Engine, tag: str) -> None:
    await gather_bounded(
        lambda number: engine.run(sequence, RUN_STEPS, id=f"{tag}-warm-{number}"), 2 * IN_FLIGHT, IN_FLIGHT
    )


# ---------------------------------------------------------------- a client apart from its workers


def apart(store: str, workers: int, scale: float, server_cpu: Cpu = no_server) -> Sample:
    """B1 from a client without a worker, 50 in flight, with `workers` worker processes."""
    working = [_child("worker", store, f"w{place}", scale) for place in range(workers)]
    client = _child("client", store, f"c{workers}", scale)
    before = _sums(_together(working))
    server = server_cpu()
    [found] = _together([client])
    server = server_cpu() - server
    after = _sums(_together(working))
    cpu, claims, empty = (after[name] - before[name] for name in ("cpu", "claims", "empty_claims"))
    _end([client, *working])
    steps = found["runs"] * STEPS
    return {
        "steps_per_s": steps / found["seconds"],
        "cpu_us_per_step": (cpu + found["cpu"] + server) / steps * 1e6,
        "worker_us_per_step": cpu / steps * 1e6,
        "client_us_per_step": found["cpu"] / steps * 1e6,
        "server_us_per_step": server / steps * 1e6,
        "cores": (cpu + found["cpu"] + server) / found["seconds"],
        "client_reads_per_run": found["reads"] / found["runs"],
        "claims_per_run": claims / found["runs"],
        "empty_claims": empty / max(1, claims),
    }


def _sums(samples: Sequence[Sample]) -> Sample:
    """The figures of several processes together."""
    return {name: sum(each[name] for each in samples) for name in samples[0]}


def round_trips(store: str, scale: float) -> Sample:
    """From the start of a run in one process to its result from another, one run at a time."""
    children = [_child("worker", store, "w", scale), _child("caller", store, "c", scale)]
    [found] = _together(children[1:])
    _end(children)
    return found


async def run_worker(store: str, _tag: str, _scale: float) -> None:
    """A worker process, which prints its processor time and its claims so far for each line that arrives."""
    claims = empty = 0
    claim = Claimer._claim_instances

    async def count(claimer: Claimer, **options: Any) -> bool:
        nonlocal claims, empty
        found = await claim(claimer, **options)
        claims += 1
        empty += not found
        return found

    setattr(Claimer, "_claim_instances", count)  # noqa: B010 - this process is for nothing else
    async with await connect(store) as client, Worker(client, workflows=[sequence], activities=ACTIVITIES):
        print(READY, flush=True)
        while await _next_line():
            print(json.dumps({"cpu": processor_seconds(), "claims": claims, "empty_claims": empty}), flush=True)


async def run_client(store: str, tag: str, scale: float) -> None:
    """The client of `apart`."""
    count = max(CLIENT_IN_FLIGHT, int(RUNS_APART * scale))
    async with await connect(store) as client:

        async def one(number: int) -> None:
            await client.run("sequence", STEPS, id=f"{tag}-{number}")

        await gather_bounded(one, WARM_UP_RUNS, CLIENT_IN_FLIGHT, first=count)
        counter = Counter(client)
        print(READY, flush=True)
        await _next_line()
        cpu, begin = processor_seconds(), time.perf_counter()
        await gather_bounded(one, count, CLIENT_IN_FLIGHT)
        seconds, cpu = time.perf_counter() - begin, processor_seconds() - cpu
        print(json.dumps({"runs": count, "seconds": seconds, "cpu": cpu, "reads": counter.reads}), flush=True)
        await _next_line()


async def run_caller(store: str, tag: str, scale: float) -> None:
    """The client of `round_trips`."""
    took_ms: list[float] = []
    async with await connect(store) as client:
        await client.run("sequence", 1, id=f"{tag}-warm")
        print(READY, flush=True)
        await _next_line()
        for number in range(max(20, int(400 * scale))):
            before = time.perf_counter()
            await client.run("sequence", 1, id=f"{tag}-{number}")
            took_ms.append((time.perf_counter() - before) * 1000)
        print(json.dumps({"p50_ms": percentile(took_ms, 50), "p99_ms": percentile(took_ms, 99)}), flush=True)
        await _next_line()


# ---------------------------------------------------------------- processes

ROLES: Final[dict[str, Callable[[str, str, float], Coroutine[Any, Any, None]]]] = {
    "engine": run_engine,
    "worker": run_worker,
    "client": run_client,
    "caller": run_caller,
}


async def _next_line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


def _child(role: str, store: str, tag: str, scale: float) -> "subprocess.Popen[str]":
    """A process of a role that is ready."""
    process = subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-m", "benchmarks.together", role, store, tag, str(scale)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if _read(process).strip() != READY:
        raise RuntimeError(f"the {role} is not ready")
    return process


def _together(children: "Sequence[subprocess.Popen[str]]") -> list[Sample]:
    """Let the children begin, and wait for their figures."""
    for child in children:
        _write(child)
    return [json.loads(_read(child)) for child in children]


def _write(child: "subprocess.Popen[str]") -> None:
    if child.stdin is not None:
        child.stdin.write("go\n")
        child.stdin.flush()


def _read(child: "subprocess.Popen[str]") -> str:
    line = child.stdout.readline() if child.stdout is not None else ""
    if not line:
        raise RuntimeError("a process of the measurement has ended")
    return line


def _end(children: "Sequence[subprocess.Popen[str]]") -> None:
    for child in children:
        child.communicate()  # the end of its input ends it


def main() -> None:
    """Run one process of a measurement."""
    role, store, tag, scale = sys.argv[1:]
    asyncio.run(ROLES[role](store, tag, float(scale)))


if __name__ == "__main__":
    main()
