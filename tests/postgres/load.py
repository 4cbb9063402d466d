"""Work for a store that is being harmed: ``python -m tests.postgres.load worker|client STORE [LEASE]``.

A client starts instances and raises events to them, again and again until it is told that each is stored, and checks
every result. After a line on its standard input it starts no more, finishes what is open, and prints what it was told.
"""

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec
from tests.support.inside import key_of, worker_of

import holdfast as hf
from holdfast.runtime.platform import Platform

EVENTS = 4
AT_ONCE = 6
PAUSE_SECONDS = 0.05
END = -1

T = TypeVar("T")


class Told(msgspec.Struct):
    """What a client was told, in the end."""

    instances: int = 0
    events: int = 0
    troubles: int = 0
    """Calls that were answered with an error, and made again."""
    wrong: list[str] = []


@hf.activity(max_losses=1_000, retry=hf.Retry(attempts=1_000, initial=0.01))
async def doubled(number: int) -> int:
    return 2 * number


@hf.workflow
async def doubles() -> list[int]:
    """The double of every number that comes: one that is lost or comes twice shows in the result."""
    found: list[int] = []
    async for number in hf.events("number", int):
        if number == END:
            break
        found.append(await doubled(number))
    return found


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def work(store: str, lease: float) -> None:
    """A worker. A line asks for its key; an empty one ends it."""
    world = Platform(detect_local_deaths=False)
    async with hf.Engine(store, workflows=[doubles], activities=[doubled], lease=lease, _platform=world) as engine:
        say(key_of(worker_of(engine)))
        while (await asyncio.to_thread(sys.stdin.readline)).strip():
            say(key_of(worker_of(engine)))


class Customer:
    """Asks for things until it is told that they are done."""

    def __init__(self, client: hf.Client) -> None:
        self._client = client
        self.told = Told()

    async def one(self, name: str) -> None:
        """One instance from its start to its result."""
        handle = await self._insist(lambda: self._client.start(doubles, id=name))
        self.told.instances += 1
        for number in (*range(EVENTS), END):
            await self._insist(partial(handle.raise_event, "number", number, id=f"{number}"))
            self.told.events += 1
        result = await self._insist(handle.result)
        if result != [2 * number for number in range(EVENTS)]:
            self.told.wrong.append(f"{name}: {result}")
        say(name)

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except hf.StoreError as error:
                self.told.troubles += 1
                sys.stderr.write(f"{error}\n")
                await asyncio.sleep(PAUSE_SECONDS)


async def buy(store: str) -> None:
    """A client, until a line comes and everything is done."""
    client = await hf.connect(store, workflows=[doubles])
    customer = Customer(client)
    enough = asyncio.Event()
    names = (f"it-{number}" for number in itertools.count())

    async def go_on() -> None:
        while not enough.is_set():
            await customer.one(next(names))

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(go_on())
        await asyncio.to_thread(sys.stdin.readline)
        enough.set()
    await client.close()
    say(msgspec.json.encode(customer.told).decode())


ROLES: dict[str, Callable[..., Any]] = {"worker": work, "client": buy}


if __name__ == "__main__":
    role, place, *rest = sys.argv[1:]
    asyncio.run(ROLES[role](place, *map(float, rest)))
