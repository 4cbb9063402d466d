"""Continue-as-new with real engines (G4, invariant 20): one commit, one successor, nothing old reaches the new."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, finish, path_of, rows, together

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.audit.problems import Rule
from holdfast.payloads.limits import INLINE_LIMIT_BYTES

MANY = 40


@hf.activity
async def double(number: int) -> int:
    return number * 2


@hf.activity
async def hang() -> None:
    await asyncio.Event().wait()


@hf.workflow
async def climb(until: int, at: int = 0) -> list[int]:
    doubled = await double(at)
    if at < until:
        hf.continue_as_new(until, at + 1)
    return [doubled, hf.info().execution]


def run_and_audit(workflow: hf.Workflow[..., Any], *args: Any, store: str | Path = ":memory:", **options: Any) -> Any:
    async def scenario() -> Any:
        async with engine_of(store, workflow, double, hang, **options) as engine:
            result = await engine.run(workflow, *args, id="it")
            check_tables(path_of(engine))
            assert audit(path_of(engine)) == []
            return result

    return together(scenario())


@pytest.mark.parametrize("cache_size", [0, 1, 100])
def test_G4_many_executions_follow_each_other_and_the_last_one_answers(cache_size: int) -> None:
    assert run_and_audit(climb, MANY, cache_size=cache_size) == [2 * MANY, MANY + 1]


def test_G4_two_engines_on_one_file_take_turns(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = tmp_path / "shop.db"
        async with (
            engine_of(store, climb, double, cache_size=0) as one,
            engine_of(store, climb, double, cache_size=0) as other,
        ):
            handles = [await engine.start(climb, 8, id=f"it-{at}") for at, engine in enumerate((one, other, one))]
            assert [await handle.result() for handle in handles] == [[16, 9]] * 3
        check_tables(store)
        assert audit(store) == []

    together(scenario())


def test_G4_every_execution_has_a_history_of_its_own_that_can_be_read() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", climb, double) as engine:
            handle = await engine.start(climb, 2, id="it")
            await handle.result()
            assert (await handle.describe()).execution == 3
            ends = [(await handle.history(execution=number))[-1].kind for number in (1, 2, 3)]
            assert ends == ["continued_as_new", "continued_as_new", "workflow_completed"]
            first = (await handle.history(execution=2))[0]
            assert (first.kind, first.fields["execution"]) == ("started", 2)
            assert [entry.kind for entry in await handle.history()][-1] == "workflow_completed"
            with pytest.raises(hf.errors.InvalidOption, match="from 1 to 3"):
                await handle.history(execution=4)

    together(scenario())


def test_G3_the_id_stays_that_of_the_first_input() -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", climb, double) as engine:
            await engine.run(climb, 3, id="it")
            assert await engine.run(climb, 3, id="it") == [6, 4]
            with pytest.raises(hf.InstanceConflict):
                await engine.start(climb, 3, 3, id="it")

    together(scenario())


def test_G4_open_activities_and_timers_end_with_their_execution() -> None:
    @hf.workflow
    async def leave(again: bool = True) -> str:
        if again:
            tasks = [asyncio.create_task(hang()), asyncio.create_task(asyncio.sleep(3600))]
            await asyncio.sleep(0.01)
            assert not any(task.done() for task in tasks)
            hf.continue_as_new(False)
        return "new"

    assert run_and_audit(leave) == "new"


def test_G4_an_answer_to_the_old_execution_never_reaches_the_new_one() -> None:
    """Both have an activity number 0, and the old one's answer comes while the new one waits for its own."""
    began, go_on = asyncio.Event(), asyncio.Event()

    @hf.activity
    async def stubborn() -> str:
        began.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return "old"

    @hf.activity
    async def fresh() -> str:
        go_on.set()
        return "new"

    @hf.workflow
    async def change(again: bool = True) -> str:
        if again:
            task = asyncio.create_task(stubborn())
            await asyncio.sleep(0.01)
            assert not task.done()
            hf.continue_as_new(False)
        return await fresh()

    assert finish(change, stubborn, fresh) == "new"


def test_G4_finally_runs_and_ordinary_except_does_not_swallow_it() -> None:
    @hf.workflow
    async def tidy(seen: list[str]) -> list[str]:
        if not seen:
            try:
                hf.continue_as_new(["no finally"])
            except Exception:  # noqa: BLE001 - that it does not see it is the point
                hf.continue_as_new(["swallowed"])
            finally:
                seen = [str(await double(21))]
                hf.continue_as_new(seen)
        return seen

    assert run_and_audit(tidy, []) == ["42"]


def test_G4_in_a_task_group_of_the_main_task_it_still_continues() -> None:
    @hf.workflow
    async def grouped(again: bool = True) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(3600 if again else 0))
            if again:
                hf.continue_as_new(False)
        return "done"

    assert run_and_audit(grouped) == "done"


def test_G4_elsewhere_than_in_the_main_task_it_is_refused_at_the_call() -> None:
    @hf.workflow
    async def wrong() -> str:
        async def inside() -> None:
            hf.continue_as_new()

        with pytest.raises(hf.errors.NotInMainTask, match="main task"):
            await asyncio.create_task(inside())
        return "refused"

    assert run_and_audit(wrong) == "refused"


def test_G4_wrong_arguments_are_refused_at_the_call() -> None:
    @hf.workflow
    async def wrong(number: int) -> int:
        if number == 0:
            with pytest.raises(hf.PayloadError):
                hf.continue_as_new("not a number")
            hf.continue_as_new(number=7)
        return number

    assert run_and_audit(wrong, 0) == 7


def test_G4_a_large_input_is_carried_by_reference() -> None:
    @hf.workflow
    async def grow(text: str) -> int:
        if len(text) == 1:
            hf.continue_as_new(text * (2 * INLINE_LIMIT_BYTES))
        return len(text)

    assert run_and_audit(grow, "x") == 2 * INLINE_LIMIT_BYTES


def test_G4_randomness_differs_from_execution_to_execution() -> None:
    @hf.workflow
    async def roll(seen: list[float]) -> list[float]:
        seen = [*seen, hf.random().random()]
        if len(seen) < 4:
            hf.continue_as_new(seen)
        return seen

    assert len(set(run_and_audit(roll, []))) == 4


@pytest.mark.parametrize("cache_size", [0, 100])
def test_G4_the_hint_comes_when_the_history_is_long_and_is_the_same_in_replay(cache_size: int) -> None:
    @hf.workflow(continue_after=30)
    async def long(left: int, lengths: list[int]) -> list[int]:
        while left:
            await double(left)
            left -= 1
            info = hf.info()
            if info.should_continue:
                hf.continue_as_new(left, [*lengths, info.history_length])
        return lengths

    lengths = run_and_audit(long, 50, [], cache_size=cache_size)
    assert len(lengths) >= 3
    assert all(30 <= length < 33 for length in lengths)


def test_G4_a_limit_below_one_is_refused() -> None:
    with pytest.raises(hf.errors.InvalidOption, match="continue_after"):
        hf.workflow(continue_after=0)


def test_A9_termination_between_two_executions_records_the_start_of_the_new_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = tmp_path / "shop.db"
        async with engine_of(store, climb, double) as engine:
            handle = await engine.start(climb, 100_000, id="it")
            await asyncio.sleep(0)
            await handle.terminate("enough")
            with pytest.raises(hf.WorkflowTerminated):
                await handle.result()
        check_tables(store)
        assert audit(store) == []

    together(scenario())


@pytest.mark.parametrize("from_outside", [False, True])
@pytest.mark.parametrize("gap", ["read_instance", "load"])
def test_A9_termination_while_the_next_execution_is_brought_to_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gap: str, from_outside: bool
) -> None:
    """It ends the instance for good: the code of the new execution does nothing, and nobody calls that a fault."""
    store, begun = tmp_path / "shop.db", list[int]()

    @hf.activity
    async def begin(at: int) -> None:
        begun.append(at)

    @hf.workflow
    async def again(at: int = 0) -> None:
        await begin(at)
        hf.continue_as_new(at + 1)

    async def scenario() -> None:
        client = await hf.connect(store)
        async with engine_of(store, again, begin) as engine:
            whole = getattr(engine._session.store, gap)

            async def interrupted(number: Any, *rest: Any) -> Any:
                if begun and (await engine._session.store.find_instance(handle.id)).execution == 2:  # type: ignore[union-attr,arg-type]
                    monkeypatch.setattr(engine._session.store, gap, whole)
                    await (client if from_outside else engine).get("it").terminate("enough")
                return await whole(number, *rest)

            handle = await engine.start(again, id="it")
            monkeypatch.setattr(engine._session.store, gap, interrupted)
            with pytest.raises(hf.WorkflowTerminated):
                await handle.result()
        await client.close()
        check_tables(store)
        assert audit(store) == []

    together(scenario())
    assert begun == [0]
    assert "is blocked" not in caplog.text


def test_20_verify_finds_an_execution_without_its_successor(tmp_path: Path) -> None:
    store = tmp_path / "shop.db"
    run_and_audit(climb, 2, store=store)
    rows(store, "DELETE FROM history WHERE execution = 1 AND turn = 1")
    assert {problem.rule for problem in audit(store)} >= {Rule.ONE_SUCCESSOR}


@pytest.mark.parametrize("cache_size", [0, 100])
def test_G4_unread_events_are_carried_over_in_order_and_each_is_read_once(cache_size: int) -> None:
    @hf.workflow
    async def collect(seen: list[int]) -> list[int]:
        seen = [*seen, await hf.event("number", int)]
        if len(seen) < 6:
            hf.continue_as_new(seen)
        return seen

    async def scenario() -> None:
        async with engine_of(":memory:", collect, cache_size=cache_size) as engine:
            none: list[int] = []
            handle = await engine.start(collect, none, id="it")
            for number in range(6):
                await handle.raise_event("number", number)
            assert await handle.result() == list(range(6))
            check_tables(path_of(engine))
            assert audit(path_of(engine)) == []

    together(scenario())


@hf.workflow
async def counts_on(rounds: int) -> int:
    hf.state["total"] = hf.state.get("total", int, 0) + 1
    hf.set_status(f"round {hf.state['total']}")
    await asyncio.sleep(0.001)
    if rounds > 1:
        hf.continue_as_new(rounds - 1)
    return hf.state.get("total", int, 0)


@pytest.mark.parametrize("cache_size", [100, 0])
def test_G4_status_and_state_are_carried_over(tmp_path: Path, cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", counts_on, cache_size=cache_size) as engine:
            handle = await engine.start(counts_on, 4, id="it")
            assert await handle.result(timeout=10) == 4
            assert (await handle.describe()).custom_status == "round 4"
            assert await handle.state() == {"total": 4}
        assert audit(tmp_path / "shop.db") == []

    together(scenario())


@hf.workflow
async def goes_round(first: bool = True) -> str:
    del first
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        hf.continue_as_new(False)
    return "never"


def test_A9_code_that_was_asked_to_end_does_not_begin_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", goes_round) as engine:
            handle = await engine.start(goes_round, id="it")
            await handle.cancel("enough")
            with pytest.raises(hf.WorkflowCancelled, match="enough"):
                await handle.result(timeout=10)
            assert (await handle.describe()).execution == 1
        assert audit(tmp_path / "shop.db") == []

    together(scenario())
