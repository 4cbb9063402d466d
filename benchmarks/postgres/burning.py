"""Bodies that need the processor, for worker processes of their own."""

import asyncio
import time
from typing import Final

import holdfast as hf

BURN_SECONDS: Final = 0.02


@hf.activity
def burn(number: int) -> int:
    """A body that needs the processor for a while."""
    ends_at = time.thread_time() + BURN_SECONDS
    while time.thread_time() < ends_at:
        pass
    return number


@hf.workflow
async def burn_all(count: int) -> int:
    """Bodies that need the processor, all at the same time."""
    return len(await asyncio.gather(*(burn(number) for number in range(count))))
