"""Queries (G11): a workflow's own functions answer from its committed state, and nothing is changed by asking."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, history_of, rows, skipping, together, until

import holdfast as hf
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import CommitId
from holdfast.storage.sqlite.store import SqliteStore
from holdfast.storage.wakeups import Notify, ignore_wakeups

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@dataclass(frozen=True)
class Stock:
    name: str
    pieces: int


total = hf.Query[int]("total")


@hf.activity
async def step(number: int) -> int:
    return number + 1


@hf.workflow
async def counts(until_sum: int = 1_000) -> int:
    found: list[int] = []

    @hf.on_query
    def status(greeting: str = "sum") -> str:
        return f"{greeting} {sum(found)}"

    @hf.on_query("stock")
    def as_stock(name: str, factor: int) -> Stock:
        return Stock(name, factor * len(found))

    @hf.on_query(total)
    def sum_of_all() -> int:
        return sum(found)

    hf.state["started"] = True
    async for number in hf.events("number", int):
        found.append(number)
        if sum(found) >= until_sum:
            break
    return sum(found)


@hf.workflow
async def steps() -> int:
    done = 0

    @hf.on_query
    def progress() -> int:
        return done

    for number in range(20):
        await step(number)
        done += 1
    return done


@hf.workflow
async def goes_round(number: int) -> int:
    @hf.on_query
    def which() -> int:
        return number

    await hf.event("next")
    if number < 3:
        hf.continue_as_new(number + 1)
    return number


ALL = (step, counts, steps, goes_round)


@CACHES
def test_G11_a_query_is_answered_from_the_committed_state_with_its_types(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(counts, id="it")
            assert await handle.query("status") == "sum 0"
            for number in (3, 4):
                await handle.raise_event("number", number)
            await until(lambda: len(history_of(tmp_path / "shop.db", 1)) == 6)
            assert await handle.query("status", "so far") == "so far 7"
            assert await handle.query(total) == 7
            assert await handle.query("stock", "pens", 5, returns=Stock) == Stock("pens", 10)
            assert await handle.query("stock", "pens", 5) == {"name": "pens", "pieces": 10}
        check_tables(tmp_path / "shop.db")

    together(scenario())


@CACHES
def test_G11_a_query_does_not_change_state_or_history(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(counts, id="it")
            await handle.raise_event("number", 3)
            await until(lambda: len(history_of(path, 1)) == 4)
            tables = ("instances", "history", "inbox", "timers", "attempts", "kept", "received")
            before = {table: rows(path, f"SELECT * FROM {table}") for table in tables}  # noqa: S608 - names from above
            for _ in range(5):
                assert await handle.query(total) == 3
            assert before == {table: rows(path, f"SELECT * FROM {table}") for table in tables}  # noqa: S608

    together(scenario())


def test_unknown_query_lists_the_handlers() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", *ALL) as engine:
            handle = await engine.start(counts, id="it")
            with pytest.raises(
                hf.errors.UnknownQuery, match=r"'it' has no query 'nope'; it has status, stock, total"
            ) as caught:
                await handle.query("nope")
            assert caught.value.handlers == ("status", "stock", "total")
            with pytest.raises(hf.QueryFailed, match="argument `factor` is missing") as failed:
                await handle.query("stock", "pens")
            assert isinstance(failed.value.cause, hf.PayloadError)
            with pytest.raises(hf.PayloadError, match="the answer to query 'status'"):
                await handle.query("status", returns=int)
            with pytest.raises(hf.InstanceNotFound, match="'nobody'"):
                await engine.get("nobody").query("status")

    together(scenario())


def test_a_handler_is_a_plain_function() -> None:
    @hf.workflow
    async def registers_a_coroutine() -> None:
        @hf.on_query
        async def status() -> str:
            return "never"

    async def scenario() -> None:
        async with engine_of(":memory:", registers_a_coroutine) as engine:
            with pytest.raises(hf.WorkflowFailed, match="the query 'status' must be answered by a plain `def`"):
                await engine.run(registers_a_coroutine, id="it")
        with pytest.raises(hf.errors.NotInWorkflow, match="on_query"):
            hf.on_query(lambda: 1)

    together(scenario())


@CACHES
def test_queries_after_the_end_are_answered_from_the_history(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL, cache_size=cache_size) as engine:
            done = await engine.start(counts, 5, id="done")
            await done.raise_event("number", 6)
            assert await done.result(timeout=10) == 6
            assert await done.query(total) == 6
            ended = await engine.start(counts, id="ended")
            await ended.raise_event("number", 2)
            await until(lambda: len(history_of(path, 2)) == 4)
            await ended.terminate("enough")
            assert await ended.query(total) == 2
        async with engine_of(path, *ALL) as later:
            assert await later.get("done").query(total) == 6

    together(scenario())


def test_G11_a_query_never_sees_a_turn_that_is_on_its_way_to_disk(tmp_path: Path) -> None:
    """While a turn is being written, the query waits for it; what it shows is on disk."""

    class SlowStore(SqliteStore):
        turns = 0

        async def commit(
            self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
        ) -> list[Outcome]:
            if any(isinstance(member, Turn) for member in members):
                for _ in range(30):
                    await asyncio.sleep(0)
                outcomes = await super().commit(commit_id, members, notify)
                self.turns += 1
                return outcomes
            return await super().commit(commit_id, members, notify)

    async def scenario() -> None:
        store = SlowStore(tmp_path / "shop.db", clock=SystemClockAndIds().now_ms)
        async with engine_of(store, *ALL) as engine:  # type: ignore[arg-type]
            handle = await engine.start(steps, id="it")
            seen: list[int] = []
            while not seen or seen[-1] < 20:
                before = store.turns
                seen.append(await handle.query("progress", returns=int))
                assert before <= seen[-1] <= store.turns
                await asyncio.sleep(0)
            assert seen == sorted(seen)
            assert len(set(seen)) > 5, "it was busy nearly all the time, and was answered all the same"

    together(scenario())


@CACHES
def test_G4_a_query_reaches_the_latest_execution(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL, cache_size=cache_size) as engine:
            handle = await engine.start(goes_round, 1, id="it")
            assert await handle.query("which") == 1
            await handle.raise_event("next")
            await until(lambda: rows(tmp_path / "shop.db", "SELECT execution FROM instances") == [(2,)])
            assert await handle.query("which") == 2

    together(scenario())


def test_C1_one_who_has_the_code_answers_for_an_instance_that_is_live_elsewhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as owner, engine_of(path, *ALL) as other:
            handle = await owner.start(counts, id="it")
            await handle.raise_event("number", 3)
            await until(lambda: len(history_of(path, 1)) == 4)
            assert await other.get("it").query(total) == 3
            client = await hf.connect(path, workflows=[counts])
            try:
                assert await client.get("it").query(total) == 3
            finally:
                await client.close()
            assert rows(path, "SELECT fence FROM instances") == [(1,)], "nobody else took it"

    together(scenario())


def test_a_query_before_the_first_turn_waits_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path, workflows=[counts])
        try:
            handle = await client.start(counts, id="it")
            with pytest.raises(TimeoutError, match="the query 'total' of 'it' was not answered in time"):
                await handle.query(total, timeout=0.01)
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(handle.query(total, timeout=10))
                async with engine_of(path, *ALL):
                    assert await asked == 0
        finally:
            await client.close()

    together(scenario())


def test_G12_a_blocked_instance_shows_its_last_good_turn_or_why_it_is_blocked(tmp_path: Path) -> None:
    @hf.workflow(name="counts")
    async def changed(until_sum: int = 1_000) -> None:
        await step(until_sum)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            handle = await engine.start(counts, id="it")
            await handle.raise_event("number", 3)
            await until(lambda: len(history_of(path, 1)) == 4)
        async with engine_of(path, step, changed) as engine:
            blocked = engine.get("it")
            await blocked.raise_event("number", 4)
            await until(lambda: rows(path, "SELECT state FROM instances") == [("BLOCKED",)])
            with pytest.raises(hf.WorkflowBlocked, match="it is blocked: HistoryMismatch"):
                await blocked.query(total)
            client = await hf.connect(path, workflows=[counts])
            try:
                assert await client.get("it").query(total) == 3
            finally:
                await client.close()

    together(scenario())


def test_what_was_ended_before_it_began_cannot_be_asked(tmp_path: Path) -> None:
    async def scenario() -> None:
        client = await hf.connect(tmp_path / "shop.db", workflows=[counts])
        try:
            handle = await client.start(counts, id="it")
            await handle.terminate()
            with pytest.raises(hf.InstanceClosed, match="before any of its code ran"):
                await handle.query(total)
        finally:
            await client.close()

    together(scenario())


def test_queries_work_in_an_environment() -> None:
    async def scenario() -> None:
        async with skipping(*ALL) as env:
            handle = await env.start(counts, id="it")
            await handle.raise_event("number", 3)
            await env.skip(seconds=5)
            assert await handle.query(total) == 3

    together(scenario())


def test_C1_a_client_without_code_asks_through_the_store(tmp_path: Path) -> None:
    """The owner answers for what is live, and any worker for what nobody has; nothing of it is left behind."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path)
        try:
            async with engine_of(path, *ALL) as owner, engine_of(path, *ALL):
                handle = await owner.start(counts, 5, id="it")
                await handle.raise_event("number", 3)
                await until(lambda: len(history_of(path, 1)) == 4)
                before = rows(path, "SELECT turn, fence FROM instances"), rows(path, "SELECT * FROM history")
                asked = client.get("it")
                assert await asked.query("total") == 3
                assert await asked.query("stock", "pens", 5, returns=Stock) == Stock("pens", 5)
                with pytest.raises(hf.errors.UnknownQuery, match="it has status, stock, total"):
                    await asked.query("nope")
                assert before == (rows(path, "SELECT turn, fence FROM instances"), rows(path, "SELECT * FROM history"))
                await handle.raise_event("number", 4)
                await handle.result(timeout=10)
                assert await asked.query("total") == 7, "after the end, any worker that has the code answers"
            await until(lambda: not rows(path, "SELECT 1 FROM questions"))
            with pytest.raises(TimeoutError, match="the query 'total' of 'it' was not answered in time"):
                await asked.query("total", timeout=0.05)
            await until(lambda: not rows(path, "SELECT 1 FROM questions"))
        finally:
            await client.close()

    together(scenario())


def test_a_question_whose_asker_is_gone_is_removed_when_its_time_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, *ALL) as engine:
            await engine.start(counts, id="it")
            rows(path, "INSERT INTO questions VALUES ('gone', 1, 'total', ?, 1, NULL, NULL)", b"[]")
            await until(lambda: not rows(path, "SELECT 1 FROM questions"))

    together(scenario())


def test_G12_whoever_cannot_replay_asks_the_owner(tmp_path: Path) -> None:
    @hf.workflow(name="counts")
    async def other_build(until_sum: int = 1_000) -> None:
        await step(until_sum)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path, workflows=[other_build])
        try:
            async with engine_of(path, *ALL) as owner:
                await owner.start(counts, id="it")
                assert await client.get("it").query("total") == 0
            with pytest.raises(hf.errors.HistoryMismatch):
                await client.get("it").query("total")
        finally:
            await client.close()

    together(scenario())
