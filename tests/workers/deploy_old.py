"""The build before a deploy: version 1 of a workflow, whose steps are confirmed by an event."""

import holdfast as hf


@hf.activity
async def reserve(order: int) -> str:
    return f"reserved {order}"


@hf.activity
async def charge(order: int) -> str:
    return f"charged {order}"


@hf.workflow(name="checkout", version="1")
async def checkout(order: int) -> list[str]:
    reserved = await reserve(order)
    await hf.event("confirmed", int)
    return [hf.info().version, reserved, await charge(order)]
