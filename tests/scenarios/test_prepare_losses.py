"""Prepared attempts that are cancelled, and those whose workers are lost, drain or stop (A1, A2, L7, L8, W6, W10)."""

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.bodies import calling
from tests.scenarios.prepared import CONCLUDED, ENTERED, RERUN, Steps, stored
from tests.scenarios.support import SleepingMachine, check_tables, engine_of, rows, together, until
from tests.support import inside

import holdfast as hf
from holdfast.errors import StoreError
from holdfast.testing.simulation.simulation import kill_engine


def waiting_activity(steps: Steps, **options: Any) -> Any:
    """An activity whose first preparations wait, and whose later ones do not."""

    async def start_gpu() -> int:
        steps.seen.append("prepare")
        await steps.go.wait()
        return len(steps.seen)

    @hf.activity(prepare=start_gpu, **options)
    async def train() -> str:
        steps.seen.append("body")
        return "trained"

    return train


# ------------------------------------------------------------ cancellation


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
@pytest.mark.parametrize("how", ["timeout", "terminate"])
def test_A1_a_cancelled_preparation_is_cancelled_at_once_and_its_body_never_begins(
    tmp_path: Path, how: str, is_async: bool
) -> None:
    path = tmp_path / "shop.db"
    may_end = threading.Event()
    seen: list[str] = []

    async def start_async() -> None:
        seen.append("begins")
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    def start() -> None:
        seen.append("begins")
        may_end.wait()
        seen.append("cancelled" if hf.activity_info().is_cancelled else "goes on")

    @hf.activity(prepare=start_async if is_async else start)
    async def train() -> None:
        seen.append("body")

    @hf.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.1):
                await train()
        except TimeoutError:
            pass
        return "without it"

    @hf.workflow
    async def waits() -> None:
        await train()

    async def scenario() -> None:
        async with engine_of(path, flow, waits, train) as engine:
            handle = await engine.start(flow if how == "timeout" else waits, id="it")
            await until(lambda: seen)
            if how == "terminate":
                await handle.terminate()
            else:
                assert await handle.result() == "without it"
            assert stored(path) == [("CANCELLED", ENTERED)]
            may_end.set()
            await until(lambda: len(seen) == 2)
            runtime: Any = inside.worker_of(engine)
            await until(lambda: not runtime.attempts.running and runtime.slots.free == runtime.slots.count)
            assert stored(path) == [("CANCELLED", ENTERED)]
            check_tables(path)

    together(scenario())
    assert seen == ["begins", "cancelled"]


def test_A2_a_cancel_that_comes_before_the_commit_of_running_is_first(tmp_path: Path) -> None:
    """The preparation has ended and RUNNING is submitted behind the turn that abandons the activity."""
    path = tmp_path / "shop.db"
    began: list[str] = []

    async def scenario() -> None:
        steps = Steps()

        async def start_gpu() -> None:
            began.append("prepare")
            await steps.go.wait()

        @hf.activity(prepare=start_gpu)
        async def train() -> None:
            began.append("body")

        @hf.workflow
        async def flow() -> str:
            training = asyncio.create_task(train())
            await hf.event("enough", str)
            training.cancel()
            return "without it"

        async with engine_of(path, flow, train) as engine:
            handle = await engine.start(flow, id="it")
            await until(lambda: began)
            committer = inside.committer_of(inside.worker_of(engine))
            submit = committer.submit

            def late(member: Any, done: Any) -> None:
                """The body may begin only by the outcome of RunPrepared, which comes after that of the last turn."""
                if type(member).__name__ == "RunPrepared":
                    steps.seen.append(member)
                    asyncio.get_running_loop().call_later(0.1, submit, member, done)
                else:
                    submit(member, done)

            committer.submit = late  # type: ignore[method-assign]
            steps.go.set()
            await until(lambda: steps.seen)
            await handle.raise_event("enough", "")
            assert await handle.result() == "without it"
            await until(lambda: not inside.attempts_of(inside.worker_of(engine)).running)
            assert stored(path) == [("CANCELLED", ENTERED)]
            check_tables(path)

    together(scenario())
    assert began == ["prepare"]


def test_A2_a_cancel_that_comes_after_the_commit_of_running_is_confirmed_by_the_worker(tmp_path: Path) -> None:
    """RUNNING is on disk and its outcome is on the way, when another process terminates the instance."""
    path = tmp_path / "shop.db"
    began: list[str] = []

    async def scenario() -> None:
        steps = Steps()

        async def start_gpu() -> None:
            began.append("prepare")

        @hf.activity(prepare=start_gpu)
        async def train() -> None:
            began.append("body")

        flow = calling(train)
        async with engine_of(path, flow, train) as engine:
            worker = inside.worker_of(engine)
            committer = inside.committer_of(worker)
            submit = committer.submit

            def slow(member: Any, done: Any) -> None:
                def later(outcome: Any) -> None:
                    steps.seen.append(outcome)
                    asyncio.get_running_loop().call_later(0.2, done, outcome)

                submit(member, later if type(member).__name__ == "RunPrepared" else done)

            committer.submit = slow  # type: ignore[method-assign]
            handle = await engine.start(flow, id="it")
            await until(lambda: steps.seen)
            assert stored(path) == [("RUNNING", CONCLUDED)]
            await handle.terminate()
            await until(lambda: not inside.attempts_of(worker).running)
            await committer.drain()
            assert stored(path) == [("CANCELLED", CONCLUDED)], "at once, and not by the reconciler"
            check_tables(path)

    together(scenario())
    assert began == ["prepare"]


def test_W3_a_lost_reply_to_the_commit_of_running_costs_no_attempt(tmp_path: Path) -> None:
    """The commit is on disk, and its reply is lost: the member is submitted again and found applied."""
    path = tmp_path / "shop.db"

    async def start_gpu() -> str:
        return "cuda:0"

    @hf.activity(prepare=start_gpu)
    async def train() -> str:
        return str(hf.activity_info().prepared)

    async def scenario() -> None:
        flow = calling(train)
        lost: list[str] = []
        async with engine_of(path, flow, train) as engine:
            store: Any = engine._session.store
            commit = store.commit

            async def losing(commit_id: Any, members: Any, notify: Any) -> Any:
                outcomes = await commit(commit_id, members, notify)
                if not lost and any(type(member).__name__ == "RunPrepared" for member in members):
                    lost.append("reply")
                    raise StoreError("the connection broke")
                return outcomes

            store.commit = losing
            assert await engine.run(flow, id="it") == "cuda:0"
            assert lost == ["reply"]
            assert stored(path) == [("COMPLETED", 888_000_001_000_001)]
            check_tables(path)

    together(scenario())


def test_A2_a_prepared_attempt_that_another_process_ended_does_not_run(tmp_path: Path) -> None:
    """The worker has not read that the instance was terminated when the preparation ends."""
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        steps = Steps()
        train = waiting_activity(steps)
        flow = calling(train)
        async with engine_of(path, flow, train) as engine, engine_of(path, train, queues=["other"]) as other:
            await engine.start(flow, id="it")
            await until(partial(steps.has_seen, 1))
            worker = inside.worker_of(engine)
            worker.instance_closed = lambda _: None  # type: ignore[method-assign,assignment]
            await other.get("it").terminate()
            assert stored(path) == [("CANCELLED", ENTERED)]
            steps.go.set()
            await until(lambda: not inside.attempts_of(worker).running)
            assert steps.seen == ["prepare"]
            check_tables(path)

    together(scenario())


# ------------------------------------------------------------ loss, drain and stop of the worker


def test_W6_a_lost_worker_releases_what_it_prepares_and_the_next_entry_is_a_rerun(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        steps = Steps()
        train = waiting_activity(steps, rerun_after_loss=False)
        flow = calling(train)
        first = engine_of(path, flow, train)
        await first.__aenter__()
        await first.start(flow, id="it")
        await until(lambda: steps.seen == ["prepare"])
        await kill_engine(first)
        assert stored(path) == [("PREPARING", ENTERED)]
        async with engine_of(path, flow, train) as second:
            key = rows(path, "SELECT owner FROM attempts")[0][0]
            await inside.worker_of(second).take_over(key)
            await until(lambda: steps.seen == ["prepare"] * 2)
            assert stored(path) == [("PREPARING", RERUN)]
            steps.go.set()
            assert await second.get("it").result() == "trained"
            assert stored(path) == [("COMPLETED", 788_000_001_000_001)]
            assert rows(path, "SELECT losses FROM attempts") == [(0,)], "no body was lost"
            check_tables(path)

    together(scenario())


def test_L8_an_attempt_whose_preparations_were_all_lost_is_a_dead_letter(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        steps = Steps()
        train = waiting_activity(steps)
        flow = calling(train)
        for lost in range(5):
            engine = engine_of(path, flow, train)
            await engine.__aenter__()
            if lost == 0:
                await engine.start(flow, id="it")
            for (key,) in rows(path, "SELECT owner FROM attempts WHERE owner IS NOT NULL"):
                if key != inside.key_of(inside.worker_of(engine)):
                    await inside.worker_of(engine).take_over(key)
            expected = ENTERED - lost * 10**14
            await until(partial(steps.has_seen, lost + 1))
            assert stored(path) == [("PREPARING", expected)]
            await kill_engine(engine)
        async with engine_of(path, flow, train) as last:
            for (key,) in rows(path, "SELECT owner FROM attempts WHERE owner IS NOT NULL"):
                await inside.worker_of(last).take_over(key)
            with pytest.raises(hf.WorkflowFailed) as failed:
                await last.get("it").result()
            assert isinstance(failed.value.cause, hf.ClaimsExhausted)
            assert stored(path) == [("FAILED", 499_000_000_000_000)]
            check_tables(path)
        assert steps.seen == ["prepare"] * 5

    together(scenario())


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
def test_W10_a_worker_that_drains_releases_what_it_prepares(tmp_path: Path, is_async: bool) -> None:
    path = tmp_path / "shop.db"

    async def scenario() -> None:
        steps = Steps()

        async def start_async() -> None:
            steps.seen.append("prepare")
            await steps.go.wait()

        def start() -> None:
            steps.seen.append("prepare")
            steps.in_thread.wait()

        @hf.activity(prepare=start_async if is_async else start)
        async def train() -> str:
            steps.seen.append("body")
            return "trained"

        flow = calling(train)
        async with engine_of(path, flow, train) as engine:
            await engine.start(flow, id="it")
            await until(lambda: steps.seen)
            worker = inside.worker_of(engine)
            draining = asyncio.create_task(worker.drain())
            if not is_async:
                await until(lambda: inside.attempts_of(worker)._is_draining)  # pyright: ignore[reportPrivateUsage]
                steps.in_thread.set()
            await draining
            await inside.committer_of(worker).drain()
            assert stored(path) == [("READY", ENTERED)], "at once, and not by the reconciler"
            steps.go.set()
            async with engine_of(path, flow, train) as other:
                assert await other.get("it").result() == "trained"
            assert stored(path) == [("COMPLETED", 788_000_001_000_001)]
            assert steps.seen == ["prepare", "prepare", "body"]
        check_tables(path)

    together(scenario())


def test_W10_a_worker_that_stops_cancels_the_preparation_and_releases_its_attempt(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    seen: list[str] = []

    async def start_gpu() -> None:
        seen.append("begins")
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @hf.activity(prepare=start_gpu)
    def train() -> None:
        seen.append("body")

    async def scenario() -> None:
        flow = calling(train)
        async with engine_of(path, flow, train) as engine:
            await engine.start(flow, id="it")
            await until(lambda: seen)
        assert stored(path) == [("READY", ENTERED)]
        assert rows(path, "SELECT losses, owner FROM attempts") == [(0, None)]
        check_tables(path)

    together(scenario())
    assert seen == ["begins", "cancelled"]


def test_W7_no_body_begins_if_the_lease_ends_while_it_is_prepared(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    machine = SleepingMachine()
    seen: list[str] = []

    async def start_gpu() -> None:
        seen.append("prepare")
        if len(seen) == 1:
            machine.slept_ms = 60_000

    @hf.activity(prepare=start_gpu)
    async def train() -> str:
        seen.append("body")
        return "trained"

    async def scenario() -> None:
        flow = calling(train)
        async with engine_of(path, flow, train, providers=machine, lease=30) as engine:
            assert await engine.run(flow, id="it") == "trained"
        assert stored(path) == [("COMPLETED", 788_000_001_000_001)]
        check_tables(path)

    together(scenario())
    assert seen == ["prepare", "prepare", "body"]
