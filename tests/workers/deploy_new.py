"""The build after a deploy: version 2 charges first, and version 1 is still there for its open instances."""

from tests.workers.deploy_old import charge, checkout, reserve

import holdfast as hf

old = checkout


@hf.workflow(name="checkout", version="2")
async def checkout_2(order: int) -> list[str]:
    charged = await charge(order)
    await hf.event("confirmed", int)
    return [hf.info().version, charged, await reserve(order)]
