"""The engine from outside: starting, finding, waiting, describing, on a file and in memory."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, path_of, together

import holdfast as hf
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.runtime.duties.claimer import Claimer


class Declined(Exception):
    """An error of the user's own."""

    def __init__(self, code: int) -> None:
        super().__init__(f"declined with {code}")
        self.code = code


@hf.activity
async def double(number: int) -> int:
    return 2 * number


@hf.activity(retry=hf.Retry(attempts=1))
async def decline(code: int) -> str:
    try:
        raise KeyError("card")
    except KeyError as error:
        raise Declined(code) from error


@hf.workflow
async def twice_double(number: int, offset: int = 0) -> int:
    return await double(await double(number)) + offset


@hf.workflow
async def sleeper(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


@hf.workflow
async def declined(code: int) -> str:
    return await decline(code)


@hf.workflow
async def crashes() -> str:
    raise Declined(7)


ALL = (double, decline, twice_double, sleeper, declined, crashes)


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shop.db") if request.param == "file" else ":memory:"


def test_G11_run_gives_the_result_and_leaves_a_closed_instance(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            assert await engine.run(twice_double, 5, id="a") == 20
            assert await engine.get("a").result() == 20
            check_tables(path_of(engine))

    together(scenario())


def test_an_id_is_made_up_when_none_is_given(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            first = await engine.start(twice_double, 1)
            second = await engine.start(twice_double, 1)
            assert first.id != second.id
            assert await first.result() == await second.result() == 4

    together(scenario())


def test_G3_the_same_start_twice_is_one_instance(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            handles = await asyncio.gather(*(engine.start(twice_double, 5, id="a") for _ in range(5)))
            assert [await handle.result() for handle in handles] == [20] * 5
            assert await engine.run(twice_double, 5, id="a") == 20
            assert await engine.run(twice_double.bind(number=5), id="a") == 20
            assert len(await engine.list()) == 1

    together(scenario())


def test_G3_another_input_or_workflow_for_the_same_id_is_a_conflict_that_names_it(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            await engine.run(twice_double, 5, id="a")
            with pytest.raises(hf.InstanceConflict, match=r"'a'.*different input"):
                await engine.start(twice_double, 6, id="a")
            with pytest.raises(hf.InstanceConflict, match=r"'a'.*'twice_double', not 'sleeper'"):
                await engine.start(sleeper, 5.0, id="a")
            assert await engine.get("a").result() == 20
            assert len(await engine.list()) == 1

    together(scenario())


def test_G3_a_conflict_is_found_while_the_first_one_still_runs(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            await engine.start(sleeper, 60.0, id="a")
            with pytest.raises(hf.InstanceConflict):
                await engine.start(sleeper, 61.0, id="a")
            assert (await engine.get("a").describe()).state is InstanceState.RUNNING

    together(scenario())


def test_by_name_and_with_keywords_the_same_workflow_runs(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            assert await engine.run("twice_double", 5, id="name") == 20
            assert await engine.run(twice_double.bind(5, offset=1), id="bound") == 21
            assert await engine.run(twice_double, 5, 2, id="position") == 22
            with pytest.raises(hf.errors.UsageError, match="bound already"):
                await engine.start(twice_double.bind(5), 6)  # type: ignore[call-overload]  # wrong on purpose

    together(scenario())


def test_result_gives_up_after_its_timeout_and_the_instance_goes_on(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            handle = await engine.start(sleeper, 0.1, id="a")
            with pytest.raises(TimeoutError):
                await handle.result(timeout=0.01)
            with pytest.raises(TimeoutError):
                await handle.result(timeout=timedelta(milliseconds=1))
            assert await handle.result(timeout=10) == "awake"

    together(scenario())


@hf.activity(queue="gpu")
async def train(model: str) -> str:
    return model


@hf.workflow
async def learn(model: str) -> str:
    return await train(model)


@hf.workflow
async def never_so() -> None:
    await hf.wait_until(lambda: False)


def test_a_time_out_says_what_the_instance_waits_for_and_who_could_do_it(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, sleeper, learn, train, never_so, queues=["default"]) as engine:
            stuck = await engine.start(never_so, id="stuck")
            with pytest.raises(
                TimeoutError,
                match=r"'stuck' is RUNNING; it waits for something that is not recorded, such as a condition",
            ):
                await stuck.result(timeout=0.01)
            asleep = await engine.start(sleeper, 60, id="asleep")
            with pytest.raises(
                TimeoutError, match=r"^no result within 0\.01 s: 'asleep' is RUNNING; it waits for timer"
            ):
                await asleep.result(timeout=0.01)
            learning = await engine.start(learn, "m", id="learning")
            with pytest.raises(TimeoutError, match=r"it waits for activity train; no live worker serves queue 'gpu'"):
                await learning.result(timeout=0.01)
            unknown = await engine.start("elsewhere", id="unknown")
            with pytest.raises(TimeoutError, match=r"'unknown' is REQUESTED; no live worker has workflow 'elsewhere'"):
                await unknown.result(timeout=0.01)

    together(scenario())


def test_a_time_out_is_raised_also_if_its_reason_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", sleeper) as engine:
            handle = await engine.start(sleeper, 60, id="a")

            async def broken(*_: object) -> None:
                raise hf.StoreError("no disk")

            monkeypatch.setattr(engine._session.store, "read_history", broken)
            with pytest.raises(
                TimeoutError, match=r"^no result within 0\.01 s: 'a' could not be read: StoreError: no d"
            ):
                await handle.result(timeout=0.01)

    together(scenario())


def test_an_instance_is_created_before_its_first_activity_is_scheduled(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            for number in range(20):
                handle = await engine.start(twice_double, number, id=f"{number}")
                await handle.result()
                seen = await handle.describe()
                assert seen.created_at <= seen.attempts[0].scheduled_at

    together(scenario())


def test_a_failed_activity_keeps_type_message_attributes_and_causes(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            with pytest.raises(hf.WorkflowFailed, match=r"a failed: Declined: declined with 51") as caught:
                await engine.run(declined, 51, id="a")
            cause = caught.value.cause
            assert isinstance(cause, Declined)
            assert (str(cause), cause.code) == ("declined with 51", 51)
            assert isinstance(cause.__cause__, KeyError)
            assert caught.value.__cause__ is cause
            assert any("test_engine.py" in note for note in cause.__notes__)
            assert (await engine.get("a").describe()).state is InstanceState.FAILED

    together(scenario())


def test_an_ordinary_exception_in_workflow_code_fails_the_run_at_once(store: str) -> None:
    """Not Temporal's way: there it is retried for ever and looks "Running"."""

    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            with pytest.raises(hf.WorkflowFailed) as caught:
                await engine.run(crashes, id="a")
            assert isinstance(caught.value.cause, Declined)
            described = await engine.get("a").describe()
            assert (described.state, described.turn) == (InstanceState.FAILED, 1)

    together(scenario())


def test_an_exception_type_that_is_not_registered_here_keeps_its_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", *ALL) as engine:
            handle = await engine.start(declined, 3, id="a")
            with pytest.raises(hf.WorkflowFailed):
                await handle.result()
        client = await hf.connect(tmp_path / "shop.db")
        try:
            with pytest.raises(hf.WorkflowFailed) as caught:
                await client.get("a").result()
            cause = caught.value.cause
            assert isinstance(cause, hf.errors.RemoteError)
            assert cause.type_name.endswith("test_engine.Declined")
            assert str(cause) == "declined with 3"
            assert str(caught.value) == f"a failed: {cause.type_name}: declined with 3"
        finally:
            await client.close()

    together(scenario())


def test_an_unknown_id_is_not_found_by_any_method(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            handle = engine.get("nobody")
            for ask in (handle.result, handle.describe, handle.history):
                with pytest.raises(hf.InstanceNotFound, match="'nobody'"):
                    await ask()

    together(scenario())


def test_K9_describe_tells_status_key_attempts_and_what_is_waited_for(store: str) -> None:
    async def scenario() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        @hf.activity
        async def step(number: int) -> int:
            if number == 2:
                started.set()
                await go_on.wait()
            return number

        @hf.workflow(version="7")
        async def flow() -> int:
            await step(1)
            async with asyncio.timeout(3600):
                return await step(2)

        async with engine_of(store, step, flow) as engine:
            handle = await engine.start(flow, id="a")
            await started.wait()
            described = await handle.describe()
            assert (described.id, described.workflow, described.version) == ("a", "flow", "7")
            assert (described.state, described.execution, described.turn) == (InstanceState.RUNNING, 1, 2)
            assert described.collation_key == "658"
            assert [line.partition(",")[0] for line in described.waiting_for] == ["timer 1", "activity step"]
            assert [(view.activity, view.number, view.attempt, view.state) for view in described.attempts] == [
                ("step", 0, 1, AttemptState.COMPLETED),
                ("step", 1, 1, AttemptState.RUNNING),
            ]
            assert [f"{view.ledger:015d}" for view in described.attempts] == ["888000001000001", "889000000000000"]
            assert described.closed_at is None
            assert described.blocked is None
            go_on.set()
            assert await handle.result() == 2
            described = await handle.describe()
            assert (described.state, described.collation_key) == (InstanceState.COMPLETED, "636")
            assert described.waiting_for == []
            assert described.closed_at is not None
            assert described.closed_at >= described.created_at

    together(scenario())


def test_G9_the_history_tells_what_happened_in_order(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            await engine.run(twice_double, 5, id="a")
            history = await engine.get("a").history()
            assert [(entry.number, entry.turn, entry.kind) for entry in history] == [
                (0, 0, "started"),
                (1, 0, "activity_scheduled"),
                (2, 1, "activity_completed"),
                (3, 1, "activity_scheduled"),
                (4, 2, "activity_completed"),
                (5, 2, "workflow_completed"),
            ]
            assert history[2].fields["result"] == {"data": 10}

    together(scenario())


def test_large_input_result_and_failure_go_through_the_side_table(store: str) -> None:
    @hf.activity
    async def echo(text: str) -> str:
        return text

    @hf.workflow
    async def through(text: str) -> str:
        return await echo(text)

    async def scenario() -> None:
        text = "ä" * 300_000
        async with engine_of(store, echo, through, cache_size=0) as engine:
            assert await engine.run(through, text, id="a") == text
            assert await engine.get("a").result() == text

    together(scenario())


def test_a_client_starts_what_an_engine_runs_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        client = await hf.connect(path, workflows=[twice_double])
        try:
            handle = await client.start(twice_double, 3, id="a")
            by_name = await client.start("sleeper", 0.01, id="b")
            described = await handle.describe()
            assert (described.state, described.turn, described.attempts) == (InstanceState.REQUESTED, 0, [])
            async with engine_of(path, *ALL):
                assert await handle.result(timeout=10) == 12
                assert await by_name.result(timeout=10) == "awake"
        finally:
            await client.close()
        check_tables(path)

    together(scenario())


def test_list_gives_pages_by_status_and_workflow(store: str) -> None:
    async def scenario() -> None:
        async with engine_of(store, *ALL) as engine:
            for number in range(5):
                await engine.run(twice_double, number, id=f"i{number}")
            await engine.start(sleeper, 60.0, id="asleep")
            assert [record.id for record in await engine.list(limit=2)] == ["asleep", "i4"]
            page = await engine.list('workflow = "twice_double"', limit=2)
            assert [record.id for record in page] == ["i4", "i3"]
            page = await engine.list('workflow = "twice_double"', limit=2, cursor=page.cursor)
            assert [record.id for record in page] == ["i2", "i1"]
            assert [record.id for record in await engine.list("state = RUNNING")] == ["asleep"]

    together(scenario())


def test_G8_a_stopped_engine_leaves_work_that_the_next_one_finishes(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "shop.db"
        for _ in range(3):
            async with engine_of(path, *ALL) as engine:
                handle: hf.Handle[Any] = await engine.start(sleeper, 0.2, id="a")
        async with engine_of(path, *ALL) as engine:
            handle = engine.get("a")
            assert await handle.result(timeout=10) == "awake"
            assert [entry.kind for entry in await handle.history()].count("timer_started") == 1
        check_tables(path)

    together(scenario())


def test_an_engine_that_cannot_start_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stumble(claimer: Claimer, build: str) -> None:
        raise OSError(f"no disk for {claimer} {build}")

    async def scenario() -> None:
        before = set(threading.enumerate())
        engine = engine_of(tmp_path / "shop.db", double, twice_double)
        with monkeypatch.context() as patched:
            patched.setattr(Claimer, "try_blocked", stumble)
            with pytest.raises(OSError, match="no disk"):
                await engine.__aenter__()
        assert [thread.name for thread in set(threading.enumerate()) - before if "holdfast-lease" in thread.name] == []
        assert engine._local.running is None
        with pytest.raises(hf.errors.ClientClosed, match="is closed"):
            await engine.get("a").describe()
        async with engine_of(tmp_path / "shop.db", double, twice_double) as another:
            assert await another.run(twice_double, 1) == 4

    together(scenario())


def test_a_client_is_closed_at_the_end_of_its_block(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await hf.connect(tmp_path / "shop.db") as client:
            handle = await client.start("elsewhere", id="a")
            assert (await handle.describe()).state == "REQUESTED"
        with pytest.raises(hf.errors.ClientClosed, match="is closed"):
            await handle.describe()

    together(scenario())
