"""What the client of a simulation does to an instance that it started: it raises events, and asks it to end."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from random import Random  # noqa: TID251 - made from the seed of the simulation
from typing import Any, Final

from holdfast.client.client import Client
from holdfast.errors import InstanceClosed, InstanceNotFound

LONGEST_CLIENT_PAUSE_SECONDS: Final = 1.0
LONGEST_PATIENCE_SECONDS: Final = 3.0
NOT_THERE_YET_SECONDS: Final = 0.1
REPEATS: Final = 0.3
"""How often a sender is not sure that its event arrived, and raises it again."""


@dataclass(frozen=True, slots=True)
class RaiseEvent:
    """An event to raise; to the instance itself, or to another one that may not be there yet.

    `path` has the ids of the instances that create one another: the last one gets the event.
    """

    name: str
    value: Any
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelInstance:
    """Ask the instance to end, at a moment that the seed chooses."""

    reason: str = "the simulation says so"


ClientAction = RaiseEvent | CancelInstance


async def run_errands(client: Client, instance: str, errands: tuple[ClientAction, ...], random: Random) -> None:
    """The events one after the other, in the order in which they are given; cancellations at any moment."""
    raises = [errand for errand in errands if isinstance(errand, RaiseEvent)]
    cancels = [errand for errand in errands if isinstance(errand, CancelInstance)]
    await asyncio.gather(
        _raise_all(client, instance, raises, random), *(_cancel(client, instance, each, random) for each in cancels)
    )


async def _raise_all(client: Client, instance: str, raises: list[RaiseEvent], random: Random) -> None:
    for number, errand in enumerate(raises):
        await asyncio.sleep(random.random() * LONGEST_CLIENT_PAUSE_SECONDS)
        await _raise(client, instance, errand, number)
        while random.random() < REPEATS:  # this one or an earlier one once more: its id says that it is the same
            again = random.randrange(number + 1)
            await _raise(client, instance, raises[again], again)


async def _raise(client: Client, instance: str, errand: RaiseEvent, number: int) -> None:
    path = errand.path or (instance,)
    if await comes(client, path):
        with suppress(InstanceClosed):  # cancelled, or every wait is over: nobody needs it any more
            await client.get(path[-1]).raise_event(errand.name, errand.value, id=f"errand-{number}")


async def comes(client: Client, path: tuple[str, ...]) -> bool:
    """Wait until the last instance of a path is there. False if it never will be: its creator has ended without it."""
    for creator, created in zip(("", *path), path, strict=False):
        while True:
            is_over = creator and (await client.get(creator).describe()).closed_at is not None
            try:
                await client.get(created).describe()
                break
            except InstanceNotFound:
                if is_over:
                    return False
            await asyncio.sleep(NOT_THERE_YET_SECONDS)
    return True


async def _cancel(client: Client, instance: str, errand: CancelInstance, random: Random) -> None:
    await asyncio.sleep(random.random() * LONGEST_PATIENCE_SECONDS)
    with suppress(InstanceClosed):
        await client.get(instance).cancel(errand.reason)
