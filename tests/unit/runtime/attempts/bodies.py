"""Activities whose bodies run in processes of their own, well-behaved and not."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import holdfast as hf

once = hf.Retry(attempts=1)


@hf.activity(process=True)
def where_am_i() -> int:
    return os.getpid()


@hf.activity(process=True)
def double(values: list[int]) -> list[int]:
    return [2 * value for value in values]


@hf.activity(process=True, retry=hf.Retry(attempts=2, initial=0.01))
def remembers() -> dict[str, Any]:
    """The first attempt says how far it came and dies; the second is told."""
    info = hf.activity_info()
    if info.attempt == 1:
        hf.heartbeat({"done": 41})
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    return {"details": info.details, "attempt": info.attempt, "key": hf.idempotency_key()}


@hf.activity(process=True, retry=once)
def refuses() -> None:
    raise LookupError("nothing here")


@hf.activity(process=True, retry=once)
def exits() -> None:
    sys.exit(3)


@hf.activity(process=True, retry=once)
def dies() -> None:
    os._exit(7)


@hf.activity(process=True, retry=hf.Retry(attempts=2, initial=3600, maximum=3600))
def gives_what_cannot_be_stored() -> Any:
    """A second attempt would begin after an hour: a result that cannot be stored has none."""
    return object()


@hf.activity(process=True, retry=once, start_to_close=0.3)
def never_ends() -> None:
    while True:
        pass


@hf.activity(process=True)
def which_attempt() -> int:
    return hf.activity_info().attempt


@hf.activity(process=True, retry=once)
def goes_on_until_cancelled(path: str) -> None:
    """Says in a file what it learned, and by what."""
    file = Path(path)
    file.write_text(f"{hf.activity_info().is_cancelled}", encoding="utf-8")
    while not hf.activity_info().is_cancelled:
        time.sleep(0.005)
    try:
        hf.heartbeat("still here")
    except hf.Cancelled as cancelled:
        file.write_text(str(cancelled), encoding="utf-8")
        raise


@hf.activity(process=True, retry=once)
def does_not_listen(path: str) -> None:
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    while True:
        time.sleep(0.01)


@hf.workflow
async def give_up(name: str, path: str) -> str:
    """Waits for a body until its file is there."""
    bodies = {body.name: body for body in (goes_on_until_cancelled, does_not_listen)}
    waiting = asyncio.create_task(bodies[name](path))
    await hf.event("enough", str)
    waiting.cancel()
    return "gave up"


@hf.workflow
async def call(name: str) -> str:
    bodies = {body.name: body for body in (refuses, exits, dies, gives_what_cannot_be_stored, never_ends)}
    try:
        await bodies[name]()
    except Exception as error:  # noqa: BLE001 - the test looks at whatever comes
        return f"{type(error).__name__}: {error}"
    return "came back"


@hf.workflow
async def work() -> dict[str, Any]:
    return {"pids": [await where_am_i(), await where_am_i()], "doubled": await double([1, 2]), **(await remembers())}
