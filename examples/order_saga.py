"""An order as a saga: what was done is undone when a step fails.

    python examples/order_saga.py

`asyncio.gather` raises the first error of its branches. The other
branches continue, and may succeed after that. A saga that adds its
compensations only after the `gather` has returned forgets them:
`order_with_trap` leaves a reservation behind, `order` does not, also
when it is cancelled while its branches run.

For order-3 a second process dies in the middle of a refund. The next
one finishes the refund and the rest of the compensation.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path

import holdfast as hf


class Declined(Exception):
    """The bank refuses the card; a retry does not help."""


class NoCourier(Exception):
    """No courier serves the address; a retry does not help."""


UNTIL_IT_WORKS = hf.Retry(attempts=None, initial=0.1)


@hf.activity
async def reserve(item: str) -> str:
    await asyncio.sleep(0.2)  # slower than the bank
    print(f"  reserved {item}", flush=True)
    return item


@hf.activity(retry=hf.Retry(non_retryable=(Declined,)))
async def charge(card: str, cents: int) -> str:
    if card == "0000":
        print(f"  declined card {card}", flush=True)
        raise Declined(card)
    print(f"  charged {cents} cents", flush=True)
    return f"receipt-{card}-{cents}"


@hf.activity(retry=hf.Retry(non_retryable=(NoCourier,)))
async def call_courier(address: str) -> str:
    if address == "the moon":
        print(f"  no courier for {address}", flush=True)
        raise NoCourier(address)
    print(f"  courier for {address}", flush=True)
    return f"parcel to {address}"


@hf.activity(retry=UNTIL_IT_WORKS)
async def release(item: str) -> None:
    print(f"  released {item}", flush=True)


@hf.activity(retry=UNTIL_IT_WORKS)
async def refund(receipt: str) -> None:
    """Give the money back. The bank knows the key of this refund."""
    if os.environ.get("DIE_IN_REFUND"):
        print("  the process dies in the refund", flush=True)
        os._exit(1)
    print(f"  refunded {receipt}", flush=True)


class Saga:
    """The compensations of the steps that have succeeded."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Coroutine[object, object, None]]]
        self._undo = []

    def add(
        self, undo: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        self._undo.append(undo)

    async def compensate(self) -> None:
        while self._undo:
            await self._undo.pop()()


@hf.workflow
async def order(item: str, card: str, address: str) -> str:
    saga = Saga()

    async def reserve_item() -> None:
        reserved = await reserve(item)
        saga.add(lambda: release(reserved))

    async def charge_card() -> None:
        receipt = await charge(card, 300)
        saga.add(lambda: refund(receipt))

    # All branches end before the first error is raised, and each adds
    # its own compensation. The shield protects them from a cancel.
    branches = asyncio.gather(
        reserve_item(), charge_card(), return_exceptions=True
    )
    try:
        for error in await asyncio.shield(branches):
            if error is not None:
                raise error  # noqa: TRY301
        return await call_courier(address)
    except BaseException:  # also a cancel of the workflow
        await branches
        await saga.compensate()
        raise


@hf.workflow
async def order_with_trap(item: str, card: str) -> str:
    saga = Saga()
    try:
        reserved, receipt = await asyncio.gather(
            reserve(item), charge(card, 300)
        )
        saga.add(lambda: release(reserved))  # too late if `charge`
        saga.add(lambda: refund(receipt))  # has failed
    except BaseException:
        await asyncio.sleep(0.5)  # the workflow does something else
        await saga.compensate()
        raise
    return receipt


WORKFLOWS = [order, order_with_trap]
ACTIVITIES = [reserve, charge, call_courier, release, refund]


async def place(
    store: Path,
    instance_id: str,
    workflow: hf.Workflow[..., str],
    *args: str,
) -> None:
    async with hf.Engine(
        store, workflows=WORKFLOWS, activities=ACTIVITIES
    ) as engine:
        handle = await engine.start(
            workflow.bind(*args), id=instance_id
        )
        try:
            print(f"{instance_id}: {await handle.result()}")
        except hf.WorkflowFailed as failed:
            cause = failed.cause
            print(f"{instance_id} failed: {cause!r}")


async def place_and_cancel(store: Path) -> None:
    async with hf.Engine(
        store, workflows=WORKFLOWS, activities=ACTIVITIES
    ) as engine:
        handle = await engine.start(
            order, "bed", "4242", "Main Street", id="order-4"
        )
        await asyncio.sleep(0.1)  # charged, not reserved yet
        await handle.cancel("changed my mind")
        try:
            await handle.result()
        except hf.WorkflowCancelled as cancelled:
            print(cancelled)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "orders.db")
        good = ("order-1", order, "lamp", "4242", "Main Street")
        asyncio.run(place(store, *good))

        asyncio.run(
            place(store, "trap-2", order_with_trap, "desk", "0000")
        )
        print("  -> the desk stays reserved for ever")
        asyncio.run(
            place(store, "order-2", order, "chair", "0000", "Main St")
        )

        crash = [sys.executable, __file__, "crash", str(store)]
        subprocess.run(
            crash, env={**os.environ, "DIE_IN_REFUND": "1"}, check=False
        )
        print("  a new process continues order-3", flush=True)
        asyncio.run(place(store, *MOON))
        asyncio.run(place_and_cancel(store))


MOON = ("order-3", order, "sofa", "4242", "the moon")

if __name__ == "__main__":
    if sys.argv[1:2] == ["crash"]:
        asyncio.run(place(Path(sys.argv[2]), *MOON))
    else:
        main()
