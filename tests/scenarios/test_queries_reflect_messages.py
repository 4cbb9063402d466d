"""G5, G11: a query reflects every message that was acknowledged before it was sent, whichever process is asked."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.scenarios.held import HeldTurns, store_at
from tests.scenarios.support import check_tables, engine_of, rows, together, until
from tests.support.inside import live_instances, worker_of

import holdfast as hf
from holdfast.runtime.platform import Platform
from holdfast.storage.records import InstanceNumber, LoadedInstance
from holdfast.storage.wakeups import Wakeups

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])
ROUNDS = 15


@hf.workflow
async def counter() -> int:
    total_now = 0

    @hf.on_query
    def total() -> int:
        return total_now

    @hf.on_update
    def add_now(number: int) -> int:
        nonlocal total_now
        total_now += number
        return total_now

    async for number in hf.events("add", int):
        if number == 0:
            break
        total_now += number
    return total_now


async def raise_and_ask(handle: hf.Handle[int]) -> list[tuple[int, int]]:
    """What was acknowledged and what a query then shows, where they differ."""
    missed: list[tuple[int, int]] = []
    for number in range(1, ROUNDS + 1):
        await handle.raise_event("add", 1)
        shown = await handle.query("total", returns=int)
        if shown != number:
            missed.append((number, shown))
    return missed


@CACHES
def test_G5_a_query_reflects_the_events_that_were_acknowledged_before_it(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", counter, cache_size=cache_size) as engine:
            handle = await engine.start(counter, id="it")
            assert not await raise_and_ask(handle)
            await handle.raise_event("add", 0)
            assert await handle.result(timeout=10) == ROUNDS
        check_tables(tmp_path / "shop.db")

    together(scenario())


@pytest.mark.parametrize("has_code", [True, False])
def test_G5_a_query_of_another_process_reflects_them_too(tmp_path: Path, has_code: bool) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, counter) as owner:
            await owner.start(counter, id="it")
            async with await hf.connect(path, workflows=[counter] if has_code else []) as client:
                assert not await raise_and_ask(client.get("it"))
            assert rows(path, "SELECT fence FROM instances") == [(1,)], "the instance stayed with its owner"

    together(scenario())


async def _left_behind(path: Path) -> hf.Client:
    """A client with the code, beside an instance that took one turn and has no worker."""
    async with engine_of(path, counter) as engine:
        await engine.start(counter, id="it")
    return await hf.connect(path, workflows=[counter])


def test_G11_without_a_worker_a_query_applies_the_inbox_and_commits_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await _left_behind(path)
        async with client:
            handle = client.get("it")
            tables = ("instances", "history", "inbox", "timers", "attempts", "kept", "received")
            await handle.raise_event("ignored", "no code waits for it")
            await handle.raise_event("add", 2)
            await handle.raise_event("add", 3)
            before = [rows(path, f"SELECT * FROM {table}") for table in tables]  # noqa: S608 - names from above
            assert await handle.query("total") == 5
            assert before == [rows(path, f"SELECT * FROM {table}") for table in tables]  # noqa: S608
            await handle.raise_event("add", 0)
            assert await handle.query("total") == 5, "the code ends in the preview, and answers as after its end"
        async with engine_of(path, counter) as engine:
            assert await engine.get("it").result(timeout=10) == 5

    together(scenario())


@hf.workflow
async def collects() -> None:
    values: list[int] = []

    @hf.on_query
    def collected() -> list[int]:
        return values

    while True:
        try:
            values.append(await hf.event("add", int))
        except hf.PayloadError:
            values.append(-1)


@pytest.mark.parametrize("first", ["not a number", 5])
@pytest.mark.parametrize("second", ["not a number", 7])
def test_G11_a_query_sets_aside_the_events_that_the_next_turn_sets_aside(
    tmp_path: Path, first: int | str, second: int | str
) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, collects) as engine, await hf.connect(path) as client:
            await engine.start(collects, id="it")
            await client.get("it").raise_event("add", first)  # through the store, where no process checks its type
            await until(lambda: rows(path, "SELECT COUNT(*) FROM inbox") == [(0,)])
        async with await hf.connect(path) as client:
            await client.get("it").raise_event("add", second)
        async with await hf.connect(path, workflows=[collects]) as client:
            shown = await client.get("it").query("collected")
        assert shown == [value for value in (first, second) if isinstance(value, int)]
        async with engine_of(path, collects) as engine:
            assert await engine.get("it").query("collected") == shown, "the next turn has the same effect"

    together(scenario())


def test_G12_a_query_does_not_show_a_turn_that_will_block_the_instance(tmp_path: Path) -> None:
    @hf.workflow
    async def swallows() -> None:
        done: list[str] = []

        @hf.on_query
        def names() -> list[str]:
            return done

        await hf.event("go")
        with suppress(Exception):
            time.sleep(0)  # noqa: ASYNC251 - the guard refuses it
        done.append("slept")
        await hf.event("end")

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, swallows) as engine:
            await engine.start(swallows, id="it")
        async with await hf.connect(path, workflows=[swallows]) as client:
            await client.get("it").raise_event("go")
            assert await client.get("it").query("names") == []

    together(scenario())


def test_G10_a_query_applies_the_timers_that_go_before_a_message(tmp_path: Path) -> None:
    @hf.workflow
    async def sleeps_first() -> None:
        values: list[int] = []

        @hf.on_query
        def collected() -> list[int]:
            return values

        await asyncio.sleep(3_600)
        while True:
            values.append(await hf.event("add", int))

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, sleeps_first) as engine:
            await engine.start(sleeps_first, id="it")
        async with await hf.connect(path, workflows=[sleeps_first]) as client:
            await client.get("it").raise_event("add", 5)
            assert await client.get("it").query("collected") == [], "its timer is not due"
            rows(path, "UPDATE timers SET due_at_ms = due_at_ms - 3600000")
            assert await client.get("it").query("collected") == [5]

    together(scenario())


def test_W6_an_owner_whose_lease_has_run_out_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await _left_behind(path)
        async with client:
            handle = client.get("it")
            await handle.raise_event("add", 2)
            rows(path, "UPDATE instances SET owner = 'dead'")
            rows(
                path,
                "INSERT INTO workers (key, state, token, deadline_ms, lease_ms, host, queues, build, registered_at_ms,"
                " slots) VALUES ('dead', 'ACTIVE', 1, 1, 8000, ?, '[]', '', 1, 1)",
                b"{}",
            )
            assert await handle.query("total", timeout=1) == 2

    together(scenario())


def test_G11_the_value_of_a_side_effect_is_shown_only_when_it_is_recorded(tmp_path: Path) -> None:
    computed: list[int] = []

    def compute() -> int:
        computed.append(len(computed))
        return 40 + len(computed)

    @hf.workflow
    async def draws() -> int:
        drawn = 0

        @hf.on_query
        def which() -> int:
            return drawn

        await hf.event("draw")
        try:
            drawn = hf.side_effect(compute, int)
        except BaseException:
            drawn = -1
            raise
        await hf.event("end")
        return drawn

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, draws) as engine:
            await engine.start(draws, id="it")
        async with await hf.connect(path, workflows=[draws]) as client:
            handle = client.get("it")
            await handle.raise_event("draw")
            with pytest.raises(TimeoutError):
                await handle.query("which", timeout=0.05)
            assert not computed
            asked = asyncio.create_task(handle.query("which"))
            async with engine_of(path, draws):
                assert await asked == 41
            assert computed == [0]

    together(scenario())


def test_G12_where_the_inbox_cannot_be_applied_the_last_committed_turn_answers(tmp_path: Path) -> None:
    @hf.workflow
    async def spins() -> None:
        seen: list[str] = []

        @hf.on_query
        def names() -> list[str]:
            return seen

        while True:
            await hf.event("go")
            seen.append("go")
            while len(seen) == 1:
                pass

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, spins) as engine:
            await engine.start(spins, id="it")
        hasty = Platform(turn_limit_ms=50)
        async with await hf.connect(path, workflows=[spins], _platform=hasty) as client:
            await client.get("it").raise_event("go")
            assert await client.get("it").query("names") == []

    together(scenario())


def test_G5_a_query_waits_for_what_arrived_while_a_turn_was_being_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        store = store_at(path)
        held = HeldTurns(store)
        async with engine_of(store, counter) as engine:
            handle = await engine.start(counter, id="it")
            first = asyncio.create_task(handle.raise_event("add", 1))
            await held.is_stuck.wait()
            async with await hf.connect(path) as client:
                await client.get("it").raise_event("add", 10)
            asked = asyncio.create_task(handle.query("total"))
            [live] = live_instances(worker_of(engine)).values()
            await until(lambda: asked.done() or live.waiting_queries)
            assert not asked.done()
            held.go_on.set()
            assert await asked == 11
            await first

    together(scenario())


def test_G5_an_event_that_no_code_waits_for_does_not_delay_a_query(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, counter) as engine:
            handle = await engine.start(counter, id="it")
            await handle.raise_event("misspelled", 1)
            assert await handle.query("total", timeout=1) == 0
            async with await hf.connect(path, workflows=[counter]) as client:
                assert await client.get("it").query("total", timeout=1) == 0
            await until(lambda: rows(path, "SELECT COUNT(*) FROM inbox") == [(1,)])

    together(scenario())


class Silent:
    """A notifier that wakes no process."""

    def __init__(self, *_: object) -> None: ...
    def open(self) -> None: ...
    def close(self) -> None: ...
    def notify(self, wakeups: Wakeups) -> None: ...


def test_G5_a_query_reflects_an_event_whose_wake_up_was_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, counter) as owner:
            handle = await owner.start(counter, id="it")
            async with await hf.connect(path, _platform=Platform(make_notifier=Silent)) as client:
                for number in range(1, 4):
                    await client.get("it").raise_event("add", 1)
                    assert await handle.query("total") == number

    together(scenario())


def test_G11_a_turn_that_is_committed_while_the_store_is_read_is_not_missed(tmp_path: Path) -> None:
    """History and inbox are read one after the other. A message that moves between the reads is in neither."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        store = store_at(path)
        load = store.load
        has_read = asyncio.Event()

        async def interleaved(number: InstanceNumber, execution: int) -> LoadedInstance:
            history = await store.read_history(number, execution)
            has_read.set()
            await until(lambda: len(rows(path, "SELECT 1 FROM history")) == 2)
            loaded: LoadedInstance = await load(number, execution)
            return msgspec.structs.replace(loaded, history=history)

        store.load = interleaved
        async with await hf.connect(store, workflows=[counter]) as client:
            async with engine_of(path, counter) as owner:
                await owner.start(counter, id="it")
            await client.get("it").raise_event("add", 1)
            asked = asyncio.create_task(client.get("it").query("total"))
            await has_read.wait()
            async with engine_of(path, counter):
                assert await asked == 1

    together(scenario())


def test_G11_a_query_does_not_foretell_the_turn_of_an_owner(tmp_path: Path) -> None:
    """An answer of an activity, in the owner's memory and on its way to disk, goes before the event in the inbox."""
    answered = asyncio.Event()

    @hf.activity
    async def wins() -> str:
        await answered.wait()
        return "activity"

    @hf.workflow
    async def races() -> str:
        first = "nobody"

        @hf.on_query
        def winner() -> str:
            return first

        async with asyncio.TaskGroup() as group:

            async def note(name: str) -> None:
                nonlocal first
                if first == "nobody":
                    first = name

            async def by_activity() -> None:
                await note(await wins())

            async def by_event() -> None:
                await note(await hf.event("go", str))

            group.create_task(by_activity())
            group.create_task(by_event())
        return first

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        store = store_at(path)
        held = HeldTurns(store)
        async with engine_of(store, races, wins) as owner:
            handle = await owner.start(races, id="it")
            answered.set()
            await held.is_stuck.wait()
            async with await hf.connect(path, workflows=[races]) as client:
                await client.get("it").raise_event("go", "event")
                asked = asyncio.create_task(client.get("it").query("winner"))
                await until(lambda: asked.done() or rows(path, "SELECT 1 FROM questions"))
                assert not asked.done()
                held.go_on.set()
                assert await asked == "activity"
            assert await handle.result(timeout=10) == "activity"

    together(scenario())
