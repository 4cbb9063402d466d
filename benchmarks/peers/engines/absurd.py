"""absurd on PostgreSQL: a worker with 50 threads and asynchronous clients in one process, with default time-outs."""

import asyncio
import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.workloads import (
    BODY_SECONDS,
    CRASHING,
    FAN_OUT,
    IN_FLIGHT,
    SEQUENCE,
    SLEEPER,
    WAITER,
    Peer,
    body,
    note,
)

absurd: Any = importlib.import_module("absurd_sdk")  # not installed beside Holdfast
QUEUE: Final = "peers"
CLIENTS: Final = 8
"""Connections of the client."""
COMPLETED: Final = "completed"
READY_SECONDS: Final = 0.7


def _slow_body(instance: str, number: int) -> int:
    note("S", instance, number)
    time.sleep(BODY_SECONDS)
    note("E", instance, number)
    return number + 1


def _steps(given: Any, context: Any, run: Callable[[str, int], int]) -> int:
    number = 0
    for at in range(given["size"]):
        number = context.step(f"step-{at}", lambda at=number: run(given["instance"], at))
    return number


def _fan_out(given: Any, context: Any) -> int:
    """There are no parallel steps in the SDK, so threads inside of the task call its steps."""

    def one(at: int) -> Any:
        return context.step(f"step-{at}", lambda: body(given["instance"], at))

    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        return len(list(threads.map(one, range(given["size"]))))


def _sleep(given: Any, context: Any) -> int:
    context.sleep_for("timer", given["size"])
    return int(given["size"])


TASKS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    SEQUENCE: lambda given, context: _steps(given, context, body),
    CRASHING: lambda given, context: _steps(given, context, _slow_body),
    FAN_OUT: _fan_out,
    SLEEPER: _sleep,
    WAITER: lambda given, context: context.await_event(f"go-{given['instance']}"),
}


class Engine(Peer):
    """absurd."""

    async def open(self) -> None:
        self._tasks: dict[str, str] = {}
        self._calls = 0
        self._prepare()
        threading.Thread(target=self._work, daemon=True).start()
        self._clients: list[Any] = [absurd.AsyncAbsurd(self.store, queue_name=QUEUE) for _ in range(CLIENTS)]
        for client in self._clients:
            await client._ensure_connected()
        await asyncio.sleep(READY_SECONDS)

    def _prepare(self) -> None:
        """Create the schema and the queue, unless an earlier process did."""
        mark = self.folder / "absurd-ready"
        if not mark.exists():
            program = str(Path(sys.executable).with_name("absurdctl"))
            for words in (["init"], ["create-queue", QUEUE]):
                command = [program, words[0], "-d", self.store, *words[1:]]
                subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - the program of the package
            mark.touch()

    def _work(self) -> None:
        worker: Any = absurd.Absurd(self.store, queue_name=QUEUE)
        for name, task in TASKS.items():
            worker.register_task(name)(task)
        worker.start_worker(concurrency=IN_FLIGHT)

    async def close(self) -> None:
        """The process ends after the sample."""

    def _client(self) -> Any:
        self._calls += 1
        return self._clients[self._calls % CLIENTS]

    async def start(self, kind: str, instance: str, size: int) -> None:
        given = {"instance": instance, "size": size}
        spawned = await self._client().spawn(kind, given, queue=QUEUE, idempotency_key=instance)
        self._tasks[instance] = spawned["task_id"]

    async def result(self, instance: str) -> Any:
        if instance not in self._tasks:  # of an earlier process: a spawn with the same key finds it
            await self.start(CRASHING, instance, 0)
        found = await self._client().await_task_result(self._tasks[instance])
        if found.state != COMPLETED:
            raise AssertionError(f"{instance} is {found.state}")
        return found.result

    async def raise_event(self, instance: str, value: int) -> None:
        await self._client().emit_event(f"go-{instance}", value, queue_name=QUEUE)
