"""A worker with code that harms it, whose words are ``STORE LEASE JUDGE LIMIT_MS [hang]``.

It says its key, runs until a line comes on its standard input, and says the key that it has then.
"""

import asyncio
import os
import sys
import threading
from typing import Any

from tests.crash.worker import say
from tests.support.inside import key_of, worker_of
from tests.workers.deadly import deadly, innocent, step

import holdfast as hf
from holdfast.runtime.platform import Platform

HANGS = "HOLDFAST_TEST_HANGS"
HANG_SECONDS = 3.0


@hf.workflow
async def hanging() -> str:
    """Hangs in a call of C that nothing can interrupt, where it is told to."""
    if HANGS in os.environ:
        threading.Event().wait(HANG_SECONDS)
        return "came back"
    return "elsewhere"


WORKFLOWS: list[hf.Workflow[..., Any]] = [deadly, hanging, innocent]


async def serve(store: str, lease: str, judge: str, limit: str, *hang: str) -> None:
    if hang:
        os.environ[HANGS] = "1"
    world = Platform(detect_local_deaths=judge == "judge", turn_limit_ms=int(limit))
    async with hf.Engine(store, workflows=WORKFLOWS, activities=[step], lease=float(lease), _platform=world) as engine:
        say(key_of(worker_of(engine)))
        await asyncio.to_thread(sys.stdin.readline)
        say(key_of(worker_of(engine)))


def main() -> None:
    asyncio.run(serve(*sys.argv[1:]))
