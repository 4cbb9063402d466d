"""A commit wakes the processes that it concerns, and no other (C15)."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.scenarios.support import together, until
from tests.support.inside import key_of, worker_of
from tests.workers.support import instance, sound

import holdfast as hf
from holdfast.runtime import worker
from holdfast.runtime.claimants import Claimants
from holdfast.runtime.duties import claimer
from holdfast.runtime.session import StoreSession
from holdfast.storage.records import NextDue
from holdfast.storage.wakeups import Wakeup

FAST_SECONDS = 0.9
"""Below the interval at which a process polls."""


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def quadruple(number: int) -> int:
    return await double(await double(number))


@hf.workflow
async def waits() -> str:
    @hf.on_update
    async def greet(name: str) -> str:
        return f"hello {name}"

    @hf.on_query
    def status() -> str:
        return "waiting"

    del greet, status
    return str(await hf.event("go"))


class Received:
    """The wake-ups that each session of this process has received, by its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._wakeups: dict[str, list[Wakeup]] = defaultdict(list)
        notified = StoreSession.notified

        def record(session: StoreSession, wakeup: Wakeup) -> None:
            self._wakeups[session.name].append(wakeup)
            notified(session, wakeup)

        monkeypatch.setattr(StoreSession, "notified", record)

    def of(self, client: hf.Client) -> list[Wakeup]:
        return self._wakeups[client._session.name]

    async def settle(self, *clients: hf.Client) -> None:
        """Wait until the sessions listen, and forget the wake-ups of that."""
        await asyncio.sleep(0.2)
        for client in clients:
            self.of(client).clear()


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Received:
    return Received(monkeypatch)


async def connect(store: str) -> hf.Client:
    return await hf.connect(store)


def test_C15_engines_with_work_of_their_own_do_not_wake_each_other(store: str, received: Received) -> None:
    async def scenario() -> None:
        async with (
            hf.Engine(store, workflows=[quadruple], activities=[double]) as one,
            hf.Engine(store, workflows=[quadruple], activities=[double]) as two,
        ):
            await received.settle(one, two)
            runs = [engine.run(quadruple, n, id=f"{n}-{at}") for n in range(20) for at, engine in enumerate((one, two))]
            assert sum(await asyncio.gather(*runs)) == 8 * sum(range(20))
            await asyncio.sleep(0.1)
            assert received.of(one) == received.of(two) == []

    together(scenario())
    sound(store)


def test_C15_an_end_wakes_the_process_that_waits_and_not_another_client(store: str, received: Received) -> None:
    async def scenario() -> None:
        async with (
            await connect(store) as waiting,
            await connect(store) as idle,
            hf.Engine(store, workflows=[quadruple], activities=[double]),
        ):
            await received.settle(waiting, idle)
            assert await waiting.run("quadruple", 3, id="a") == 12
            number = (await instance(waiting, "a")).number
            ended = [wakeup for wakeup in received.of(waiting) if wakeup.instances]
            assert [wakeup.instances for wakeup in ended] == [{number}]
            assert not [wakeup for wakeup in received.of(idle) if wakeup.instances or wakeup.everything]

    together(scenario())


def test_C15_a_process_that_begins_to_wait_later_is_woken(store: str, received: Received) -> None:
    async def scenario() -> None:
        async with (
            await connect(store) as starting,
            await connect(store) as waiting,
            hf.Engine(store, workflows=[waits]),
        ):
            await starting.start("waits", id="a")
            result = asyncio.create_task(waiting.get("a").result(timeout=20))
            await received.settle(waiting)
            async with asyncio.timeout(FAST_SECONDS):
                await starting.get("a").raise_event("go", "on")
                assert await result == "on"
            assert any(wakeup.instances for wakeup in received.of(waiting))

    together(scenario())


@pytest.mark.parametrize("end", ["terminate", "cancel"])
def test_C15_every_way_to_end_wakes_the_process_that_waits(store: str, received: Received, end: str) -> None:
    async def scenario() -> None:
        async with (
            await connect(store) as ending,
            await connect(store) as waiting,
            hf.Engine(store, workflows=[waits]),
        ):
            await ending.start("waits", id="a")
            result = asyncio.create_task(waiting.get("a").result(timeout=20))
            await received.settle(waiting)
            handle = ending.get("a")
            async with asyncio.timeout(FAST_SECONDS):
                await (handle.terminate("over") if end == "terminate" else handle.cancel("over"))
                with pytest.raises(hf.HoldfastError):
                    await result
            assert any(wakeup.instances for wakeup in received.of(waiting))

    together(scenario())


def test_C15_answers_wake_the_process_that_asked(store: str, received: Received) -> None:
    async def scenario() -> None:
        async with (
            await connect(store) as asking,
            await connect(store) as idle,
            hf.Engine(store, workflows=[waits]) as engine,
        ):
            await engine.start(waits, id="a")
            await received.settle(asking, idle)
            async with asyncio.timeout(FAST_SECONDS):
                assert await asking.get("a").query("status") == "waiting"
                assert await asking.get("a").update("greet", "anna") == "hello anna"
            assert any(wakeup.replies for wakeup in received.of(asking))
            assert any(wakeup.instances for wakeup in received.of(asking))
            assert not any(wakeup.replies or wakeup.instances for wakeup in received.of(idle))
            await engine.get("a").terminate("over")

    together(scenario())


def test_C15_a_query_about_an_instance_without_an_owner_is_answered_at_once(store: str, received: Received) -> None:
    """It has ended, and no process waits for it: its row has no owner, no due time and no name."""

    async def scenario() -> None:
        async with await connect(store) as asking, hf.Engine(store, workflows=[waits]) as engine:
            await engine.start(waits, id="a")
            await engine.get("a").raise_event("go", "on")
            await engine.get("a").result()
            await received.settle(asking, engine)
            async with asyncio.timeout(FAST_SECONDS):
                assert await asking.get("a").query("status") == "waiting"
            assert any("waits" in wakeup.queries for wakeup in received.of(engine))

    together(scenario())


def test_C15_work_wakes_workers_that_have_its_code(store: str, received: Received) -> None:
    async def scenario() -> None:
        async with (
            await connect(store) as client,
            hf.Engine(store, workflows=[waits]) as other,
            hf.Engine(store, workflows=[quadruple], activities=[double]) as fitting,
        ):
            looks = polls(other)
            await received.settle(other, fitting)
            before = looks()
            async with asyncio.timeout(FAST_SECONDS):
                assert await client.run("quadruple", 3, id="a") == 12
            assert any("quadruple" in wakeup.workflows for wakeup in received.of(fitting))
            assert looks() == before, "a worker without the code does not poll"

    together(scenario())


def test_C15_instances_are_claimed_by_the_worker_that_the_wake_up_names(
    store: str, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers take turns: a claim of one does not meet a claim of the other."""
    monkeypatch.setattr(worker, "AFTER_OTHERS_SECONDS", 60.0)
    monkeypatch.setattr(claimer, "POLL_SECONDS", 60.0)
    claims: dict[str, list[bool]] = defaultdict(list)
    claim = claimer.Claimer._claim_instances

    async def count(self: claimer.Claimer, **options: Any) -> bool:
        found = await claim(self, **options)
        claims[self._context.lease.key].append(found)
        return found

    monkeypatch.setattr(claimer.Claimer, "_claim_instances", count)

    async def scenario() -> None:
        async with (
            await connect(store) as client,
            hf.Engine(store, workflows=[quadruple], activities=[double]) as one,
            hf.Engine(store, workflows=[quadruple], activities=[double]) as two,
        ):
            await received.settle(one, two)
            assert await client.run("quadruple", 3, id="warm-up") == 12
            await until(lambda: client._session._claimants._by_workflow)
            await asyncio.sleep(0.1)  # the worker that lost the warm-up has polled
            claims.clear()
            async with asyncio.timeout(30):
                for number in range(10):
                    assert await client.run("quadruple", number, id=f"run-{number}") == 4 * number
            keys = {key_of(worker_of(each)) for each in (one, two)}
            assert {key: sum(found) for key, found in claims.items()} == dict.fromkeys(keys, 5)
            assert all(all(found) for found in claims.values()), "no claim found nothing"

    together(scenario())
    sound(store)


def test_C15_another_worker_claims_what_the_named_one_does_not(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the worker that is named were busy, or had died a moment ago."""
    monkeypatch.setattr(claimer, "POLL_SECONDS", 60.0)
    named = Claimants.named

    def name_another(self: Claimants, wakeup: Wakeup) -> Wakeup:
        return replace(named(self, wakeup), claimants=frozenset({"another"}))

    async def scenario() -> None:
        async with await connect(store) as client, hf.Engine(store, workflows=[quadruple], activities=[double]):
            await asyncio.sleep(0.2)
            monkeypatch.setattr(Claimants, "named", name_another)
            async with asyncio.timeout(FAST_SECONDS):
                assert await client.run("quadruple", 3, id="a") == 12

    together(scenario())


def test_C15_a_wake_up_that_names_another_worker_still_wakes_for_its_queues(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "AFTER_OTHERS_SECONDS", 60.0)

    async def scenario() -> None:
        async with hf.Engine(store, workflows=[quadruple], activities=[double]) as engine:
            await asyncio.sleep(0.2)
            looks = polls(engine)
            mine = worker_of(engine)
            apart = Wakeup(workflows=frozenset({"quadruple"}), claimants=frozenset({"another"}))
            mine.woken(apart)
            assert looks() == 0
            mine.woken(replace(apart, queues=frozenset({"default"})))
            assert looks() == 1
            mine.woken(replace(apart, claimants=frozenset({"another", key_of(mine)})))
            assert looks() == 2
            mine.woken(replace(apart, everything=True))
            assert looks() == 3

    together(scenario())


def polls(engine: hf.Engine) -> Callable[[], int]:
    """Counts how often the worker of an engine was made to poll by wake-ups."""
    work = worker_of(engine)._work
    counted = 0
    set_ = work.set

    def count() -> None:
        nonlocal counted
        counted += 1
        set_()

    work.set = count  # type: ignore[method-assign]
    return lambda: counted


def test_C15_attempts_that_found_no_free_slot_are_claimed_when_one_is_free(store: str, received: Received) -> None:
    """The only slot is busy when the second attempt becomes READY."""
    goes_on, began = asyncio.Event(), asyncio.Event()

    @hf.activity
    async def hold(first: bool) -> bool:
        if first:
            began.set()
            await goes_on.wait()
        return first

    @hf.workflow
    async def holds(first: bool) -> bool:
        return await hold(first)

    async def scenario() -> None:
        async with (
            hf.Engine(store, workflows=[holds]) as caller,
            hf.Engine(store, activities=[hold], max_activities=1) as working,
        ):
            first = asyncio.create_task(caller.run(holds, True, id="first"))
            await began.wait()
            await received.settle(working)
            second = asyncio.create_task(caller.run(holds, False, id="second"))
            while not received.of(working):  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0.01)
            assert received.of(working)[0].queues
            assert worker_of(working).slots.has_backlog
            goes_on.set()
            assert (await first, await second) == (True, False)

    together(scenario())


def test_C15_attempts_that_come_during_a_poll_are_claimed_when_a_slot_is_free(
    store: str, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll has read what is due, and found nothing, when the wake-up for the second attempt comes."""
    monkeypatch.setattr(claimer, "POLL_SECONDS", 60.0)
    goes_on, began = asyncio.Event(), asyncio.Event()
    has_read, may_return = asyncio.Event(), asyncio.Event()

    @hf.activity
    async def hold(first: bool) -> bool:
        if first:
            began.set()
            await goes_on.wait()
        return first

    @hf.workflow
    async def holds() -> bool:
        return await hold(True)

    @hf.workflow
    async def passes() -> bool:
        return await hold(False)

    async def scenario() -> None:
        async with (
            hf.Engine(store, workflows=[passes]) as caller,
            hf.Engine(store, workflows=[holds], activities=[hold], max_activities=1) as working,
        ):
            first = asyncio.create_task(working.run(holds, id="first"))
            await began.wait()
            await received.settle(working)
            worker: Any = worker_of(working)
            next_due = worker.claimer.next_due

            async def held_back(*given: int) -> NextDue:
                found: NextDue = await next_due(*given)
                has_read.set()
                await may_return.wait()
                return found

            worker.claimer.next_due = held_back
            worker.poll()
            await has_read.wait()
            second = asyncio.create_task(caller.run(passes, id="second"))
            await until(lambda: any(wakeup.queues for wakeup in received.of(working)))
            worker.claimer.next_due = next_due
            wait = worker.claimer._wait

            async def waiting(due_ms: int | None) -> None:
                goes_on.set()
                await wait(due_ms)

            worker.claimer._wait = waiting
            may_return.set()
            async with asyncio.timeout(30):
                assert (await first, await second) == (True, False)

    together(scenario())


def test_C15_a_lost_wake_up_costs_a_poll_interval(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None: ...

    monkeypatch.setattr(StoreSession, "notified", lost)

    async def scenario() -> None:
        async with await connect(store) as client, hf.Engine(store, workflows=[quadruple], activities=[double]):
            assert await client.run("quadruple", 3, id="a") == 12

    together(scenario())
    sound(store)
