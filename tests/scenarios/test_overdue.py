"""Deadlines are any worker's duty (C1): with the code or without, after crashes, beside others."""

import asyncio
import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import engine_of, rows, skipping, together, until
from tests.scenarios.test_deadlines import (
    ALL,
    CACHES,
    DAY,
    answers,
    check,
    compensates,
    dawdles,
    failure_of,
    kinds_of,
    rounds,
    sleeps,
    undo,
)
from tests.support.inside import live_instances, poll, worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.runtime.platform import FaultPoint
from holdfast.storage.members.instances import Expire, SetDeadline
from holdfast.storage.members.member import Member
from holdfast.testing.environment import Environment
from holdfast.testing.simulation.simulation import kill_engine


def test_C1_a_worker_without_the_code_ends_what_nobody_begins(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path, workflows=[sleeps])
        handle = await client.start(sleeps, id="it", deadline=0.05)
        async with engine_of(path, undo):
            assert "before it began" in str(await failure_of(handle, 20))
        assert await kinds_of(handle) == ["started", "deadline_passed"]
        await client.close()
        assert audit(path) == []

    together(scenario())


def test_C1_a_worker_without_the_code_asks_and_ends_it_after_the_grace(tmp_path: Path) -> None:
    @hf.workflow(name="left", deadline=DAY, deadline_grace=0.1)
    async def left() -> None:
        await asyncio.sleep(DAY)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, left) as engine:
            await engine.start(left, id="it")
        make_due(path)
        async with engine_of(path, undo) as other:
            handle = other.get("it")
            assert "did not end within the grace" in str(await failure_of(handle, 20))
        assert audit(path) == []

    together(scenario())


def make_due(path: Path) -> None:
    """All deadlines have passed by now."""
    rows(path, "UPDATE instances SET deadline_at_ms = created_at_ms + 1, expires_at_ms = created_at_ms + 1")


def test_A9_R25_what_is_paused_is_asked_at_its_resume_and_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(sleeps, id="it", deadline=DAY)
            await handle.pause()
        make_due(path)
        async with engine_of(path, *ALL) as engine:
            await until(lambda: rows(path, "SELECT 1 FROM instances WHERE expires_at_ms IS NULL"))
            assert (await engine.get("it").describe()).state == "PAUSED"
            await engine.get("it").resume()
            assert "grace" not in str(await failure_of(engine.get("it"), 20))
        assert audit(path) == []

    together(scenario())


@hf.workflow(name="changes")
async def before() -> None:
    await asyncio.sleep(100 * DAY)


@hf.workflow(name="changes")
async def after() -> None:
    await undo("something else")


def test_G12_what_is_blocked_fails_at_its_deadline(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, undo, before) as engine:
            await engine.start(before, id="it", deadline=DAY)
        rows(path, "UPDATE instances SET claimable_at_ms = 0")
        async with Environment(path, workflows=[after], activities=[undo]) as wrong:
            with pytest.raises(hf.WorkflowBlocked):
                await wrong.get("it").result(timeout=10)
            await wrong.skip(days=2)
            assert "while it was blocked" in str(await failure_of(wrong.get("it")))
        assert audit(path) == []

    asyncio.run(scenario())


def test_whoever_first_runs_an_instance_says_the_deadline_that_its_starter_did_not_know(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path)
        unknown = await client.start("answers", id="unknown")
        none = await client.start("answers", id="none", deadline=None)
        assert (await unknown.describe()).deadline is None
        async with Environment(path, workflows=[answers]) as env:
            assert "1 d" in await env.get("unknown").result(timeout=10 * DAY)
            described = await unknown.describe()
            assert described.deadline == described.created_at + dt.timedelta(days=1)
            assert await env.get("none").result(timeout=1_000 * DAY) == "done"
            assert (await none.describe()).deadline is None
        await client.close()
        assert audit(path) == []

    asyncio.run(scenario())


def test_a_deadline_that_passes_while_nobody_is_there_is_acted_upon_by_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with Environment(path, workflows=[compensates], activities=[undo]) as first:
            await first.start(compensates, id="it")
            await kill_engine(first)
        async with Environment(path, workflows=[compensates], activities=[undo]) as second:
            await second.skip(days=40)
            await failure_of(second.get("it"))
            assert second.calls(undo) == [{"what": "the booking"}]
        assert audit(path) == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("workflow", "args"),
    [
        (compensates, ()),
        (dawdles, (7_200.0,)),
        pytest.param(answers, (), marks=pytest.mark.slow),
        pytest.param(rounds, (), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_L13_a_crash_at_every_commit_leaves_one_failure_after_one_clean_up(
    workflow: hf.Workflow[..., Any], args: tuple[float, ...]
) -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            report = await env.crash_at_every_commit(workflow, *args)
            report.check()
            assert report.crashes > 4
            assert "deadline of" in report.result

    asyncio.run(scenario())


@CACHES
def test_of_two_engines_one_acts_and_the_code_is_asked_once(tmp_path: Path, cache_size: int) -> None:
    @hf.workflow(name="shared", deadline=DAY)
    async def shared() -> None:
        try:
            await asyncio.sleep(DAY)
        finally:
            await undo("it")

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with (
            engine_of(path, undo, shared, cache_size=cache_size) as one,
            engine_of(path, undo, shared, cache_size=cache_size) as other,
        ):
            handles = [await (one, other)[number % 2].start(shared, id=str(number)) for number in range(20)]
            await until(lambda: rows(path, "SELECT count(*) FROM timers") == [(20,)])
            make_due(path)
            for engine in (one, other):
                poll(worker_of(engine))
            for handle in handles:
                await failure_of(handle, 20)
                assert (await kinds_of(handle)).count("cancel_requested") == 1
            assert rows(path, "SELECT count(*) FROM attempts WHERE state = 'COMPLETED'") == [(20,)]
            check(one)

    together(scenario())


def test_whoever_waits_is_told_at_once_and_bodies_are_told_to_stop() -> None:
    stopped = asyncio.Event()

    @hf.activity
    async def lingers() -> None:
        try:
            await asyncio.sleep(10 * DAY)
        finally:
            stopped.set()

    @hf.workflow(deadline=DAY, deadline_grace=0)
    async def waits() -> None:
        await lingers()

    async def scenario() -> None:
        async with skipping(lingers, waits) as env:
            handle = await env.start(waits, id="it")
            await failure_of(handle)
            assert not live_instances(worker_of(env))
            await stopped.wait()
            assert (await handle.describe()).attempts[0].state in ("CANCELLED_RUNNING", "CANCELLED")
            check(env)

    asyncio.run(scenario())


def test_without_a_deadline_nothing_is_written_or_waited_for(tmp_path: Path) -> None:
    seen: list[type] = []

    def note(point: FaultPoint, members: Sequence[Member]) -> None:
        del point
        seen.extend(type(member) for member in members)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, fault_hook=note) as engine:
            await engine.start(sleeps, id="it")
            assert rows(path, "SELECT deadline_at_ms, grace_ms, expires_at_ms FROM instances") == [(None,) * 3]
            due = await engine._session.store.next_due(workflows=(), queues=(), names=())
            assert due.earliest_ms is None
        assert not {Expire, SetDeadline} & set(seen)

    together(scenario())
