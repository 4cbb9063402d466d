"""A worker that is stopped in the middle of a heartbeat, whose words are ``STORE LEASE WHERE``.

Once the gate "stop" is open its process stops in the transaction of its next beat: `before` or `after` the new lease is
written. It leaves on SIGTERM.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.workers import app

import holdfast as hf
from holdfast.core.leases import Heartbeat, HeartbeatReply
from holdfast.runtime.platform import Platform
from holdfast.storage.members.workers import Registration
from holdfast.storage.postgres import writer as beating
from holdfast.storage.relational.apply.workers import apply_worker_heartbeat
from holdfast.storage.relational.transaction import Transaction


class Stopping:
    """Stands for `apply_worker_heartbeat`."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._has_stopped = False

    def __call__(self, transaction: Transaction, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        is_due = not self._has_stopped and (Path(os.environ[app.FOLDER]) / "stop").exists()
        self._has_stopped |= is_due
        if is_due and self._where == "before":
            os.kill(os.getpid(), signal.SIGSTOP)
        reply = apply_worker_heartbeat(transaction, beat, registration)
        if is_due and self._where == "after":
            os.kill(os.getpid(), signal.SIGSTOP)
        app.note("beat", beat.key, type(reply).__name__)
        return reply


async def serve(store: str, lease: str, where: str) -> None:
    setattr(beating, "apply_worker_heartbeat", Stopping(where))  # noqa: B010 - it is not exported
    async with await hf.connect(store, _platform=Platform(detect_local_deaths=False)) as client:
        worker = hf.Worker(client, modules=[app], queues=["nothing"], lease=float(lease))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()


def main() -> None:
    asyncio.run(serve(*sys.argv[1:]))
