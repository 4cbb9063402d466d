"""B7 for any engine: the worker is killed at 40 % of the steps and started again."""

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from benchmarks.peers.workloads import CRASHING, STEPS, Peer, Sample, gather_bounded, scaled

KILL_AT: Final = 0.4
GLANCE_SECONDS: Final = 0.02
LONGEST_SECONDS: Final = 100.0
"""Until the kill."""


class Log:
    """The lines that bodies have written so far."""

    def __init__(self, path: Path) -> None:
        self.begun: Counter[tuple[str, str]] = Counter()
        self.ended: Counter[tuple[str, str]] = Counter()
        self.times: list[float] = []
        for line in path.read_text(encoding="ascii").splitlines() if path.exists() else ():
            moment, kind, instance, number = line.split()
            (self.begun if kind == "S" else self.ended)[instance, number] += 1
            self.times.append(float(moment))


def instances(scale: float) -> int:
    """How many workflows the crash meets."""
    return scaled(200, scale, 20)


def _figures(path: Path, before: Log, killed: float, total: int) -> Sample:
    finished = time.time()
    after = Log(path)
    return {
        "seconds": finished - killed,
        "first_step_seconds": after.times[len(before.times)] - killed,
        "bodies_in_flight": sum((before.begun - before.ended).values()),
        "bodies_run_twice": sum(times > 1 for times in after.begun.values()),
        "steps_missing": total - len(after.ended),
    }


def kill_process(command: list[str], log: Path, scale: float) -> Sample:
    """A process with client and worker, which `command` starts, is killed and started again."""
    total = instances(scale) * STEPS
    with subprocess.Popen(command) as child:  # noqa: S603 - this very program
        until = time.perf_counter() + LONGEST_SECONDS
        while sum(Log(log).ended.values()) < KILL_AT * total and child.poll() is None and time.perf_counter() < until:
            time.sleep(GLANCE_SECONDS)
        child.send_signal(signal.SIGKILL)
    killed = time.time()
    before = Log(log)
    subprocess.run(command, check=True)  # noqa: S603 - this very program
    return _figures(log, before, killed, total)


def _names(path: Path) -> set[str]:
    return set(path.read_text(encoding="ascii").split()) if path.exists() else set()


async def run_until_done(peer: Peer, accepted: Path, scale: float) -> None:
    """The process of `kill_process`: start the workflows that no earlier process has started, and wait for all."""
    done = _names(accepted)

    async def start(number: int) -> None:
        name = f"b7-{number}"
        if name not in done:
            await peer.start(CRASHING, name, STEPS)
            with accepted.open("a", encoding="ascii") as file:
                file.write(f"{name}\n")

    await gather_bounded(start, instances(scale))
    results = await asyncio.gather(*(peer.result(f"b7-{number}") for number in range(instances(scale))))
    if set(results) != {STEPS}:
        sys.exit("a workflow has a wrong result")


async def kill_worker(peer: Peer, log: Path, scale: float) -> Sample:
    """The worker process of an engine whose server survives is killed and started again."""
    await peer.open()
    try:
        count = instances(scale)
        total = count * STEPS
        await gather_bounded(lambda number: peer.start(CRASHING, f"b7-{number}", STEPS), count)
        while sum(Log(log).ended.values()) < KILL_AT * total:  # noqa: ASYNC110 - asks the disk
            await asyncio.sleep(GLANCE_SECONDS)
        peer.kill_worker()
        killed = time.time()
        before = Log(log)
        peer.start_worker()
        await asyncio.gather(*(peer.result(f"b7-{number}") for number in range(count)))
        return _figures(log, before, killed, total)
    finally:
        await peer.close()
