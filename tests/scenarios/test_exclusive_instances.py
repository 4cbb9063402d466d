"""The scenarios that the design of gates brought along, by their names there, under both policies for events (G1-G8).

The design knew one behaviour: an event that nobody has subscribed to is dropped. Here that is `drop_unsubscribed`; the
default keeps such events in the mailbox (G6).
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, path_of, rows, skipping, together
from tests.scenarios.test_timers import ShiftedClock

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.admission import EventPolicy
from holdfast.runtime.platform import Platform
from holdfast.testing.environment import Environment

POLICIES = pytest.mark.parametrize("policy", [EventPolicy.MAILBOX, EventPolicy.DROP_UNSUBSCRIBED], ids=str)
MINUTE = 60


@hf.activity
async def step(number: int) -> int:
    return number + 1


def check(env: hf.Engine) -> None:
    check_tables(path_of(env))
    assert audit(path_of(env)) == []


@POLICIES
def test_G4_continue_as_new_multiexec(policy: EventPolicy) -> None:
    """``continue_as_new_multiexec_fs``: one execution follows the other, and the last one answers."""

    @hf.workflow(event_policy=policy)
    async def climbs(number: int = 0) -> int:
        number = await step(number)
        return number if number == 5 else hf.continue_as_new(number)

    async def scenario(env: Environment) -> None:
        assert await env.run(climbs, id="it") == 5
        described = await env.get("it").describe()
        assert (described.execution, described.state) == (5, "COMPLETED")
        for execution in range(1, 5):
            kinds = [entry.kind for entry in await env.get("it").history(execution)]
            assert (kinds[0], kinds[-1]) == ("started", "continued_as_new")
        check(env)

    skipping(step, climbs).run_sync(scenario)


@POLICIES
def test_G7_continue_as_new_event_routes_to_latest(policy: EventPolicy) -> None:
    """``continue_as_new_event_routes_to_latest_fs``: both executions subscribe, and the event reaches the latest."""

    @hf.workflow(event_policy=policy)
    async def subscribes(execution: int = 1) -> str:
        if execution == 1:
            try:
                async with asyncio.timeout(MINUTE):
                    return f"1: {await hf.event('data', str)}"
            except TimeoutError:
                hf.continue_as_new(2)
        return f"{execution}: {await hf.event('data', str)}"

    async def scenario(env: Environment) -> None:
        handle = await env.start(subscribes, id="it")
        await env.skip(seconds=2 * MINUTE)
        assert await handle.raise_event("data", "hello")
        assert await handle.result() == "2: hello"
        assert "event_received" not in [entry.kind for entry in await handle.history(1)]
        assert [entry.kind for entry in await handle.history(2)].count("event_received") == 1
        check(env)

    skipping(subscribes).run_sync(scenario)


@POLICIES
def test_G6_continue_as_new_event_drop_then_process(policy: EventPolicy) -> None:
    """``continue_as_new_event_drop_then_process_fs``: too early for the new execution, then after it subscribed."""

    @hf.workflow(event_policy=policy)
    async def late(execution: int = 1) -> str:
        if execution == 1:
            hf.continue_as_new(2)
        await asyncio.sleep(MINUTE)
        return await hf.event("data", str)

    async def scenario(env: Environment) -> None:
        await raise_early_then_late(env, await env.start(late, id="it"), policy)

    skipping(late).run_sync(scenario)


@POLICIES
def test_G6_event_drop_then_retry_after_subscribe(policy: EventPolicy) -> None:
    """``event_drop_then_retry_after_subscribe_fs``: active and not subscribed yet; the retry comes after that."""

    @hf.workflow(event_policy=policy)
    async def late() -> str:
        await asyncio.sleep(MINUTE)
        return await hf.event("data", str)

    async def scenario(env: Environment) -> None:
        await raise_early_then_late(env, await env.start(late, id="it"), policy)

    skipping(late).run_sync(scenario)


async def raise_early_then_late(env: Environment, handle: hf.Handle[str], policy: EventPolicy) -> None:
    """The same event twice, by its id: what was dropped may be raised again, what was kept is taken once."""
    await env.skip(seconds=MINUTE / 2)
    is_kept = policy is EventPolicy.MAILBOX
    assert await handle.raise_event("data", "early", id="the event") is is_kept
    await env.skip(seconds=MINUTE)
    if not is_kept:
        assert (await handle.describe()).state == "RUNNING"
        assert await handle.raise_event("data", "late", id="the event")
    assert await handle.result() == ("early" if is_kept else "late")
    assert rows(path_of(env), "SELECT count(*) FROM received") == [(1,)]
    check(env)


@POLICIES
def test_G6_unmatched_events_of_an_execution_are_carried_over_or_not(policy: EventPolicy) -> None:
    """Cross-execution isolation: under the seed's policy nothing unmatched reaches the next execution."""

    @hf.workflow(event_policy=policy)
    async def changes(execution: int = 1) -> str:
        if execution == 1:
            await asyncio.sleep(MINUTE)
            hf.continue_as_new(2)
        try:
            async with asyncio.timeout(MINUTE):
                return await hf.event("data", str)
        except TimeoutError:
            return "nothing came"

    async def scenario(env: Environment) -> None:
        handle = await env.start(changes, id="it")
        await env.skip(seconds=MINUTE / 2)
        await handle.raise_event("data", "for the first")
        expected = "for the first" if policy is EventPolicy.MAILBOX else "nothing came"
        assert await handle.result() == expected
        check(env)

    skipping(changes).run_sync(scenario)


@POLICIES
def test_G7_event_after_completion_is_ignored(policy: EventPolicy) -> None:
    """``event_after_completion_is_ignored_fs``: nothing changes, and the sender is told."""

    @hf.workflow(event_policy=policy)
    async def short() -> str:
        return await hf.event("data", str)

    async def scenario(env: Environment) -> None:
        handle = await env.start(short, id="it", event=("data", "first"))
        assert await handle.result() == "first"
        before = await handle.history()
        with pytest.raises(hf.InstanceClosed):
            await handle.raise_event("data", "second")
        assert await handle.history() == before
        assert await handle.result() == "first"
        check(env)

    skipping(short).run_sync(scenario)


def racing(policy: EventPolicy) -> hf.Workflow[[], str]:
    """Whatever comes first, and what comes after it is not lost on anybody."""

    @hf.workflow(name="race", event_policy=policy)
    async def race() -> str:
        timer = asyncio.create_task(asyncio.sleep(MINUTE, "timer"))
        event = asyncio.create_task(hf.event("data", str))
        done, _ = await asyncio.wait({timer, event}, return_when=asyncio.FIRST_COMPLETED)
        return " and ".join(sorted(task.result() for task in done))

    return race


@POLICIES
@pytest.mark.parametrize(("at_second", "winner"), [(MINUTE - 1, "event"), (MINUTE + 1, "timer")])
def test_G10_races_of_an_event_and_a_timer(policy: EventPolicy, at_second: int, winner: str) -> None:
    """``e2e_races``: whichever comes first wins, and exactly one does."""

    async def scenario(env: Environment) -> None:
        handle = await env.start(race, id="it")
        await env.skip(seconds=at_second)
        if winner == "event":
            await handle.raise_event("data", "event")
        else:
            with pytest.raises(hf.InstanceClosed):
                await handle.raise_event("data", "event")
        assert await handle.result() == winner
        check(env)

    race = racing(policy)
    skipping(race).run_sync(scenario)


@POLICIES
@pytest.mark.parametrize(("at_second", "winner"), [(MINUTE // 2, "event"), (2 * MINUTE, "timer")])
def test_G10_races_that_were_decided_while_nobody_was_there(
    tmp_path: Path, policy: EventPolicy, at_second: int, winner: str
) -> None:
    """``e2e_races``, after downtime: the event and the timer are taken in the order in which they were due."""
    clock = ShiftedClock()
    race = racing(policy)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, race, providers=clock) as engine:
            await engine.start(race, id="it")
        clock.shift_ms = at_second * 1_000
        client = await hf.connect(path, _platform=Platform(providers=clock))
        assert await client.get("it").raise_event("data", "event")
        await client.close()
        clock.shift_ms = 10 * MINUTE * 1_000
        async with engine_of(path, race, providers=clock) as engine:
            assert await engine.get("it").result(timeout=10) == winner
        check_tables(path)
        assert audit(path) == []

    together(scenario())


@POLICIES
def test_G1_starts_while_it_is_active_are_the_same_instance(tmp_path: Path, policy: EventPolicy) -> None:
    """The start gate: one loop runs an instance, whoever starts it however often, and its end lets go of it."""

    @hf.workflow(event_policy=policy)
    async def once() -> int:
        first = await step(0)
        await asyncio.sleep(0.01)
        return await step(first)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, step, once) as one, engine_of(path, step, once) as other:
            starts = (engine.run(once, id="it") for _ in range(5) for engine in (one, other))
            results: list[Any] = await asyncio.gather(*starts)
            assert results == [2] * 10
        assert rows(path, "SELECT count(*) FROM attempts") == [(2,)]
        assert rows(path, "SELECT owner, claimable_at_ms FROM instances") == [(None, None)]
        assert audit(path) == []

    together(scenario())


@POLICIES
def test_G2_a_run_that_breaks_off_lets_go_of_its_instance(policy: EventPolicy) -> None:
    """The active mark goes on every way out: by an exception, and by the death of the worker."""

    @hf.workflow(event_policy=policy)
    async def breaks(number: int) -> int:
        if number:
            raise ZeroDivisionError("a bug")
        return await hf.event("data", int)

    async def scenario(env: Environment) -> None:
        with pytest.raises(hf.WorkflowFailed, match="a bug"):
            await env.run(breaks, 1, id="bug")
        handle = await env.start(breaks, 0, id="death")
        env.crash(before="event_received")
        assert await handle.raise_event("data", 7)
        assert await handle.result() == 7
        assert env.deaths == 1
        check(env)

    skipping(breaks).run_sync(scenario)


@POLICIES
def test_G8_rehydration_keeps_activities_and_timers_as_they_were(tmp_path: Path, policy: EventPolicy) -> None:
    """Rehydration on activation: what was scheduled is neither lost nor doubled, and timers keep their due times."""
    running, go_on = asyncio.Event(), asyncio.Event()

    @hf.activity
    async def slow() -> str:
        running.set()
        await go_on.wait()
        return "answer"

    @hf.workflow(event_policy=policy)
    async def waits() -> list[str]:
        return list(await asyncio.gather(slow(), asyncio.sleep(0.3, "timer")))

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, slow) as elsewhere:
            assert elsewhere._local.running is not None
            async with engine_of(path, waits) as engine:
                await engine.start(waits, id="it")
                due = rows(path, "SELECT due_at_ms FROM timers")
                await running.wait()
            async with engine_of(path, waits) as engine:
                assert rows(path, "SELECT due_at_ms FROM timers") == due
                go_on.set()
                assert await engine.get("it").result(timeout=10) == ["answer", "timer"]
        assert rows(path, "SELECT activity, attempt, state FROM attempts") == [(0, 1, "COMPLETED")]
        assert audit(path) == []

    together(scenario())
