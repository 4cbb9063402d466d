"""DBOS on SQLite or PostgreSQL: a library with client and worker in one process; asynchronous workflows and steps."""

import asyncio
import importlib
import logging
import sys
from typing import Any, Final

from benchmarks.peers.workloads import CRASHING, FAN_OUT, SEQUENCE, SLEEPER, WAITER, Peer, body, slow_body

OLDEST_SQLITE: Final = (3, 42)
"""DBOS 3.3 needs it; an older one of the interpreter is replaced by that of the package pysqlite3-binary."""
TOPIC: Final = "go"
LONGEST_WAIT_SECONDS: Final = 300


def _use_newer_sqlite() -> None:
    if importlib.import_module("sqlite3").sqlite_version_info < OLDEST_SQLITE:
        newer = importlib.import_module("pysqlite3")
        sys.modules["sqlite3"] = newer
        sys.modules["sqlite3.dbapi2"] = importlib.import_module("pysqlite3.dbapi2")


_use_newer_sqlite()
dbos: Any = importlib.import_module("dbos")  # not installed beside Holdfast, so nothing is known of its types
DBOS: Any = dbos.DBOS


@DBOS.step()  # type: ignore[untyped-decorator]
async def step(instance: str, number: int) -> int:
    """The trivial body."""
    return body(instance, number)


@DBOS.step()  # type: ignore[untyped-decorator]
async def slow_step(instance: str, number: int) -> int:
    """The body of the crash."""
    return await slow_body(instance, number)


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def sequence(instance: str, size: int) -> int:
    """Steps one after the other."""
    number = 0
    for _ in range(size):
        number = await step(instance, number)
    return number


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def crashing(instance: str, size: int) -> int:
    """Slow steps one after the other."""
    number = 0
    for _ in range(size):
        number = await slow_step(instance, number)
    return number


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def fan_out(instance: str, size: int) -> int:
    """Steps at the same time."""
    return len(await asyncio.gather(*(step(instance, number) for number in range(size))))


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def sleeper(_instance: str, size: int) -> int:
    """A timer."""
    await DBOS.sleep_async(size)
    return size


@DBOS.workflow()  # type: ignore[untyped-decorator]
async def waiter(_instance: str, _size: int) -> Any:
    """Waits for one message."""
    return await DBOS.recv_async(TOPIC, timeout_seconds=LONGEST_WAIT_SECONDS)


WORKFLOWS: Final[dict[str, Any]] = {
    SEQUENCE: sequence,
    CRASHING: crashing,
    FAN_OUT: fan_out,
    SLEEPER: sleeper,
    WAITER: waiter,
}


class Engine(Peer):
    """DBOS."""

    async def open(self) -> None:
        logging.disable(logging.WARNING)
        self._handles: dict[str, Any] = {}
        url = self.store if "://" in self.store else f"sqlite:///{self.store}"
        DBOS(config={"name": "peer", "system_database_url": url, "log_level": "ERROR", "application_version": "1"})
        DBOS.launch()

    async def close(self) -> None:
        DBOS.destroy()

    async def start(self, kind: str, instance: str, size: int) -> None:
        with dbos.SetWorkflowID(instance):
            self._handles[instance] = await DBOS.start_workflow_async(WORKFLOWS[kind], instance, size)

    async def result(self, instance: str) -> Any:
        handle = self._handles.pop(instance, None) or await DBOS.retrieve_workflow_async(instance)
        return await handle.get_result()

    async def run(self, kind: str, instance: str, size: int) -> Any:
        with dbos.SetWorkflowID(instance):
            return await WORKFLOWS[kind](instance, size)

    async def raise_event(self, instance: str, value: int) -> None:
        await DBOS.send_async(instance, value, TOPIC)
