"""`holdfast.testing.Environment`: time that skips, activities that are replaced, deaths at every commit, replays."""

import asyncio
import datetime as dt
import selectors
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.histories import samples
from tests.scenarios.support import together

import holdfast as hf
from holdfast.errors import InvalidOption, InvariantBroken, MalformedPayload, UsageError
from holdfast.testing.environment import Environment
from holdfast.testing.every_commit import CrashReport
from holdfast.testing.replayer import Replayer

MONTH = dt.timedelta(days=30)
PATIENT = hf.Retry(attempts=4, initial=3_600, maximum=86_400, jitter=False)


@hf.activity(retry=PATIENT)
async def charge(card: str, cents: int = 300) -> str:
    return f"{cents} from {card}"


@hf.activity
def pack(item: str) -> str:
    return item.upper()


@hf.activity
async def wait_long(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@hf.activity(heartbeat=600, retry=hf.Retry(attempts=1))
async def hang() -> None:
    await asyncio.get_running_loop().create_future()


@hf.activity(start_to_close=5, retry=hf.Retry(attempts=1))
def in_a_thread() -> str:
    time.sleep(0.02)
    return "slept"


@hf.activity(start_to_close=5, retry=hf.Retry(attempts=1))
async def over_a_socket() -> bytes:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)

    def say_hello() -> None:
        time.sleep(0.02)
        theirs.sendall(b"hello")

    answer = asyncio.get_running_loop().run_in_executor(None, say_hello)
    try:
        return await reader.readexactly(5)
    finally:
        await answer
        writer.close()
        await writer.wait_closed()
        theirs.close()


@hf.workflow
async def trial(card: str) -> list[str]:
    await asyncio.sleep(MONTH.total_seconds())
    return [await charge(card), await pack("tea")]


@hf.workflow
async def real() -> list[Any]:
    return [await in_a_thread(), (await over_a_socket()).decode()]


@hf.workflow
async def waiting(seconds: float) -> float:
    return await wait_long(seconds)


@hf.workflow
async def hanging() -> None:
    await hang()


def environment(**options: Any) -> Environment:
    return Environment(
        workflows=[trial, real, waiting, hanging],
        activities=[charge, pack, wait_long, hang, in_a_thread, over_a_socket],
        **options,
    )


def test_a_month_is_skipped_and_the_steps_after_it_are_run() -> None:
    async def scenario(env: Environment) -> None:
        before = env.now
        assert await env.run(trial, "4242") == ["300 from 4242", "TEA"]
        assert MONTH <= env.now - before < MONTH + dt.timedelta(hours=1)

    environment().run_sync(scenario)


def test_a_month_is_skipped_when_nothing_stays_in_memory() -> None:
    async def scenario(env: Environment) -> None:
        assert await env.run(trial, "4242") == ["300 from 4242", "TEA"]

    environment(cache_size=0).run_sync(scenario)


def test_the_tests_own_sleeps_skip_and_nothing_is_early() -> None:
    async def scenario(env: Environment) -> None:
        handle = await env.start(trial, "4242")
        await env.skip(days=29)
        assert "timer 1" in (await handle.describe()).waiting_for[0]
        before = env.now
        await asyncio.sleep(3_600)
        assert env.now - before >= dt.timedelta(hours=1)
        assert "timer 1" in (await handle.describe()).waiting_for[0]
        await env.skip(dt.timedelta(days=1))
        assert await handle.result() == ["300 from 4242", "TEA"]
        with pytest.raises(InvalidOption, match="cannot be skipped backwards"):
            await env.skip(days=-1)

    environment().run_sync(scenario)


def test_retry_delays_and_waits_of_activities_are_skipped() -> None:
    tries: list[dt.datetime] = []

    async def scenario(env: Environment) -> None:
        async def unwilling(card: str, cents: int = 1) -> str:
            tries.append(env.now)
            if len(tries) < 4:
                raise ConnectionError(card)
            return str(cents)

        env.replace(charge, with_=unwilling)
        assert await env.run(trial, "4242") == ["300", "TEA"]
        assert tries[3] - tries[0] >= dt.timedelta(hours=1 + 2 + 4)
        assert env.calls(charge) == [{"card": "4242", "cents": 300}] * 4
        assert await env.run(waiting, 86_400.0) == 86_400.0

    environment().run_sync(scenario)


def test_A5_a_heartbeat_that_does_not_come_is_found_at_its_time() -> None:
    async def scenario(env: Environment) -> None:
        before = env.now
        with pytest.raises(hf.WorkflowFailed, match="hang"):
            await env.run(hanging)
        assert dt.timedelta(minutes=10) <= env.now - before < dt.timedelta(minutes=11)

    environment().run_sync(scenario)


def test_threads_and_sockets_take_real_time_and_nothing_is_skipped_meanwhile() -> None:
    async def scenario(env: Environment) -> None:
        assert await env.run(real) == ["slept", "hello"]

    environment().run_sync(scenario)


def test_the_loop_goes_on_as_it_was_when_the_environment_is_closed() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        async with environment() as env:
            await env.skip(days=1)
            async with environment() as other:
                assert await other.run(waiting, 60.0) == 60.0
        assert loop.time() - before >= 86_400
        assert {"call_at", "run_in_executor"}.isdisjoint(vars(loop))
        assert isinstance(vars(loop)["_selector"], selectors.BaseSelector)

    asyncio.run(scenario())


def test_activities_are_replaced_by_functions_and_exceptions_and_restored() -> None:
    async def scenario(env: Environment) -> None:
        assert await env.run(trial, "a") == ["free", "BOX"]
        env.replace(pack, with_=KeyError("no tea"))
        env.replace(charge, with_=joined)
        with pytest.raises(hf.WorkflowFailed, match="no tea"):
            await env.run(trial, "b")
        assert env.calls(pack) == [{"item": "tea"}] * 6, "the one before, and five attempts"
        env.restore(pack)
        assert await env.run(trial, "b") == ["b300", "TEA"]
        assert env.calls(charge)[-1] == {"card": "b", "cents": 300}

    def joined(card: str, cents: int) -> str:
        return f"{card}{cents}"

    def box(item: str) -> str:
        assert item == "tea"
        return "BOX"

    async def free(card: str, cents: int) -> str:
        assert (card, cents) == ("a", 300)
        return "free"

    environment(replace={charge: free, pack: box}).run_sync(scenario)


def test_a_replacement_that_does_not_fit_is_refused_with_a_sentence() -> None:
    with pytest.raises(InvalidOption, match="the replacement of charge does not take its arguments"):
        environment(replace={charge: lambda: "nothing"})
    with pytest.raises(UsageError, match="does not have <activity add>"):
        environment(replace={samples.add: ValueError("no")})
    with pytest.raises(InvalidOption, match="a function or an exception, not by 7"):
        environment(replace={charge: 7})
    with pytest.raises(UsageError, match="is not open"):
        _ = environment().now


@hf.activity(retry=hf.Retry(attempts=2), resumable=True)
async def letters(word: str) -> AsyncIterator[str]:
    for letter in word[hf.activity_info().delivered :]:
        await asyncio.sleep(60)
        yield letter


@hf.activity(resumable=True)
def in_turn(count: int) -> Iterator[int]:
    yield from range(hf.activity_info().delivered, count)


@hf.workflow
async def spell(word: str) -> str:
    numbers = [str(number) async for number in in_turn(len(word))]
    return "".join([letter async for letter in letters(word)]) + "".join(numbers)


def streaming(**options: Any) -> Environment:
    return Environment(workflows=[spell], activities=[letters, in_turn], **options)


@pytest.mark.parametrize("cache_size", [0, 10])
def test_L15_generators_run_in_an_environment_and_their_waits_are_skipped(cache_size: int) -> None:
    async def scenario(env: Environment) -> None:
        before = env.now
        assert await env.run(spell, "tea") == "tea012"
        assert dt.timedelta(minutes=3) <= env.now - before < dt.timedelta(minutes=4)
        assert (env.calls(letters), env.calls(in_turn)) == ([{"word": "tea"}], [{"count": 3}])

    streaming(cache_size=cache_size).run_sync(scenario)


def test_L15_streams_are_replaced_by_generators_lists_and_exceptions_and_restored() -> None:
    async def scenario(env: Environment) -> None:
        assert await env.run(spell, "tea") == "TEA78"
        env.replace(letters, with_=whole)
        assert await env.run(spell, "tea") == "tea78"
        env.replace(letters, with_=KeyError("no tea"))
        with pytest.raises(hf.WorkflowFailed, match="no tea"):
            await env.run(spell, "tea")
        assert env.calls(letters) == [{"word": "tea"}] * 4, "the two before, and two attempts"
        env.restore(letters)
        assert await env.run(spell, "tea") == "tea78"

    async def loudly(word: str) -> AsyncIterator[str]:
        for letter in word:
            yield letter.upper()

    def whole(word: str) -> list[str]:
        return [word]

    def from_seven(count: int) -> Iterator[int]:
        yield from range(7, 6 + count)

    streaming(replace={letters: loudly, in_turn: from_seven}).run_sync(scenario)


def test_L15_a_replacement_yields_where_the_activity_does_and_only_there() -> None:
    async def returns(word: str) -> str:
        return word

    async def yields(card: str, cents: int) -> AsyncIterator[str]:
        yield f"{card} {cents}"

    with pytest.raises(InvalidOption, match="letters yields values; replace it by a generator"):
        streaming(replace={letters: returns})
    with pytest.raises(InvalidOption, match="charge returns one value; its replacement must not yield"):
        environment(replace={charge: yields})


@pytest.mark.slow
def test_L13_a_death_at_every_commit_of_a_stream_changes_nothing() -> None:
    async def scenario(env: Environment) -> CrashReport:
        return await env.crash_at_every_commit(spell, "tea")

    report = streaming().run_sync(scenario)
    report.check()
    assert report.result == repr("tea012")
    assert report.crashes >= 8


def test_L13_a_death_at_every_commit_changes_nothing() -> None:
    async def scenario(env: Environment) -> CrashReport:
        return await env.crash_at_every_commit(trial, "4242")

    report = environment().run_sync(scenario)
    report.check()
    assert report.result == repr(["300 from 4242", "TEA"])
    assert report.crashes >= 8


def test_L13_a_workflow_whose_result_depends_on_crashes_is_found() -> None:
    async def scenario(env: Environment) -> CrashReport:
        env.replace(charge, with_=another_each_time)
        return await env.crash_at_every_commit(trial, "4242")

    def another_each_time(card: str, cents: int) -> str:
        return f"{card} {cents} {next(counter)}"

    counter = iter(range(10_000))
    report = environment().run_sync(scenario)
    with pytest.raises(InvariantBroken, match="the result was"):
        report.check()


def test_G12_an_exported_history_replays_until_the_code_changes(tmp_path: Path) -> None:
    async def scenario(env: Environment) -> str:
        handle = await env.start(trial, "4242", id="it")
        await handle.result()
        return await handle.export_history()

    text = environment().run_sync(scenario)

    @hf.workflow(name="trial")
    async def changed(card: str) -> list[str]:
        return [await charge(card)]

    Replayer(workflows=[trial]).replay(text)
    with pytest.raises(hf.errors.HistoryMismatch, match="at step 1: recorded the start of timer number 1"):
        Replayer(workflows=[changed]).replay(text)
    (tmp_path / "it.json").write_text(text, encoding="utf-8")
    assert Replayer(workflows=[trial]).replay_all(tmp_path) == ["it.json"]
    with pytest.raises(hf.errors.HistoryMismatch, match=r"it\.json: the code does not match"):
        Replayer(workflows=[changed]).replay_all(tmp_path)
    with pytest.raises(hf.errors.UnknownWorkflow, match="trial"):
        Replayer().replay(tmp_path / "it.json")


@pytest.mark.parametrize("end", ["cancel", "terminate"])
def test_G12_what_was_ended_before_its_code_ran_differs_from_no_code(tmp_path: Path, end: str) -> None:
    async def scenario() -> str:
        client = await hf.connect(tmp_path / "shop.db")
        try:
            handle = await client.start("trial", "4242", id="it")
            await getattr(handle, end)("not wanted")
            return await handle.export_history()
        finally:
            await client.close()

    Replayer(workflows=[trial]).replay(together(scenario()))


def test_G12_the_replayer_reads_the_recorded_histories_of_this_project() -> None:
    names = Replayer(workflows=samples.WORKFLOWS).replay_all(samples.RECORDED)
    assert len(names) == len(list(samples.RECORDED.glob("*.jsonl")))


@pytest.mark.parametrize("text", ["{}", "[]", "[7]", '{"holdfast_history": 1}', "{", '[{"event": "nothing"}]'])
def test_what_is_no_history_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(MalformedPayload, match="history"):
        Replayer(workflows=[trial]).replay(text)


def test_a_file_that_is_not_there_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Replayer(workflows=[trial]).replay(tmp_path / "none.json")
    with pytest.raises(UsageError, match="no history in"):
        Replayer(workflows=[trial]).replay_all(tmp_path)


def test_the_fixture_of_the_pytest_plugin_makes_environments(holdfast_environment: type[Environment]) -> None:
    async def scenario(env: Environment) -> list[str]:
        return await env.run(trial, "4242")

    env = holdfast_environment(workflows=[trial], activities=[charge, pack])
    assert env.run_sync(scenario) == ["300 from 4242", "TEA"]
