"""Several engines: with registries of their own, and on one file, sharing the work by what they know (C1)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, rows, together, until
from tests.support.inside import inbox_of, read_inbox, worker_of

import holdfast as hf
from holdfast.storage.members.instances import Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.records import CommitId
from holdfast.storage.wakeups import Notify, ignore_wakeups


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.workflow
async def twice_double(number: int) -> int:
    return await double(await double(number))


def test_two_engines_in_one_process_have_their_own_registries(tmp_path: Path) -> None:
    @hf.workflow(name="same")
    async def one() -> str:
        return "one"

    @hf.workflow(name="same")
    async def two() -> str:
        return "two"

    async def scenario() -> None:
        async with engine_of(tmp_path / "one.db", one) as first, engine_of(tmp_path / "two.db", two) as second:
            assert await first.run("same", id="a") == "one"
            assert await second.run("same", id="a") == "two"
        with pytest.raises(hf.errors.DuplicateName, match="'same'"):
            engine_of(tmp_path / "one.db", one, two)

    together(scenario())


def test_C1_two_engines_on_one_file_share_the_work_by_what_they_know(tmp_path: Path) -> None:
    """One knows the workflow, the other the activity; results cross in both directions."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, twice_double) as caller, engine_of(path, double):
            assert await asyncio.gather(*(caller.run(twice_double, n, id=f"i{n}") for n in range(10))) == [
                4 * n for n in range(10)
            ]
        check_tables(path)

    together(scenario())


def test_a_large_result_reaches_a_live_instance_of_another_worker(tmp_path: Path) -> None:
    """Large payloads travel by reference; the one who holds the instance has to fetch them."""

    @hf.activity
    async def large(count: int) -> str:
        return "x" * count

    @hf.workflow
    async def measures() -> list[int]:
        return [len(await large(count)) for count in (10, 100_000, 200_000)]

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, measures) as caller, engine_of(path, large):
            assert await caller.run(measures, id="a") == [10, 100_000, 200_000]
        check_tables(path)

    together(scenario())


def test_L1_L3_L4_L6_the_ledger_of_an_attempt_from_its_seed_to_its_close(tmp_path: Path) -> None:
    """Each participant is absent while the next value is read, so that each value is stored."""
    path, go_on = tmp_path / "shop.db", asyncio.Event()

    @hf.activity
    async def held() -> int:
        await go_on.wait()
        return 1

    @hf.workflow
    async def call() -> int:
        return await held()

    async def reads(state: str, ledger: int) -> None:
        await until(lambda: rows(path, "SELECT state, ledger FROM attempts") == [(state, ledger)])

    async def scenario() -> None:
        async with engine_of(path, call) as owner:
            await owner.start(call, id="it")
            await reads("READY", 999_000_000_000_000)
        async with engine_of(path, held):
            await reads("RUNNING", 889_000_000_000_000)
            go_on.set()
            await reads("COMPLETED", 889_000_001_000_000)
        async with engine_of(path, call) as owner:
            assert await owner.get("it").result() == 1
            await reads("COMPLETED", 888_000_001_000_001)
        check_tables(path)

    together(scenario())


def test_L11_a_message_that_is_read_twice_is_applied_once(tmp_path: Path) -> None:
    """A worker that wakes one instance reads the messages of its others again."""

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, twice_double) as caller, engine_of(path, double):
            inbox = inbox_of(worker_of(caller))
            apply, taken = inbox.apply, 0

            async def apply_twice(rows: Any, attempts: Any) -> None:
                nonlocal taken
                taken += len(rows)
                await apply(rows, attempts)
                await apply(rows, attempts)

            inbox.apply = apply_twice  # type: ignore[method-assign]
            assert await caller.run(twice_double, 1, id="a") == 4
            assert taken == 2, "the answers came by the inbox"
        check_tables(path)

    together(scenario())


def test_what_nobody_here_can_take_delays_nothing_else(tmp_path: Path) -> None:
    """An instance of an unknown workflow is claimable all the time; retries still come when they are due."""
    times: list[float] = []

    @hf.activity(retry=hf.Retry(attempts=4, initial=0.02, backoff=1, jitter=False))
    async def flaky() -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) < 4:
            raise ConnectionError

    @hf.workflow
    async def flow() -> None:
        await flaky()

    async def scenario() -> None:
        client = await hf.connect(tmp_path / "shop.db")
        await client.start("known-elsewhere", id="other")
        async with engine_of(tmp_path / "shop.db", flaky, flow) as engine:
            await engine.run(flow, id="a")
        await client.close()

    together(scenario())
    assert times[-1] - times[0] < 0.9  # three waits of 20 ms; workers look by themselves once a second


def test_G5_a_message_that_came_before_its_instance_was_live_is_taken_in(tmp_path: Path) -> None:
    """The start is on disk and another engine has answered, before the one who started it is told that it exists."""

    @hf.activity(queue="other")
    async def answer() -> int:
        return 1

    @hf.workflow
    async def asks() -> int:
        return await answer()

    @hf.workflow
    async def rests() -> None:
        await asyncio.sleep(1_000)

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, asks, rests) as here, engine_of(path, answer, queues=["other"]):
            await here.start(rests, id="so that messages are looked for")
            worker, commit = worker_of(here), here._session.store.commit

            async def told_late(
                commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
            ) -> list[Outcome]:
                outcomes = await commit(commit_id, members, notify)
                if any(isinstance(member, Start) for member in members):
                    await until(lambda: rows(path, "SELECT 1 FROM inbox"))
                    await read_inbox(worker)
                return outcomes

            here._session.store.commit = told_late  # type: ignore[method-assign]
            handle = await here.start(asks, id="a")
            assert await handle.result(timeout=10) == 1
        check_tables(path)

    together(scenario())


def test_what_is_not_registered_here_waits_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The commonest mistake is to leave one out; it may as well be somebody else's to run."""

    @hf.activity(queue="elsewhere")
    async def not_ours() -> str:
        return "done"

    @hf.workflow
    async def calls_it() -> str:
        return await not_ours()

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, twice_double, calls_it) as engine:
            for number in range(3):
                await engine.start(twice_double, number)
                await engine.start("chekout", number)
            waiting = await engine.start(calls_it)
            said = [record.getMessage() for record in caplog.records if "registered here" in record.getMessage()]
            assert [text.partition(":")[0] for text in said] == [
                "no activity 'double' is registered here, though its queue 'default' is served",
                "no workflow 'chekout' is registered here; known",
            ]
            async with engine_of(path, double, not_ours, queues=["default", "elsewhere"]):
                assert await waiting.result() == "done"

    together(scenario())


def test_C1_engines_that_live_shortly_and_write_little_clean_up_after_each_other(tmp_path: Path) -> None:
    """Commit ids of long ago, and the keys of workers long dead, go with whoever comes next, however little it does."""
    store = tmp_path / "shop.db"

    async def scenario() -> None:
        for number in range(3):
            async with engine_of(store, twice_double, double) as engine:
                assert await engine.run(twice_double, number, id=f"it-{number}") == 4 * number
            assert rows(store, "SELECT count(*) FROM commits WHERE at_ms = 0") == [(0,)]
            assert rows(store, "SELECT count(*) FROM workers") == [(1,)]
            rows(store, "UPDATE commits SET at_ms = 0 RETURNING 1")
            rows(store, "UPDATE workers SET deadline_ms = 0 RETURNING 1")

    together(scenario())
    check_tables(store)
