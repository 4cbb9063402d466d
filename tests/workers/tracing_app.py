"""A workflow whose trace passes an activity that hangs, a child and a second execution."""

from tests.workers.app import gate, note

import holdfast as hf


@hf.activity
async def add(number: int) -> int:
    return number + 1


@hf.activity
async def gated(name: str) -> None:
    attempt = hf.activity_info().attempt
    note("began", name, attempt)
    await gate(f"{name} {attempt}")


@hf.workflow(name="child")
async def child(number: int) -> int:
    return await add(number)


@hf.workflow(name="order")
async def order(number: int) -> int:
    if number:
        await add(number)
        await gated("hang")
        hf.continue_as_new(number - 1)
    await child(number)
    return number
