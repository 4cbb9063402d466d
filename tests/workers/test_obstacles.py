"""Why an instance does not move (W1): queues, activities and workflows that no live worker has."""

import asyncio

import pytest
from tests.scenarios.support import together
from tests.workers.support import by_leases, told

import holdfast as hf
from holdfast.client.views.obstacles import waiting_sentence
from holdfast.core.leases import Heartbeat, WorkerKey
from holdfast.storage.members.workers import Registration

may_end = asyncio.Event()


@pytest.fixture(autouse=True)
def nothing_may_end() -> None:
    global may_end  # noqa: PLW0603 - each test has an event loop of its own
    may_end = asyncio.Event()


@hf.activity(queue="gpu")
async def train(rows: int) -> int:
    await may_end.wait()
    return rows


@hf.activity(queue="gpu")
async def resize(width: int) -> int:
    return width


@hf.workflow
async def learn(rows: int) -> int:
    return await train(rows)


@hf.workflow
async def other() -> None:
    await hf.event("never", str)


async def obstacles_become(handle: hf.Handle[int], wanted: list[str]) -> None:
    found: list[str] = []

    async def are_so() -> bool:
        found[:] = (await handle.describe()).obstacles
        return found == wanted

    try:
        async with asyncio.timeout(10):
            await told(are_so)
    except TimeoutError:
        raise AssertionError(f"{found} instead of {wanted}") from None


def test_W1_the_obstacle_of_an_instance_is_the_missing_worker(store: str) -> None:
    async def scenario() -> None:
        async with await hf.connect(store, _platform=by_leases()) as client:
            handle = await client.start(learn, 3, id="it")
            assert (await handle.describe()).obstacles == ["no worker is alive: start one with holdfast worker"]
            async with hf.Worker(client, workflows=[other]):
                await obstacles_become(handle, ["no live worker has workflow 'learn' (known: other)"])
            async with hf.Worker(client, workflows=[learn], queues=["default", "mail"]):
                served = "no live worker serves queue 'gpu', where 'train' waits (served: default, mail)"
                await obstacles_become(handle, [served])
                assert waiting_sentence(await handle.describe()) == (
                    f"'it' is RUNNING; it waits for activity train; {served}"
                )
            async with hf.Worker(client, workflows=[learn], activities=[resize]):
                has = (
                    "no live worker of queue 'gpu' has activity 'train' (known: resize): "
                    "is it missing from modules= or activities=?"
                )
                await obstacles_become(handle, [has])
            async with hf.Worker(client, workflows=[learn], activities=[train], max_activities=1):

                async def runs() -> bool:
                    return any(attempt.state == "RUNNING" for attempt in (await handle.describe()).attempts)

                await told(runs)
                second = await client.start(learn, 4, id="second")
                await obstacles_become(second, ["no worker of queue 'gpu' has a free slot (1 of 1 taken)"])
                await obstacles_become(handle, [])
                may_end.set()
                assert await second.result(timeout=10) == 4
            assert (await second.describe()).obstacles == []

    together(scenario())


def test_W1_a_worker_of_an_older_release_may_have_everything(store: str) -> None:
    """Its row does not say what it has, so nothing is said to be missing."""

    async def scenario() -> None:
        async with await hf.connect(store) as client:
            handle = await client.start(learn, 3, id="it")
            older = Registration(host=b"{}", queues='["default"]', build="")
            beat = Heartbeat(WorkerKey("older"), None, 60_000)
            await asyncio.to_thread(client._session.store.heartbeat, beat, older)
            assert (await handle.describe()).obstacles == []
            [view] = await client.workers()
            assert (view.workflows, view.activities) == (None, None)

    together(scenario())


def test_W6_the_obstacle_of_an_instance_is_the_ended_lease_of_its_worker(store: str) -> None:
    async def scenario() -> None:
        async with (
            await hf.connect(store, _platform=by_leases()) as client,
            hf.Worker(client, workflows=[learn], activities=[train]),
        ):
            handle = await client.start(learn, 3, id="it")
            await obstacles_become(handle, [])
            [mine] = await client._session.store.workers()
            later_ms = mine.deadline_ms + 1_500
            client._session.store.now_ms = lambda: later_ms  # type: ignore[method-assign]
            found = (await handle.describe()).obstacles
            del client._session.store.now_ms
            assert found[0] == f"the lease of worker {mine.key}, which holds the instance, ended 1.5 s ago"
            assert found[-1] == "no worker is alive: start one with holdfast worker"
            may_end.set()

    together(scenario())
