"""A process that stops itself inside a commit, with the write lock held; its word is ``STORE``.

It says "stopping" and sends itself SIGSTOP before the COMMIT of the first turn of an instance. Let go on, it finishes
the instance and says "done".
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from tests.crash.apps import ACTIVITIES, WORKFLOWS, sequence
from tests.crash.program import BODIES
from tests.crash.worker import say

import holdfast as hf
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.relational.apply.dispatch import apply_members
from holdfast.storage.relational.transaction import Transaction
from holdfast.storage.sqlite import writer


def apply_and_stop(transaction: Transaction, members: Sequence[Member]) -> list[Outcome]:
    outcomes = apply_members(transaction, members)
    if any(isinstance(member, Start) for member in members):
        say("stopping")
        os.kill(os.getpid(), signal.SIGSTOP)
    return outcomes


async def stop(store: str) -> None:
    os.environ[BODIES] = f"{store}.bodies"
    async with hf.Engine(store, workflows=list(WORKFLOWS.values()), activities=ACTIVITIES) as engine:
        writer.__dict__["apply_members"] = apply_and_stop
        await engine.run(sequence, id="stopped")
    say("done")


def main() -> None:
    asyncio.run(stop(sys.argv[1]))
