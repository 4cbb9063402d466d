"""Each part of a worker returns or releases what it holds, also when a step fails (decision 36)."""

import asyncio
import logging
from pathlib import Path
from typing import Any, cast

import pytest
from tests.scenarios.support import check_tables, engine_of, together, until
from tests.support.inside import free_slots, live_instances, slot_count, turns_of, worker_of
from tests.support.workers import EndlessLease

import holdfast as hf
from holdfast.authoring.log import records
from holdfast.authoring.registry import Registry
from holdfast.core.leases import WorkerKey
from holdfast.errors import UsageError
from holdfast.runtime.attempts.slots import ActivitySlots
from holdfast.runtime.platform import Platform
from holdfast.runtime.session import StoreSession
from holdfast.runtime.signals import PollSignal
from holdfast.runtime.turns import turn_builder
from holdfast.runtime.worker_lease import WorkerLease
from holdfast.storage.contract import StoreDefaults
from holdfast.storage.members.messages import DeleteQueries
from holdfast.storage.members.outcomes import Applied, Delivered, Outcome
from holdfast.testing.conformance.bench import HERE


@hf.activity
async def double(number: int) -> int:
    return number * 2


@hf.workflow
async def twice(number: int) -> int:
    return await double(await double(number))


@hf.workflow
async def listens() -> str:
    return await hf.event("word", str)


def test_G11_the_fault_hook_sees_only_commits_of_the_worker(tmp_path: Path) -> None:
    seen: list[object] = []

    async def scenario() -> None:
        platform = Platform(fault_hook=lambda _, members: seen.extend(members))
        async with hf.connect(tmp_path / "shop.db", workflows=[twice], _platform=platform) as client:
            await client.start(twice, 1, id="a")
            assert seen == []
            async with hf.Worker(client, workflows=[twice], activities=[double]):
                assert await client.get("a").result(timeout=10) == 4
            assert seen

    together(scenario())


def test_W7_a_killed_engine_commits_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = engine_of(tmp_path / "shop.db", double, twice)
        await engine.open()
        await worker_of(engine).kill()
        await engine._kill()
        outcomes: list[Outcome] = []
        engine._local.committer.submit(DeleteQueries(), outcomes.append)
        assert not engine._local.committer.is_writing
        assert outcomes == []

    together(scenario())


def test_releasing_no_slot_signals_nothing() -> None:
    work = PollSignal()
    slots = ActivitySlots(Registry((), (), (double,)), ("default",), 1, work)
    slots.has_backlog = True
    slots.release(0)
    assert not work.is_set()
    slots.release()
    assert work.is_set()


def test_A5_a_turn_that_cannot_be_stored_keeps_no_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = turn_builder._encoded
    calls: list[int] = []

    def fails_for_second_turns(*given: Any) -> Any:
        calls.append(1)
        if len(calls) % 2 == 0:
            raise ValueError("cannot be stored")
        return encoded(*given)

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", double, twice, max_activities=2) as engine:
            monkeypatch.setattr(turn_builder, "_encoded", fails_for_second_turns)
            for number in range(3):
                with pytest.raises(hf.WorkflowBlocked):
                    await engine.run(twice, number)
            worker = worker_of(engine)
            await until(lambda: free_slots(worker) == slot_count(worker))

    together(scenario())


def test_G2_an_unexpected_outcome_of_a_turn_releases_the_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", double, twice, listens) as engine:
            taker = turns_of(worker_of(engine))
            on_outcome = taker._on_outcome
            replaced: list[Outcome] = []

            def unexpected(live: Any, built: Any, applied: Any, outcome: Outcome) -> None:
                if not replaced:
                    replaced.append(outcome)
                    outcome = cast("Outcome", Delivered(instance=cast("Any", None), verdict=cast("Any", None)))
                on_outcome(live, built, applied, outcome)

            monkeypatch.setattr(taker, "_on_outcome", unexpected)
            assert await asyncio.wait_for(engine.run(twice, 1, id="a"), 10) == 4
            assert [type(outcome) for outcome in replaced] == [Applied]
            await until(lambda: not live_instances(worker_of(engine)))
        check_tables(tmp_path / "shop.db")

    with caplog.at_level(logging.ERROR, "holdfast"):
        together(scenario())
    assert "had the outcome Delivered" in caplog.text


def test_a_refused_second_worker_leaves_nothing_installed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            hf.connect(tmp_path / "shop.db") as client,
            hf.Worker(client, workflows=[twice], activities=[double]),
        ):
            installed = records._users
            with pytest.raises(UsageError, match="has a worker already"):
                await hf.Worker(client, workflows=[twice], activities=[double]).__aenter__()
            assert records._users == installed

    together(scenario())


class Events:
    """Stops replacing keys while the first replacement is reported, then loses the new key."""

    def __init__(self) -> None:
        self.lease: WorkerLease | None = None
        self.lost = 0

    def lease_lost(self) -> None:
        self.lost += 1

    async def lease_replaced(self, old: WorkerKey) -> None:
        assert self.lease is not None
        assert old == "key 1"
        self.lease.stop_replacing()
        self.lease.expired()
        await asyncio.sleep(0.01)

    def instances_released(self) -> None:
        raise AssertionError


def test_W10_a_stopping_worker_replaces_no_key_that_is_lost_during_a_replacement() -> None:
    made: list[EndlessLease] = []

    def make_lease(*_: object, **__: object) -> EndlessLease:
        made.append(EndlessLease(f"key {len(made) + 1}"))
        return made[-1]

    async def scenario() -> None:
        platform = Platform(make_lease=cast("Any", make_lease))
        session = StoreSession(cast("Any", Quiet()), platform)
        events = Events()
        lease = events.lease = WorkerLease(session, lambda: HERE, lease_ms=1_000, events=events)
        await lease.register(cast("Any", None))
        lease.expired()
        await until(lambda: events.lost == 2)
        await lease._replacing.wait()
        assert len(made) == 2
        assert not lease.is_valid
        await lease.close()

    together(scenario())


class Quiet(StoreDefaults):
    """A store without rows."""

    @property
    def companion_path(self) -> Path:
        return Path("none.db")
