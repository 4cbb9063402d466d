"""Many workers on one store; one of them is killed.

    python examples/many_workers.py postgresql://user@host/database
    python examples/many_workers.py    # a temporary SQLite file

This program is the client. It starts three `holdfast worker` processes
on this file and 60 jobs, kills one worker with SIGKILL, and waits. All
jobs finish: what the killed worker had runs again on the others.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import holdfast as hf

WORKERS = 3
JOBS = 60


@hf.activity
async def resize(picture: int, width: int) -> tuple[str, int]:
    await asyncio.sleep(0.05)  # the work
    return f"{picture}-{width}.png", os.getpid()


@hf.workflow
async def publish(picture: int) -> list[tuple[str, int]]:
    """Three sizes of one picture, each with the id of its process."""
    return [
        await resize(picture, 100),
        await resize(picture, 400),
        await resize(picture, 1600),
    ]


def start_worker(store: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "holdfast", "worker", __file__]
    options = ["--store", store, "--lease", "2", "--concurrency", "5"]
    worker = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if worker.stdout is not None:
        worker.stdout.readline()  # its first line: it serves
    return worker


async def run_jobs(store: str, victim: subprocess.Popen[str]) -> None:
    async with hf.connect(store, workflows=[publish]) as client:
        handles = [
            await client.start(publish, number, id=f"picture-{number}")
            for number in range(JOBS)
        ]
        await handles[JOBS // 3].result()
        victim.kill()
        print("one worker killed")
        made: Counter[int] = Counter()
        for handle in handles:
            sizes = await handle.result(timeout=60)
            made.update(pid for _, pid in sizes)
        print(f"{JOBS} jobs done, {made.total()} results")
        for number, (pid, count) in enumerate(sorted(made.items())):
            fate = "killed" if pid == victim.pid else "alive"
            print(f"  worker {number + 1} ({fate}): {count} results")


def main(store: str) -> None:
    workers = [start_worker(store) for _ in range(WORKERS)]
    print(f"{WORKERS} workers serve {JOBS} jobs")
    try:
        asyncio.run(run_jobs(store, workers[0]))
    finally:
        for worker in workers:
            worker.terminate()  # drains
        codes = [worker.wait(timeout=60) for worker in workers[1:]]
        print(f"the others left with exit codes {codes}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(str(Path(folder, "pictures.db")))
