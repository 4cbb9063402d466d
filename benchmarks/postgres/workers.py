"""CPU-bound bodies, run by one worker process and by two."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.measure import Sample
from benchmarks.postgres.burning import burn_all
from holdfast.client.client import Client, connect

PROGRAM: Final = Path(__file__).with_name("burning.py")
BODIES_AT_ONCE: Final = 4
GLANCE_SECONDS: Final = 0.02


async def work_of(url: str, *, workers: int, bodies: int) -> Sample:
    """The throughput of `bodies` activities of one workflow with `workers` processes."""
    processes = [_worker(url) for _ in range(workers)]
    try:
        async with await connect(url) as client:
            await _until_there(client, workers)
            await client.run(burn_all, 2 * workers, id="warm-up")
            before = time.perf_counter()
            await client.run(burn_all, bodies, id="measured")
            return {"bodies_per_s": bodies / (time.perf_counter() - before)}
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _worker(url: str) -> "subprocess.Popen[bytes]":
    words = ["worker", str(PROGRAM), "--store", url, "--concurrency", str(BODIES_AT_ONCE)]
    return subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-m", "holdfast", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


async def _until_there(client: Client, workers: int) -> None:
    while len(await client.workers()) < workers:  # noqa: ASYNC110 - there is no notification
        await asyncio.sleep(GLANCE_SECONDS)
