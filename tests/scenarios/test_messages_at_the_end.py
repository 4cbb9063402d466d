"""G14: messages that are there when the main function ends reach the code before the terminal commit."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.scenarios.held import HeldTurns, store_at
from tests.scenarios.support import check_tables, engine_of, history_of, rows, together, until
from tests.support.inside import live_instances, worker_of

import holdfast as hf
from holdfast.core.history import EventReceived, Payload, UpdateAccepted
from holdfast.runtime.turns.turn_taker import MAX_REFUSED_ENDS
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import CommitId, InstanceId
from holdfast.storage.wakeups import Notify, ignore_wakeups

heard: list[str] = []


@hf.activity
async def step() -> str:
    return "done"


@hf.workflow
async def takes_updates() -> str:
    got: list[str] = []
    hf.on_query("got")(lambda: got)

    @hf.on_update
    def add(text: str) -> str:
        got.append(text)
        return f"added {len(got)}"

    @hf.on_update
    async def add_slowly(text: str) -> str:
        await step()
        return text

    return f"ended with {got}"


@hf.workflow
async def listens() -> str:
    got: list[str] = []
    hf.on_query("got")(lambda: got)

    async def pump() -> None:
        async for text in hf.events("sig", str):
            got.append(text)
            heard.append(text)

    listening = asyncio.create_task(pump())
    await asyncio.sleep(0)
    return f"ended {listening.done()}"


@hf.workflow
async def goes_round(number: int) -> list[str]:
    got: list[str] = []

    @hf.on_update
    def add(text: str) -> str:
        got.append(text)
        return f"added in {number}"

    if number == 1:
        hf.continue_as_new(2)
    await hf.wait_until(lambda: bool(got))
    return got


ALL: tuple[Any, ...] = (step, takes_updates, listens, goes_round)


def _check(path: Path, number: int) -> None:
    """What replay makes of the history is what was recorded, also by another process."""
    check_tables(path)
    at_end = [event for event in history_of(path, number) if isinstance(event, EventReceived | UpdateAccepted)]
    assert at_end
    assert all(event.at_end for event in at_end)


async def _replayed(path: Path) -> Any:
    """What a replay of the whole history ends with."""
    async with await hf.connect(path, workflows=[takes_updates, listens]) as client:
        return await client.get("it").query("got")


def test_G14_an_update_that_was_sent_before_the_first_turn_is_handled_before_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with await hf.connect(path) as client:
            handle = await client.start("takes_updates", id="it")
            async with asyncio.TaskGroup() as group:
                first = group.create_task(handle.update("add", "x"))
                await until(lambda: len(rows(path, "SELECT 1 FROM inbox")) == 2)
                second = group.create_task(handle.update("add", "y"))
                slow = group.create_task(_unfinished(handle))
                await until(lambda: len(rows(path, "SELECT 1 FROM inbox")) == 4)
                async with engine_of(path, *ALL):
                    assert await handle.result(timeout=10) == "ended with []"
                    assert (await first, await second) == ("added 1", "added 2")
                    assert "ended before its update 'add_slowly' was done" in await slow
        _check(path, 1)
        assert await _replayed(path) == ["x", "y"]

    together(scenario())


async def _unfinished(handle: hf.Handle[Any]) -> str:
    with pytest.raises(hf.errors.UpdateUnfinished) as caught:
        await handle.update("add_slowly", "z")
    return str(caught.value)


def test_G14_events_that_were_raised_before_the_first_turn_reach_their_waits_before_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        heard.clear()
        path = tmp_path / "shop.db"
        async with await hf.connect(path) as client:
            handle = await client.start("listens", id="it", event=("sig", "first"))
            await handle.raise_event("other", "no code waits for it")
            await handle.raise_event("sig", "last")
            async with engine_of(path, *ALL):
                assert await handle.result(timeout=10) == "ended False"
        assert heard == ["first", "last"]
        _check(path, 1)
        assert await _replayed(path) == ["first", "last"]

    together(scenario())


def test_G14_the_event_of_a_start_reaches_code_that_ends_in_its_first_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        heard.clear()
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(listens, id="it", event=("sig", "with the start"))
            assert await handle.result(timeout=10) == "ended False"
            assert heard == ["with the start"]
            with pytest.raises(hf.InstanceClosed):
                await engine.start(listens, id="it", event=("sig", "too late"))
        _check(path, 1)

    together(scenario())


def test_G4_an_update_at_a_continue_as_new_goes_to_the_next_execution(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with await hf.connect(path) as client:
            handle = await client.start("goes_round", 1, id="it")
            async with asyncio.TaskGroup() as group:
                sent = group.create_task(handle.update("add", "x"))
                await until(lambda: len(rows(path, "SELECT 1 FROM inbox")) == 2)
                async with engine_of(path, *ALL):
                    assert await sent == "added in 2"
                    assert await handle.result(timeout=10) == ["x"]
        check_tables(path)

    together(scenario())


def test_G14_it_is_so_in_every_turn_that_ends_the_code(tmp_path: Path) -> None:
    """Two answers and an update are applied in one turn: the first answer ends the code."""
    cleaned: list[str] = []

    @hf.workflow
    async def ends_later() -> str:
        @hf.on_update
        def add(text: str) -> str:
            return f"added {text}"

        async def other() -> None:
            try:
                await hf.event("other")
            finally:
                cleaned.append(await step())

        left_over = asyncio.create_task(other())
        await hf.event("go")
        await hf.event("go")
        return f"ended {left_over.done()}"

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        store = store_at(path)
        held = HeldTurns(store)
        async with engine_of(store, ends_later, step) as engine:
            handle = await engine.start(ends_later, id="it")
            async with asyncio.TaskGroup() as group:
                group.create_task(handle.raise_event("go"))
                await held.is_stuck.wait()
                async with await hf.connect(path) as client:
                    await client.get("it").raise_event("go")
                    sent = group.create_task(client.get("it").update("add", "x"))
                    await until(lambda: len(rows(path, "SELECT 1 FROM inbox")) == 2)
                    [live] = live_instances(worker_of(engine)).values()
                    await until(lambda: len(live.queue) == 2)
                    held.go_on.set()
                    assert await sent == "added x"
                    assert await handle.result(timeout=10) == "ended False"
        assert cleaned == ["done"]
        check_tables(path)

    together(scenario())


@pytest.mark.parametrize("cache_size", [1_000, 0])
def test_G14_messages_that_the_owner_has_not_read_yet_reach_the_code_before_the_end(
    tmp_path: Path, cache_size: int
) -> None:
    """The message is in the inbox when the activity ends for which the main function waits."""
    gate = asyncio.Event()
    got: list[int] = []

    @hf.activity
    async def wait_at_gate() -> None:
        await gate.wait()

    @hf.workflow
    async def ends_at_gate() -> str:
        @hf.on_update
        def add(number: int) -> int:
            return number + 1

        async def pump() -> None:
            async for number in hf.events("sig", int):
                got.append(number)

        listening = asyncio.create_task(pump())
        await wait_at_gate()
        return f"ended {listening.done()}"

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        definitions = (ends_at_gate, wait_at_gate)
        async with engine_of(path, *definitions, cache_size=cache_size) as engine, await hf.connect(path) as client:
            with_event = await engine.start(ends_at_gate, id="event")
            assert await client.get("event").raise_event("sig", 7)
            gate.set()
            assert await with_event.result(timeout=10) == "ended False"
            gate.clear()
            with_update = await engine.start(ends_at_gate, id="update")
            async with asyncio.TaskGroup() as group:
                sent = group.create_task(client.get("update").update("add", 7))
                await until(lambda: sent.done() or rows(path, "SELECT 1 FROM inbox"))
                gate.set()
                assert await sent == 8
                assert await with_update.result(timeout=10) == "ended False"
        assert 7 in got
        assert any(isinstance(event, EventReceived) for event in history_of(path, 1))
        check_tables(path)

    together(scenario())


def test_G14_a_sender_without_pause_does_not_keep_the_code_from_its_end(tmp_path: Path) -> None:
    """Before each commit of a last turn one more event is stored: after a bounded number of tries the end counts."""
    tries = 0

    @hf.workflow
    async def ends_after_a_step() -> str:
        async def pump() -> None:
            async for _ in hf.events("sig", str):
                pass

        listening = asyncio.create_task(pump())
        await step()
        return f"ended {listening.done()}"

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        store = store_at(path)
        commit = store.commit

        async def send_and_commit(
            commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
        ) -> list[Outcome]:
            nonlocal tries
            for member in members:
                if isinstance(member, Turn) and member.effects is not None and member.effects.close is not None:
                    tries += 1
                    value = Payload(msgspec.Raw(b'"more"'))
                    more = Deliver(id=InstanceId("it"), event=EventReceived(time_ms=0, name="sig", value=value))
                    await commit(CommitId(10_000 + tries), [more])
            outcomes: list[Outcome] = await commit(commit_id, members, notify)
            return outcomes

        store.commit = send_and_commit
        async with engine_of(store, ends_after_a_step, step) as engine:
            handle = await engine.start(ends_after_a_step, id="it")
            assert await handle.result(timeout=30) == "ended False"
        assert tries == MAX_REFUSED_ENDS + 1
        received = [event for event in history_of(path, 1) if isinstance(event, EventReceived)]
        assert len(received) == MAX_REFUSED_ENDS
        check_tables(path)

    together(scenario())
