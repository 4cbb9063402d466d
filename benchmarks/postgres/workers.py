"""CPU-bound bodies, run by one worker process and by two; and the plot of a client apart from 1, 2 and 4 workers."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.chart import Bar, bar_chart
from benchmarks.measure import Sample, medians
from benchmarks.postgres.burning import burn_all
from holdfast.client.client import Client, connect

PROGRAM: Final = Path(__file__).with_name("burning.py")
BODIES_AT_ONCE: Final = 4
APART: Final = {"APART 1": "one worker", "APART 2": "two workers", "APART 4": "four workers"}
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


def draw_apart(folder: Path) -> None:
    """Plot the steps of a client apart from its workers over those of one engine, from the figures in a folder."""
    samples: dict[str, list[Sample]] = json.loads((folder / "bench.json").read_text(encoding="utf-8"))["samples"]
    if not samples.keys() >= {"B1", *APART}:
        return
    engine = medians(samples["B1"])["steps_per_s"]
    bars: list[Bar] = [("one engine", 1.0, f"{engine:,.0f} steps/s")]
    for name, label in APART.items():
        found = medians(samples[name])
        figure = f"{found['steps_per_s']:,.0f}, {found['cores']:.1f} cores"
        bars.append((f"client and {label}", found["steps_per_s"] / engine, figure))
    title = "B1 from a client apart from its workers, over one engine (1); steps/s and cores used"
    (folder / "apart.svg").write_text(bar_chart(title, bars), encoding="utf-8")
