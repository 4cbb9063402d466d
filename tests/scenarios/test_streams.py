"""Activities that yield: each value once and in order, across failures, crashes and workers (L15)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, finish, history_of, rows, together, until

import holdfast as hf
from holdfast.core.history import ActivityAbandoned, ActivityYielded

NOW = hf.Retry(initial=0.001)


@hf.activity
async def letters(word: str) -> AsyncIterator[str]:
    for letter in word:
        yield letter


@hf.activity
def numbers(count: int) -> Iterator[int]:
    yield from range(count)


def numbers_in(store: Path) -> list[int]:
    """The numbers of all values in the history of the first instance."""
    events = history_of(store, 1)
    return [number for event in events if isinstance(event, ActivityYielded) for number in event.numbers]


@hf.workflow
async def spell() -> str:
    return "".join([letter async for letter in letters("holdfast")])


@pytest.mark.parametrize("cache_size", [0, 10])
def test_L15_a_workflow_gets_each_value_once_and_in_order(tmp_path: Path, cache_size: int) -> None:
    store = tmp_path / "a.db"
    assert finish(spell, letters, store=store, cache_size=cache_size) == "holdfast"
    assert rows(store, "SELECT state, ledger FROM attempts") == [("COMPLETED", 888_000_009_000_009)]
    assert numbers_in(store) == list(range(8))


def test_L15_values_that_are_ready_together_are_committed_together(tmp_path: Path) -> None:
    @hf.workflow
    async def add() -> int:
        return sum([number async for number in many(2_000)])

    @hf.activity
    async def many(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    store = tmp_path / "a.db"
    assert finish(add, many, store=store) == sum(range(2_000))
    (commits,) = rows(store, "SELECT count(*) FROM commits")[0]
    assert commits < 40
    assert numbers_in(store) == list(range(2_000))


def test_L15_a_plain_generator_runs_in_a_thread(tmp_path: Path) -> None:
    @hf.workflow
    async def add() -> list[int]:
        return [number async for number in numbers(20)]

    assert finish(add, numbers, store=tmp_path / "a.db") == list(range(20))


def test_L15_a_stream_without_values_ends_at_once(tmp_path: Path) -> None:
    @hf.workflow
    async def none() -> list[int]:
        return [number async for number in numbers(0)]

    assert finish(none, numbers, store=tmp_path / "a.db") == []


def test_L15_outside_a_workflow_a_call_iterates_the_body() -> None:
    async def scenario() -> None:
        assert [letter async for letter in letters("ab")] == ["a", "b"]
        assert [number async for number in numbers(3)] == [0, 1, 2]

    together(scenario())


def test_L15_a_stream_that_begins_again_says_so_and_can_be_iterated_on(tmp_path: Path) -> None:
    @hf.activity(retry=NOW)
    async def shaky() -> AsyncIterator[int]:
        yield hf.activity_info().attempt * 10
        yield hf.activity_info().attempt * 10 + 1
        if hf.activity_info().attempt < 3:
            raise OSError("gone")

    @hf.workflow
    async def collect() -> list[str]:
        seen: list[str] = []
        stream = shaky()
        while True:
            try:
                async for number in stream:
                    seen.append(str(number))
            except hf.StreamRestarted as restarted:
                seen.append(f"again after {restarted.delivered}")
            else:
                return seen

    found = finish(collect, shaky, store=tmp_path / "a.db")
    assert found == ["10", "11", "again after 2", "20", "21", "again after 2", "30", "31"]
    assert numbers_in(tmp_path / "a.db") == list(range(6)), "numbers go on across attempts"
    ledgers = [f"{row[0]:015d}" for row in rows(tmp_path / "a.db", "SELECT ledger FROM attempts ORDER BY attempt")]
    assert ledgers == ["889000002000002", "889000002000002", "888000003000003"]


def test_L15_a_resumable_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    @hf.activity(retry=NOW, resumable=True)
    async def steady() -> AsyncIterator[int]:
        for number in range(hf.activity_info().delivered, 6):
            yield number
            if number in (1, 3) and hf.activity_info().delivered <= number:
                raise OSError("gone")

    @hf.workflow
    async def collect() -> list[int]:
        return [number async for number in steady()]

    assert finish(collect, steady, store=tmp_path / "a.db") == list(range(6))


def test_L15_the_last_failure_is_raised_after_the_values(tmp_path: Path) -> None:
    @hf.activity(retry=hf.Retry(attempts=1))
    async def short() -> AsyncIterator[int]:
        yield 1
        raise ValueError("no more")

    @hf.workflow
    async def collect() -> list[str]:
        seen: list[str] = []
        try:
            async for number in short():
                seen.append(str(number))
        except ValueError as error:
            seen.append(str(error))
        return seen

    assert finish(collect, short, store=tmp_path / "a.db") == ["1", "no more"]


@pytest.mark.parametrize("way", ["break", "cancel", "close"])
def test_L15_leaving_the_loop_abandons_the_activity(tmp_path: Path, way: str) -> None:
    stopped = asyncio.Event()

    @hf.activity
    async def endless() -> AsyncIterator[int]:
        number = 0
        try:
            while True:
                yield number
                number += 1
                await asyncio.sleep(0)
        finally:
            stopped.set()

    @hf.activity
    async def stop_is_seen() -> bool:
        return await stopped.wait()

    async def until_two() -> int:
        last = 0
        async for number in endless():
            last = number
            if number == 2:
                if way == "cancel":
                    raise asyncio.CancelledError
                break
        return last

    @hf.workflow
    async def collect() -> int:
        last = 2
        if way == "close":
            stream = endless()
            await anext(stream)
            await stream.aclose()  # type: ignore[attr-defined]
        else:
            task = asyncio.create_task(until_two())
            await asyncio.wait([task])
        await stop_is_seen()
        return last

    assert finish(collect, endless, stop_is_seen, store=tmp_path / "a.db") == 2
    events = history_of(tmp_path / "a.db", 1)
    assert [event.activity for event in events if isinstance(event, ActivityAbandoned)] == [0]


def test_L13_a_stream_whose_worker_dies_goes_on_elsewhere_without_a_gap(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    reached = asyncio.Event()

    @hf.activity(resumable=True)
    async def slow() -> AsyncIterator[int]:
        for number in range(hf.activity_info().delivered, 5):
            yield number
            if number == 2 and hf.activity_info().attempt == 1:
                reached.set()
                await asyncio.Event().wait()

    @hf.workflow
    async def collect() -> list[int]:
        return [number async for number in slow()]

    async def crash() -> list[int]:
        async with engine_of(store, collect, slow) as first:
            await first.start(collect, id="it")
            await reached.wait()
            await until(lambda: rows(store, "SELECT ledger / 1000000 % 1000000 FROM attempts") == [(3,)])
        async with engine_of(store, collect, slow) as second:
            return await second.run(collect, id="it")

    assert together(crash()) == list(range(5))
    check_tables(store)


@pytest.mark.parametrize("cache_size", [0, 10])
def test_L15_large_values_are_stored_aside(tmp_path: Path, cache_size: int) -> None:
    @hf.activity
    async def large() -> AsyncIterator[str]:
        yield "a " * 50_000
        yield "b " * 50_000

    @hf.workflow
    async def collect() -> list[int]:
        return [len(text) async for text in large()]

    store = tmp_path / "a.db"
    assert finish(collect, large, store=store, cache_size=cache_size) == [100_000, 100_000]
    assert rows(store, "SELECT count(*), max(length(data)) FROM payloads") == [(2, 100_002)]
    assert rows(store, "SELECT max(length(events)) < 2000 FROM history") == [(1,)]


def test_A5_a_yield_counts_as_a_heartbeat_and_silence_ends_the_attempt(tmp_path: Path) -> None:
    @hf.activity(heartbeat=0.2, retry=hf.Retry(attempts=1))
    async def silent() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    @hf.workflow
    async def collect() -> list[str]:
        seen: list[str] = []
        try:
            async for number in silent():
                seen.append(str(number))
        except hf.ActivityTimedOut:
            seen.append("timed out")
        return seen

    assert finish(collect, silent, store=tmp_path / "a.db") == ["1", "timed out"]


def test_a_generator_cannot_run_in_a_process_and_only_generators_resume() -> None:
    def body() -> Iterator[int]:
        yield 1

    async def plain() -> int:
        return 1

    with pytest.raises(hf.errors.InvalidOption, match="process=True"):
        hf.activity(process=True)(body)
    with pytest.raises(hf.errors.InvalidOption, match="resumable=True"):
        hf.activity(resumable=True)(plain)


def test_L12_an_attempt_cannot_yield_more_than_its_digits_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.core.streams.MAX_YIELDS", 3)

    @hf.workflow
    async def collect() -> list[str]:
        seen: list[str] = []
        try:
            async for number in numbers(5):
                seen.append(str(number))
        except hf.errors.StreamTooLong as error:
            seen.append(type(error).__name__)
        return seen

    assert finish(collect, numbers, store=tmp_path / "a.db") == ["0", "1", "2", "StreamTooLong"]
    assert rows(tmp_path / "a.db", "SELECT count(*) FROM attempts") == [(1,)]


def test_L15_a_value_that_does_not_fit_what_the_workflow_expects_is_an_error_that_says_so(tmp_path: Path) -> None:
    """The worker that runs the activity may have another version of it."""

    @hf.activity(name="letters")
    async def expected(word: str) -> AsyncIterator[int]:
        yield len(word)

    @hf.workflow
    async def reads() -> str:
        try:
            return str([value async for value in expected("a")])
        except hf.PayloadError as error:
            return str(error)

    assert "int" in str(finish(reads, letters, store=tmp_path / "a.db"))
