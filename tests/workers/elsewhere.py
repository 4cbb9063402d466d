"""A program that knows other workflows than `app`, and shares its queues."""

import os

from tests.workers.app import note

import holdfast as hf


@hf.activity
async def far_away(name: str) -> int:
    note("far_away", name, os.getpid())
    return os.getpid()


@hf.workflow
async def travels(name: str) -> int:
    return await far_away(name)
