"""A worker process for the crash tests, whose words are ``STORE BODIES LEASE JUDGE [PREFIX COUNT]``.

It runs the workflows of `tests.crash.apps` until a line comes on its standard input. With a prefix and a count it first
starts so many instances, and says "done" when they have all finished.
"""

import asyncio
import os
import sys

from tests.crash.apps import ACTIVITIES, WORKFLOWS
from tests.crash.program import BODIES
from tests.support.inside import key_of, worker_of

import holdfast as hf
from holdfast.runtime.platform import Platform


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def start_and_wait(engine: hf.Engine, prefix: str, count: int) -> None:
    names = list(WORKFLOWS)
    handles = [await engine.start(names[n % len(names)], id=f"{prefix}-{n}") for n in range(count)]
    for handle in handles:
        await handle.result()
    say("done")


async def serve(store: str, bodies: str, lease: str, judge: str, *work: str) -> None:
    os.environ[BODIES] = bodies
    engine = hf.Engine(
        store,
        workflows=list(WORKFLOWS.values()),
        activities=ACTIVITIES,
        lease=float(lease),
        _platform=Platform(detect_local_deaths=judge == "judge"),
    )
    async with engine:
        say(f"key {key_of(worker_of(engine))}")
        if work:
            await start_and_wait(engine, work[0], int(work[1]))
        await asyncio.to_thread(sys.stdin.readline)
        say(f"key {key_of(worker_of(engine))}")


def main() -> None:
    asyncio.run(serve(*sys.argv[1:]))
