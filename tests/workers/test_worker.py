"""`hf.Worker`: runs what others start, beside a client or in a process of its own, and leaves cleanly (W10)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.scenarios.support import together, until
from tests.support.inside import committer_of, reconciler_of
from tests.support.inside import worker_of as runtime_of
from tests.workers.support import attempts, by_leases, instance, sound, stored, told

import holdfast as hf
from holdfast.core.leases import WorkerState
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import AskQuery
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import CommitId
from holdfast.storage.wakeups import Notify

may_end = asyncio.Event()
runs: list[str] = []


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    global may_end  # noqa: PLW0603 - each test has an event loop of its own
    may_end = asyncio.Event()
    runs.clear()


@hf.activity(retry=hf.Retry(attempts=1))
async def held(name: str) -> str:
    runs.append(name)
    await may_end.wait()
    return f"{name} {len(runs)}"


@hf.activity
async def quick(number: int) -> int:
    return number + 1


@hf.workflow
async def holding(name: str) -> str:
    return await held(name)


@hf.workflow
async def steps(count: int) -> int:
    number = 0
    for _ in range(count):
        await asyncio.sleep(0.001)
        number = await quick(number)
    return number


@hf.workflow
async def sleeps() -> None:
    await asyncio.sleep(3_600)


EVERYTHING: dict[str, Any] = {"workflows": [holding, steps, sleeps], "activities": [held, quick]}


@hf.activity(queue="parcels")
async def packed(name: str) -> str:
    return f"packed {name}"


@hf.workflow
async def packing(name: str) -> str:
    return await packed(name)


def worker_of(client: hf.Client, **options: Any) -> hf.Worker:
    return hf.Worker(client, **{**EVERYTHING, **options})


async def connect(store: str) -> hf.Client:
    return await hf.connect(store, _platform=by_leases())


def test_C1_a_worker_runs_what_its_own_client_and_others_start(store: str) -> None:
    async def scenario() -> None:
        async with await connect(store) as client, await connect(store) as other:
            worker = worker_of(client)
            running = asyncio.create_task(worker.run())
            assert await client.run(steps, 3, id="own") == 3
            assert await other.run(steps, 4, id="others") == 4
            assert [view.key for view in await other.workers()] == [worker.key]
            worker.stop()
            await running
            assert worker.key is None
            assert [view.state for view in await other.workers()] == [WorkerState.INACTIVE]
            await client.start(steps, 5, id="left")
            async with worker_of(client):
                assert await other.get("left").result(timeout=10) == 5, "the client goes on, also with another worker"
        sound(store)

    together(scenario())


def test_a_worker_without_queues_serves_those_of_its_activities(store: str) -> None:
    async def scenario() -> None:
        async with (
            await connect(store) as client,
            await connect(store) as other,
            hf.Worker(client, workflows=[packing], activities=[packed], queues=["default"]),
        ):
            waiting = await client.start(packing, "hat", id="hat")

            async def it_waits_for_somebody_else() -> bool:
                served = {queue.name: bool(queue.served_by) for queue in await other.queues()}
                return served == {"default": True, "parcels": False}

            await told(it_waits_for_somebody_else)
            async with hf.Worker(other, activities=[packed]):
                served = sorted(view.queues for view in await client.workers())
                assert served == [["default"], ["default", "parcels"]]
                assert await waiting.result(timeout=10) == "packed hat"
        async with hf.Engine(store, workflows=[packing], activities=[packed]) as engine:
            assert await engine.run(packing, "cap", id="cap") == "packed cap", "an engine does as a worker does"
        sound(store)

    together(scenario())


def test_W10_a_worker_that_drains_claims_nothing_releases_its_instances_and_waits_for_bodies(store: str) -> None:
    async def scenario() -> None:
        async with await connect(store) as client, await connect(store) as other:
            worker = worker_of(client, lease=300)
            running = asyncio.create_task(worker.run())
            await client.start(holding, "a", id="a")
            await client.start(sleeps, id="s")
            await until(lambda: runs == ["a"])
            worker.drain()

            async def is_let_go() -> bool:
                return (await instance(other, "a")).owner is None and (await instance(other, "s")).owner is None

            await told(is_let_go)
            await client.start(holding, "b", id="b")
            assert (await instance(other, "b")).owner is None, "it is for others"
            await other.start(steps, 3, id="c")
            async with worker_of(other, queues=["other"]):
                assert worker.running == 1, "its body goes on"
                assert not running.done()
                may_end.set()
                assert await other.get("a").result(timeout=10) == "a 1"
                await running
            assert [(each.state, each.losses) for each in await attempts(other, "a")] == [("COMPLETED", 0)]
            assert runs == ["a"]
            async with worker_of(other):
                assert await other.get("b").result(timeout=10) == "b 2"
                assert await other.get("c").result(timeout=10) == 3
        sound(store)

    together(scenario())


@pytest.mark.parametrize("how", ["time is up", "stopped", "cancelled", "the client is closed"])
def test_W10_a_drain_that_is_interrupted_hands_the_rest_over_at_once(store: str, how: str) -> None:
    async def scenario() -> None:
        client, other = await connect(store), await connect(store)
        worker = worker_of(client, lease=300)
        running = asyncio.create_task(worker.run())
        await client.start(holding, "a", id="a")
        await until(lambda: runs == ["a"])
        worker.drain(0.01 if how == "time is up" else None)

        async def is_let_go() -> bool:
            return (await instance(other, "a")).owner is None

        await told(is_let_go)
        if how == "stopped":
            worker.stop()
        elif how == "cancelled":
            running.cancel()
        elif how == "the client is closed":
            await client.close()
        await asyncio.wait([running])
        assert running.cancelled() == (how == "cancelled")
        assert await stored(other, "a") == [("TIMED_OUT", 0, 0), ("READY", 0, 0)], "a clean leave is no loss"
        may_end.set()
        async with worker_of(other):
            assert await other.get("a").result(timeout=10) == "a 2"
        await client.close()
        await other.close()
        sound(store)

    together(scenario())


@pytest.mark.slow
def test_W10_instances_that_start_during_a_drain_are_neither_lost_nor_stranded(store: str) -> None:
    """First turns on their way to disk, continued executions, claims: at any moment of the drain."""

    @hf.workflow
    async def continuing(number: int) -> int:
        await quick(number)
        if number < 5:
            hf.continue_as_new(number + 1)
        return number

    def everything(client: hf.Client) -> hf.Worker:
        return hf.Worker(client, workflows=[continuing, steps, holding], activities=[quick, held], lease=300)

    async def drain_amid(client: hf.Client, other: hf.Client, groups: int) -> None:
        """Drain when so many groups were committed, while a body keeps the worker from leaving."""
        worker = everything(client)
        running = asyncio.create_task(worker.run())
        await client.start(holding, "body", id=f"{groups} held")
        await until(lambda: worker.running)
        starts = [client.start(continuing, 0, id=f"{groups} {number}") for number in range(5)]
        starts += [other.start(steps, 5, id=f"{groups} {number}") for number in range(5, 10)]
        inner = runtime_of(client)
        most, starting = committer_of(inner).groups + groups, asyncio.gather(*starts)
        await until(lambda: committer_of(inner).groups >= most or starting.done())
        worker.drain()
        await starting
        async with everything(other):
            for number in range(10):
                assert await other.get(f"{groups} {number}").result(timeout=10) == 5
                assert not [each for each in await attempts(other, f"{groups} {number}") if each.losses]
            assert worker.running == 1
            assert not running.done()
            may_end.set()
            await other.get(f"{groups} held").result(timeout=10)
            await running
        may_end.clear()

    async def scenario() -> None:
        async with await connect(store) as client, await connect(store) as other:
            for groups in range(10):
                await drain_amid(client, other, groups)
        sound(store)

    together(scenario(), seconds=60)


def test_G11_the_worker_beside_a_client_answers_its_queries(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has no code. It need not ask through the store, and go on looking for an answer there."""

    @hf.workflow
    async def asked() -> None:
        @hf.on_query
        def status() -> str:
            return "waiting"

        del status
        await hf.event("go")

    async def scenario() -> None:
        async with await connect(store) as client:
            members: list[Member] = []
            commit = client._session.store.commit

            async def listen(commit_id: CommitId, group: Sequence[Member], notify: Notify) -> list[Outcome]:
                members.extend(group)
                return await commit(commit_id, group, notify)

            monkeypatch.setattr(client._session.store, "commit", listen)
            handle = await client.start("asked", id="a")
            asking = asyncio.create_task(handle.query("status", timeout=20))
            async with hf.Worker(client, workflows=[asked]):
                assert await asking == "waiting", "also one that was asked before it began"
                assert await handle.query("status", timeout=20) == "waiting"
                await handle.raise_event("go")
                await handle.result(timeout=10)
            assert not [member for member in members if isinstance(member, AskQuery)]

    together(scenario())


def test_W7_a_lease_that_is_lost_ends_a_drain(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store would reject the ends of its bodies, and other workers run them again. No poll of its own is needed."""

    async def nothing() -> None:
        """In the place of the reconciler."""

    async def scenario() -> None:
        async with await connect(store) as client, await connect(store) as other:
            worker = worker_of(client, lease=1)
            running = asyncio.create_task(worker.run())
            await client.start(holding, "a", id="a")
            await until(lambda: runs == ["a"])
            monkeypatch.setattr(reconciler_of(runtime_of(client)), "reconcile", nothing)
            worker.drain()
            key = worker.key
            async with worker_of(other) as healthy:
                (row,) = [each for each in await other._session.store.workers() if each.key == key]
                await committer_of(runtime_of(other)).commit(MarkWorkerLost(key=row.key, at_deadline=False, limit=100))
                await running
                may_end.set()
                assert await other.get("a").result(timeout=10) == "a 2"
                assert healthy.key not in (None, key)
        sound(store)

    together(scenario())


def test_a_worker_needs_a_client_of_its_own_something_to_run_and_runs_once(store: str) -> None:
    async def scenario() -> None:
        async with await connect(store) as client:
            with pytest.raises(hf.errors.UsageError, match="something to run"):
                hf.Worker(client)
            wrong: Any = store
            with pytest.raises(hf.errors.UsageError, match="needs a client"):
                hf.Worker(wrong, **EVERYTHING)
            async with worker_of(client) as worker:
                with pytest.raises(hf.errors.UsageError, match="has a worker already"):
                    await worker_of(client).run()
                with pytest.raises(hf.errors.UsageError, match="runs already"):
                    await worker.run()
                assert await client.run(steps, 2, id="a") == 2
            with pytest.raises(hf.errors.UsageError, match="has run"):
                await worker.run()
        async with hf.Engine(store, **EVERYTHING) as engine:
            with pytest.raises(hf.errors.UsageError, match="has a worker already"):
                await worker_of(engine).run()
            async with await connect(store) as beside, worker_of(beside, queues=["other"]):
                assert await beside.run(steps, 2, id="b") == 2, "an engine and a worker in one process"

    together(scenario())


@pytest.mark.parametrize(
    "options",
    [{"max_activities": 0}, {"lease": -1}, {"lease": float("nan")}, {"queues": "mail"}, {"cache_size": 0.5}],
    ids=str,
)
def test_senseless_options_of_a_worker_are_refused(store: str, options: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with await connect(store) as client:
            with pytest.raises(hf.errors.InvalidOption, match="|".join(options)):
                worker_of(client, **options)
            with pytest.raises(hf.errors.InvalidOption, match="timeout"):
                worker_of(client).drain(-1)

    together(scenario())
