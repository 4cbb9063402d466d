"""The service process of Restate: ``python -m benchmarks.peers.engines.restate_service PORT``."""

import asyncio
import datetime as dt
import importlib
import sys
from typing import Any, Final

from benchmarks.peers.workloads import body, slow_body

restate: Any = importlib.import_module("restate")  # not installed beside Holdfast
service: Any = restate.Service("peer")
waiter: Any = restate.Workflow("waiter")
UNLIMITED: Final = 2**31 - 1
PROMISE: Final = "go"


async def step(instance: str, number: int) -> int:
    """The trivial body."""
    return body(instance, number)


async def _steps(context: Any, given: dict[str, Any], run: Any) -> int:
    number = 0
    for at in range(given["size"]):
        number = await context.run_typed(f"step-{at}", run, instance=given["instance"], number=number)
    return number


@service.handler()  # type: ignore[untyped-decorator]
async def sequence(context: Any, given: dict[str, Any]) -> int:
    """Steps one after the other."""
    return await _steps(context, given, step)


@service.handler()  # type: ignore[untyped-decorator]
async def crashing(context: Any, given: dict[str, Any]) -> int:
    """Slow steps one after the other."""
    return await _steps(context, given, slow_body)


@service.handler()  # type: ignore[untyped-decorator]
async def fan_out(context: Any, given: dict[str, Any]) -> int:
    """Steps at the same time."""
    instance = given["instance"]
    steps = [context.run_typed(f"step-{at}", step, instance=instance, number=at) for at in range(given["size"])]
    await restate.gather(*steps)
    return len(steps)


@service.handler()  # type: ignore[untyped-decorator]
async def sleeper(context: Any, given: dict[str, Any]) -> int:
    """A timer."""
    await context.sleep(dt.timedelta(seconds=given["size"]))
    return int(given["size"])


@waiter.main()  # type: ignore[untyped-decorator]
async def run(context: Any, given: dict[str, Any]) -> int:
    """Waits for one promise."""
    del given
    return int(await context.promise(PROMISE, type_hint=int).value())


@waiter.handler()  # type: ignore[untyped-decorator]
async def go(context: Any, value: int) -> None:
    """Resolves the promise."""
    await context.promise(PROMISE, type_hint=int).resolve(value)


def main(port: str) -> None:
    """Serve until the process ends. Streams and requests of a connection are not limited, as Restate recommends."""
    server: Any = importlib.import_module("hypercorn.asyncio")
    settings: Any = importlib.import_module("hypercorn.config").Config()
    settings.bind = [f"127.0.0.1:{port}"]
    settings.loglevel = "ERROR"
    settings.h2_max_concurrent_streams = UNLIMITED
    settings.keep_alive_max_requests = UNLIMITED
    settings.keep_alive_timeout = UNLIMITED
    asyncio.run(server.serve(restate.app([service, waiter]), settings))


if __name__ == "__main__":
    main(sys.argv[1])
