"""``python -m benchmarks.peers.sample ENGINE WORKLOAD STORE FOLDER SCALE`` prints the figures of one run as JSON.

Runs in the interpreter that has the engine.
"""

import asyncio
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Final

from benchmarks.peers import crash
from benchmarks.peers.workloads import LOG_VARIABLE, WORKLOADS, Peer, Sample

CRASH: Final = "B7"
LOGGED: Final = ("B4", CRASH)
"""Workloads whose bodies write to a log."""
CRASHING_PROCESS: Final = "crashing"


def load(engine: str, store: str, folder: Path) -> Peer:
    """The engine of this name."""
    made: Peer = importlib.import_module(f"benchmarks.peers.engines.{engine}").Engine(store, folder)
    return made


async def _measure(peer: Peer, workload: str, scale: float) -> Sample:
    await peer.open()
    sample = await WORKLOADS[workload](peer, scale)
    await peer.close()
    return sample


async def _crashing(peer: Peer, scale: float) -> None:
    await peer.open()
    await crash.run_until_done(peer, peer.folder / "accepted", scale)


def main(words: list[str]) -> None:
    """Run one workload."""
    engine, workload, store, place, scale_text = words
    folder, scale = Path(place), float(scale_text)
    log = folder / "bodies.log"
    if workload in LOGGED:
        os.environ[LOG_VARIABLE] = str(log)  # every process of the engine inherits it
    peer = load(engine, store, folder)
    if workload == CRASHING_PROCESS:
        asyncio.run(_crashing(peer, scale))
        os._exit(0)  # the time of an orderly shutdown is not measured
    if workload != CRASH:
        sample = asyncio.run(_measure(peer, workload, scale))
    elif peer.kills_worker_only:
        sample = asyncio.run(crash.kill_worker(peer, log, scale))
    else:
        command = [sys.executable, "-m", "benchmarks.peers.sample", engine, CRASHING_PROCESS, store, place, scale_text]
        sample = crash.kill_process(command, log, scale)
    print(json.dumps(sample), flush=True)
    os._exit(0)  # threads of an engine that do not end do not matter


if __name__ == "__main__":
    main(sys.argv[1:])
