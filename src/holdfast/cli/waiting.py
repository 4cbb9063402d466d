"""Waiting for the answer of a worker: after a moment without one, standard error says why none comes."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import click

from holdfast.cli.texts import safe
from holdfast.client.client import Client
from holdfast.client.obstacles import read_silence
from holdfast.storage.contract import InstanceId

QUIET_SECONDS: Final = 1.0
"""How long a command waits before it looks for a worker that can answer, and between two looks."""


async def answer_of(client: Client, instance_id: str, asked: Coroutine[Any, Any, Any]) -> Any:
    """The answer. While no live worker can give it, the reason is printed once, and the wait continues."""
    answering = asyncio.ensure_future(asked)
    try:
        reasons: list[str] = []
        while not reasons:
            await asyncio.wait({answering}, timeout=QUIET_SECONDS)
            if answering.done():
                break
            reasons = await read_silence(client.store, InstanceId(instance_id))
        for reason in reasons:
            click.echo(f"holdfast: still waiting: {safe(reason)}", err=True)
        return await answering
    finally:
        answering.cancel()
