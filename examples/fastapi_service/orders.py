"""The workflow. The worker imports this module, the service too."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import holdfast as hf


@dataclass
class Order:
    item: str
    cents: int


approved = hf.Event[bool]("approved")


@hf.activity
async def charge(order: Order) -> str:
    return f"paid {order.cents} for {order.item}"


@hf.activity
async def write_letter(order: Order) -> AsyncIterator[str]:
    for word in f"Your {order.item} is on its way".split():
        await asyncio.sleep(0.02)
        yield word


@hf.workflow
async def checkout(order: Order) -> str:
    hf.set_status("waiting for approval")
    if not await approved:
        return "refused"
    receipt = await charge(order)
    words: list[str] = []
    async for word in write_letter(order):
        words.append(word)
        hf.set_status(" ".join(words))
    return receipt
