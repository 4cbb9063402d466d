"""Events (G6, G7): raised from outside or by other workflows, kept or dropped, each delivered once and in order."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, history_of, rows, together, until

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.core.history import EventWaitEnded

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@dataclass(frozen=True)
class Approval:
    ok: bool
    by: str


approval = hf.Event[Approval]("approval")


@hf.workflow
async def waits_for_one() -> str:
    given = await hf.event("approval", Approval)
    return f"{given.by}: {given.ok}"


@hf.workflow
async def waits_on_a_channel() -> str:
    return (await approval).by


@hf.workflow
async def collects(count: int) -> list[int]:
    found: list[int] = []
    async for number in hf.events("number", int):
        found.append(number)
        if len(found) == count:
            break
    return found


@hf.workflow
async def two_waits() -> list[str]:
    return list(await asyncio.gather(hf.event("name", str), hf.event("name", str)))


@hf.workflow
async def waits_a_moment() -> str:
    try:
        async with asyncio.timeout(0.02):
            await hf.event("never", str)
    except TimeoutError:
        return await hf.event("never", str)
    return "never"


@hf.workflow
async def sleeps_first() -> list[str]:
    await asyncio.sleep(0.5)
    return [await hf.event("b", str), await hf.event("a", str)]


@hf.workflow
async def tells(target: str) -> None:
    for number in range(3):
        hf.raise_event(target, "number", number)
    await asyncio.sleep(0)


@hf.workflow(event_policy="drop_unsubscribed")
async def drops() -> str:
    await hf.event("go", str)
    return await hf.event("data", str)


@hf.workflow(mailbox_limit=2)
async def small() -> None:
    await hf.event("stop")


ALL = (
    *(waits_for_one, waits_on_a_channel, collects, two_waits, waits_a_moment),
    *(sleeps_first, tells, drops, small),
)


@CACHES
def test_G6_an_event_reaches_the_wait_for_its_name_with_its_type(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(waits_for_one, id="order")
            assert await handle.raise_event("approval", Approval(ok=True, by="ann"))
            assert await handle.result(timeout=10) == "ann: True"
            channel = await engine.start(waits_on_a_channel, id="channel")
            assert await channel.raise_event(approval, Approval(ok=False, by="bert"))
            assert await channel.result(timeout=10) == "bert"
        check_tables(tmp_path / "shop.db")
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
def test_G6_events_are_kept_until_somebody_waits_and_come_in_the_order_of_their_sender(
    tmp_path: Path, cache_size: int
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            early = await engine.start(sleeps_first, id="early")
            for name, value in (("a", "first"), ("b", "second"), ("a", "third")):
                await early.raise_event(name, value)
            assert await early.result(timeout=10) == ["second", "first"]
            many = await engine.start(collects, 50, id="many")
            for number in range(50):
                await many.raise_event("number", number)
            assert await many.result(timeout=10) == list(range(50))
        assert rows(tmp_path / "shop.db", "SELECT count(*) FROM inbox") == [(0,)]
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@CACHES
def test_G6_each_wait_gets_one_and_a_wait_that_gave_up_leaves_the_event_to_the_next(
    tmp_path: Path, cache_size: int
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            both = await engine.start(two_waits, id="both")
            await both.raise_event("name", "ann")
            await both.raise_event("name", "bert")
            assert await both.result(timeout=10) == ["ann", "bert"]
            late = await engine.start(waits_a_moment, id="late")
            assert late.number is not None
            number = late.number
            await until(lambda: EventWaitEnded in map(type, history_of(tmp_path / "shop.db", number)))
            await late.raise_event("never", "after all")
            assert await late.result(timeout=10) == "after all"
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


def test_G6_the_same_id_is_delivered_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(collects, 2, id="it")
            for _ in range(3):
                assert await handle.raise_event("number", 1, id="one")
            await handle.raise_event("number", 2, id="two")
            assert await handle.result(timeout=10) == [1, 2]

    together(scenario())


def test_G6_drop_unsubscribed_drops_with_a_warning_what_nobody_waits_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(drops, id="it")
            assert not await handle.raise_event("data", "too early")
            assert await handle.raise_event("go", "now")
            await until(lambda: rows(tmp_path / "shop.db", "SELECT 1 FROM instances WHERE waits LIKE '%data%'"))
            assert await handle.raise_event("data", "in time")
            assert await handle.result(timeout=10) == "in time"

    together(scenario())
    assert "was dropped: the workflow does not wait for it" in caplog.text


def test_G6_a_full_mailbox_is_a_typed_error_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(small, id="it")
            await handle.raise_event("other", 1)
            await handle.raise_event("other", 2)
            with pytest.raises(hf.MailboxFull, match="mailbox of 'it' is full"):
                await handle.raise_event("other", 3)
            assert rows(tmp_path / "shop.db", "SELECT count(*) FROM inbox") == [(2,)]
            await handle.raise_event("stop")
            await handle.result(timeout=10)
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


def test_G7_to_a_finished_or_unknown_instance_the_sender_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(collects, 1, id="it")
            await handle.raise_event("number", 1)
            await handle.result(timeout=10)
            with pytest.raises(hf.InstanceClosed, match="'it' is COMPLETED"):
                await handle.raise_event("number", 2)
            with pytest.raises(hf.InstanceNotFound, match="nobody"):
                await engine.get("nobody").raise_event("number", 1)
            with pytest.raises(hf.PayloadError, match="event 'number'"):
                await handle.raise_event("number", object())
            with pytest.raises(hf.InvalidId):
                await handle.raise_event("", 1)

    together(scenario())


@CACHES
def test_G11_a_workflow_raises_events_to_another_with_its_turn(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            collector = await engine.start(collects, 3, id="collector")
            await engine.run(tells, "collector", id="teller")
            assert await collector.result(timeout=10) == [0, 1, 2]
            await engine.run(tells, "nobody", id="lost")  # refused, and in nobody's way
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


def test_events_are_raised_from_another_process_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(waits_for_one, id="order")
            client = await hf.connect(path)
            await client.get("order").raise_event("approval", {"ok": True, "by": "carla"})
            await client.close()
            assert await handle.result(timeout=10) == "carla: True"

    together(scenario())


def test_an_event_waits_for_an_instance_that_nobody_runs_yet(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path, workflows=[waits_for_one])
        handle = await client.start(waits_for_one, id="order")
        await handle.raise_event(approval, Approval(ok=True, by="dora"))
        async with engine_of(path, *ALL) as engine:
            assert await engine.get("order").result(timeout=10) == "dora: True"
        await client.close()

    together(scenario())


def test_what_is_waited_for_is_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(waits_for_one, id="order")
            found = await handle.describe()
            assert (found.waiting_for, found.collation_key) == (["event approval"], "5")
            await handle.raise_event(approval, Approval(ok=True, by="ann"))
            await handle.result(timeout=10)
            assert (await handle.describe()).collation_key == "4"

    together(scenario())


@CACHES
def test_an_event_may_come_with_the_start_in_one_commit(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            first = await engine.start(collects, 2, id="it", event=("number", 1))
            again = await engine.start(collects, 2, id="it", event=("number", 2))
            assert not again.is_new
            assert await first.result(timeout=10) == [1, 2]
            with pytest.raises(hf.InstanceClosed, match="the event 'number' was not delivered"):
                await engine.start(collects, 2, id="it", event=("number", 3))
            typed = await engine.start(waits_on_a_channel, id="typed", event=(approval, Approval(ok=True, by="ann")))
            assert await typed.result(timeout=10) == "ann"
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


def test_a_start_that_is_refused_raises_no_event(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            await engine.start(collects, 2, id="it")
            with pytest.raises(hf.InstanceConflict):
                await engine.start(collects, 3, id="it", event=("number", 1))
            assert rows(tmp_path / "shop.db", "SELECT count(*) FROM inbox") == [(0,)]

    together(scenario())
