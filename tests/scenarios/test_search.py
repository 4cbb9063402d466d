"""Lists and counts by filters, through an engine: cursors, limits, and pages while everything changes (F4-F9)."""

import asyncio
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.kinds import are_files
from tests.scenarios.support import engine_of, together

import holdfast as hf
from holdfast.client import search as client_search
from holdfast.errors import FilterTooBroad, InvalidCursor, InvalidFilter, InvalidOption, SearchTimedOut, UsageError
from holdfast.storage.relational.search import Search
from holdfast.storage.sqlite import search as sqlite_search


class Declined(Exception):
    """The bank said no."""


@hf.workflow
async def order(number: int) -> int:
    hf.attributes["number"] = number
    if number % 5 == 3:
        raise Declined(f"no {number}")
    if number % 5 == 4:
        await hf.event("approval")
    return number


async def with_orders(engine: hf.Engine, many: int) -> None:
    """Orders 0 to `many` - 1: of five one fails and one waits."""
    for number in range(many):
        attributes = {"customer": "acme" if number % 2 else "bob"}
        handle = await engine.start(order, number, id=f"o{number}", attributes=attributes)
        if number % 5 == 3:
            with pytest.raises(hf.WorkflowFailed):
                await handle.result()
        elif number % 5 != 4:
            await handle.result()


async def ids(engine: hf.Client, text: str | None = None, **options: Any) -> list[str]:
    return [each.id for each in await engine.list(text, **options)]


def test_F4_F6_a_filter_finds_what_was_acknowledged() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", order) as engine:
            await with_orders(engine, 10)
            assert await ids(engine, 'state = FAILED and a.customer = "acme" and created > now - 1h') == ["o3"]
            assert await ids(engine, 'error = "Declined"') == ["o8", "o3"]
            assert await ids(engine, 'waits = "approval" and workflow = "order"') == ["o9", "o4"]
            assert await ids(engine, "a.number between 2 and 4 and not state = failed") == ["o4", "o2"]
            assert await ids(engine, "state in (failed, running) and duration is null") == ["o9", "o4"]
            assert await ids(engine, "closed > now - 1h", order="closed asc", limit=2) == ["o0", "o1"]
            assert await ids(engine, "closed > now", order="duration") == []
            assert await ids(engine, "created > now + 1h or created < today - 1w") == []
            assert str(await engine.count("state = completed")) == "6"
            await engine.get("o4").raise_event("approval")
            await engine.get("o4").result()
            assert await ids(engine, 'waits = "approval"') == ["o9"]

    together(scenario())


def test_F5_a_wrong_filter_reads_nothing() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", order) as engine:
            with pytest.raises(InvalidFilter, match="column 1: there is no field 'statee'; did you mean state"):
                await engine.list("statee = FAILED")
            with pytest.raises(hf.FilterError, match="column 9"):
                await engine.count("state = FAILD")
            with pytest.raises(InvalidFilter, match="a filter is a string"):
                await engine.list(7)  # type: ignore[arg-type]  # wrong on purpose
            with (
                pytest.raises(UsageError, match="and not both"),
                pytest.warns(DeprecationWarning, match="in this release only"),
            ):
                await engine.list("state = FAILED", state="FAILED")

    together(scenario())


def test_F7_a_changed_or_foreign_cursor_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "a.db", order) as engine, engine_of(tmp_path / "b.db", order) as other:
            await with_orders(engine, 6)
            cursor = (await engine.list("execution = 1", limit=2)).cursor
            assert cursor is not None
            assert await ids(engine, "EXECUTION=1", limit=2, cursor=cursor) == ["o3", "o2"]
            for wrong in (
                cursor[:-1],
                f"{cursor}A",
                f"{cursor}=",
                f"{cursor}\n",
                cursor[::-1],
                "",
                "x",
                "%",
                "é",
                "A" * 10**6,
                7,
                b"abc",
            ):
                with pytest.raises(InvalidCursor):
                    await engine.list("execution = 1", cursor=wrong)  # type: ignore[arg-type]  # wrong on purpose
            for place in range(len(cursor)):
                changed = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
                with pytest.raises(InvalidCursor):
                    await engine.list("execution = 1", cursor=changed)
            for text in (None, "execution = 2", "execution >= 1"):
                with pytest.raises(InvalidCursor, match="another filter"):
                    await engine.list(text, cursor=cursor)
            with pytest.raises(InvalidCursor, match="another order"):
                await engine.list("execution = 1", order="created asc", cursor=cursor)
            with pytest.raises(InvalidCursor, match="another store"):
                await other.list("execution = 1", cursor=cursor)
            for limit in (0, -1, 10**9, True, "5"):
                with pytest.raises(InvalidOption, match="limit"):
                    await engine.list(limit=limit)  # type: ignore[arg-type]  # wrong on purpose
            with pytest.raises(FilterTooBroad, match="needs a time range"):
                await engine.list("state = FAILED", order="closed")

    together(scenario())


def test_F7_the_pages_of_a_list_share_the_time_of_the_first() -> None:
    """`now` in a filter is the time of the first page, so that no row leaves the list between two pages."""

    async def scenario() -> None:
        async with hf.testing.Environment(workflows=[order]) as env:
            for number in range(3):
                await env.start(order, 4, id=f"o{number}")
            page = await env.list("created > now - 1m", limit=1)
            await env.skip(dt.timedelta(hours=1))
            assert await ids(env, "created > now - 1m") == []
            following = await env.list("created > now - 1m", limit=1, cursor=page.cursor)
            assert [each.id for each in following] == ["o1"]
            assert await ids(env, "created > now - 1m", cursor=following.cursor) == ["o0"]

    asyncio.run(scenario())


def test_F7_a_walk_through_all_pages_finds_each_instance_once_while_others_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "s.db", order) as engine:
            await with_orders(engine, 60)
            there = set(await ids(engine, limit=1_000))
            waiting = [name for name in there if int(name[1:]) % 5 == 4]
            is_over = asyncio.Event()
            ended: list[int] = []

            async def change() -> None:
                while not is_over.is_set():
                    number = (1_000 + len(ended)) * 5
                    ended.append(number)
                    await engine.run(order, number, id=f"o{number}")
                    if waiting:
                        await engine.get(waiting.pop()).raise_event("approval")

            async def walk(text: str | None) -> list[str]:
                walked: list[str] = []
                cursor: str | None = None
                while True:
                    page = await engine.list(text, limit=7, cursor=cursor)
                    await asyncio.sleep(0)  # a store in memory never waits, and the changes would not run
                    walked += [each.id for each in page]
                    cursor = page.cursor
                    if cursor is None:
                        return walked

            changing = [asyncio.create_task(change()) for _ in range(5)]
            try:
                while len(ended) < 40:  # at least once while everything changes
                    for text in (None, 'workflow = "order"', "a.number >= 0", 'id starts with "o"', "execution = 1"):
                        walked = await walk(text)
                        assert len(walked) == len(set(walked)), "no instance is in two pages"
                        assert there <= set(walked), "no instance is left out"
            finally:
                is_over.set()
                await asyncio.gather(*changing)

    together(scenario())


def test_F3_an_attribute_has_one_type_in_one_instance_and_another_elsewhere(tmp_path: Path) -> None:
    """Two clients at once, without a registry of types: filters by integer and by text each find theirs."""

    async def scenario() -> None:
        async with engine_of(tmp_path / "s.db", order) as one, hf.connect(tmp_path / "s.db") as other:

            async def start(client: hf.Client, prefix: str, value: int | str) -> None:
                for number in range(10):
                    await client.start("order", number, id=f"{prefix}{number}", attributes={"plan": value})

            await asyncio.gather(start(one, "i", 7), start(other, "t", "7"))
            assert sorted(await ids(one, "a.plan = 7")) == [f"i{number}" for number in range(10)]
            assert sorted(await ids(other, 'a.plan = "7"')) == [f"t{number}" for number in range(10)]
            assert (await one.list("a.plan > 6", limit=1))[0].attributes["plan"] == 7
            assert (await one.list('a.plan >= "6"', limit=1))[0].attributes["plan"] == "7"

    together(scenario())


@pytest.mark.parametrize(
    "text",
    [
        "state != COMPLETED",
        "not state = COMPLETED",
        'version = ""',
        "duration > 1h",
        "execution = 2",
        "a.x is null",
        'a.customer != "acme"',
        "state = FAILED or duration > 1h",
        "closed is null",
    ],
)
def test_F8_a_filter_without_an_index_needs_a_time_range_on_a_large_store(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(Search, "most_unindexed", 4)

    async def scenario() -> None:
        async with engine_of(":memory:", order) as engine:
            await with_orders(engine, 4)
            await engine.list(text)
            await with_orders(engine, 5)
            for search in (engine.list, engine.count):
                with pytest.raises(FilterTooBroad, match=r"more than 4 instances; add a time range such as"):
                    await search(text)
            assert await ids(engine, f"({text}) and created > now - 1h") == await ids(
                engine, f"({text}) and closed > now - 1h or ({text}) and state in (RUNNING, REQUESTED)"
            )
            await engine.list()

    together(scenario())


@pytest.mark.parametrize(
    "text",
    [
        "state = FAILED",
        'workflow in ("order", "other")',
        'id = "o1"',
        'id starts with "o"',
        'parent = "o1"',
        'root = "o1"',
        "a.number = 1",
        "a.number > 1",
        'a.customer starts with "a"',
        "closed > now - 1h",
        "created < now",
        'error = "Declined"',
        "blocked is not null",
        'state = FAILED or a.number = 1 or parent = "o1"',
        "duration > 1h and state = FAILED",
    ],
)
def test_F8_a_filter_with_an_index_is_allowed_on_a_large_store(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(Search, "most_unindexed", 4)

    async def scenario() -> None:
        async with engine_of(":memory:", order) as engine:
            await with_orders(engine, 6)
            await engine.list(text)
            await engine.count(text)

    together(scenario())


def test_F9_a_count_stops_at_its_cap_unless_it_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_search, "CAP", 5)

    async def scenario() -> None:
        async with engine_of(":memory:", order) as engine:
            await with_orders(engine, 5)
            assert await engine.count() == client_search.Count(at_least=5, exact=True)
            await with_orders(engine, 9)
            assert await engine.count('a.customer is not null and workflow = "order"') == client_search.Count(6, False)
            assert str(await engine.count()) == "5+"
            assert await engine.count(exact=True) == client_search.Count(at_least=9, exact=True)

    together(scenario())


def test_F9_a_search_that_takes_too_long_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    if not are_files():
        pytest.skip("it belongs to the other store")
    monkeypatch.setattr(sqlite_search, "SEARCH_SECONDS", -1.0)
    monkeypatch.setattr(sqlite_search, "STEPS", 1)

    async def scenario() -> None:
        async with engine_of(":memory:", order) as engine:
            await with_orders(engine, 3)
            with pytest.raises(SearchTimedOut, match="longer than"):
                await engine.list("execution = 1")
            with pytest.raises(TimeoutError):
                await engine.count(exact=True)
            assert await engine.run(order, 5, id="after") == 5

    together(scenario())


def test_F7_former_parameters_work_in_this_release() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", order) as engine:
            await with_orders(engine, 6)
            with pytest.warns(DeprecationWarning, match="in this release only"):
                page = await engine.list(state="COMPLETED", workflow="order", limit=2)
            assert [each.id for each in page] == ["o5", "o2"]
            with pytest.warns(DeprecationWarning, match="in this release only"):
                assert [each.id for each in await engine.list(before=page[-1].number)] == ["o1", "o0"]

    together(scenario())
