"""Workflows whose activities run outside of workers, for the tests of ``holdfast activity``."""

from collections.abc import AsyncIterator

import holdfast as hf

ONCE = hf.Retry(attempts=1)
TWICE = hf.Retry(attempts=2, initial=0.01, jitter=False)


@hf.activity(external=True, queue="gpu", heartbeat=2, retry=TWICE)
async def train(size: int) -> dict[str, int]: ...  # type: ignore[empty-body]


@hf.activity(external=True, queue="gpu", heartbeat=60, retry=TWICE)
async def read(size: int) -> dict[str, int]: ...  # type: ignore[empty-body]


@hf.activity(external=True, queue="gpu", heartbeat=30, claim_timeout=1, retry=ONCE)
async def reserved(size: int) -> str: ...  # type: ignore[empty-body]


@hf.activity(external=True, queue="gpu", start_to_close=1.5, retry=ONCE)
async def brief(size: int) -> str: ...  # type: ignore[empty-body]


@hf.activity(external=True, queue="quotes", heartbeat=30, retry=ONCE)
def quotes(count: int) -> AsyncIterator[int]: ...  # type: ignore[empty-body]


@hf.workflow
async def learn(size: int) -> dict[str, int]:
    return await train(size)


@hf.workflow
async def study(size: int) -> dict[str, int]:
    """For tests that send several commands about one attempt: its heartbeat time is long."""
    return await read(size)


@hf.workflow
async def reserve(size: int) -> str:
    return await reserved(size)


@hf.workflow
async def hurry(size: int) -> str:
    return await brief(size)


@hf.workflow
async def compare(count: int) -> list[int]:
    return [quote async for quote in quotes(count)]
