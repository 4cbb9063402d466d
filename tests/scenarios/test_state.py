"""What a run shows of itself: status and key-values, visible outside once committed (G11), and waiting for them."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.scenarios.support import check_tables, engine_of, finish, path_of, rows, together
from tests.support.inside import worker_of

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.authoring.state import MAX_KEYS

CACHES = pytest.mark.parametrize("cache_size", [1_000, 0])


@dataclass
class Item:
    name: str
    cents: int


gates: dict[str, asyncio.Event] = {}


@hf.activity
async def step(number: int) -> int:
    return number + 1


@hf.activity
async def held(name: str) -> str:
    await gates[name].wait()
    return name


@hf.workflow
async def shopping() -> list[str]:
    hf.set_status("begins")
    hf.state["item"] = Item("pen", 120)
    hf.state["count"] = await step(0)
    hf.set_status({"phase": "paying", "done": 1})
    hf.state["gone"] = 1
    await step(1)
    del hf.state["gone"]
    hf.state["count"] = hf.state["count"] + 1
    assert hf.state.get("item", Item) == Item("pen", 120)
    assert "gone" not in hf.state
    assert hf.state.get("gone", int, 7) == 7
    assert len(hf.state) == 2
    return list(hf.state)


@CACHES
def test_G11_status_and_state_are_there_after_the_end_and_replay_repeats_them(cache_size: int) -> None:
    async def scenario() -> None:
        async with engine_of(":memory:", shopping, step, cache_size=cache_size) as engine:
            handle = await engine.start(shopping, id="it")
            assert await handle.result() == ["count", "item"]
            assert await handle.state() == {"count": 2, "item": {"name": "pen", "cents": 120}}
            assert (await handle.describe()).custom_status == {"phase": "paying", "done": 1}
            (summary,) = await engine.list()
            assert (summary.state, summary.custom_status) == ("COMPLETED", {"phase": "paying", "done": 1})
            assert summary.closed_at is not None
            assert summary.created_at <= summary.closed_at
            check_tables(path_of(engine))
            assert audit(path_of(engine)) == []

    together(scenario())


@hf.workflow
async def waits_in_the_middle() -> None:
    hf.state["before"] = 1
    await held("middle")
    hf.state["after"] = 2
    hf.set_status("after")


def test_G11_nothing_of_a_turn_is_visible_before_its_commit(tmp_path: Path) -> None:
    async def scenario() -> None:
        gates["middle"] = asyncio.Event()
        seen: list[list[tuple[object, ...]]] = []

        def hook(_point: object, members: object) -> None:
            if "key='after'" in str(members):
                seen.append(rows(tmp_path / "s.db", "SELECT key FROM kept ORDER BY key"))

        async with engine_of(tmp_path / "s.db", waits_in_the_middle, held, fault_hook=hook) as engine:
            handle = await engine.start(waits_in_the_middle, id="it")
            assert await handle.state() == {"before": 1}
            assert (await handle.describe()).custom_status is None
            gates["middle"].set()
            await handle.result()
            assert await handle.state() == {"before": 1, "after": 2}
        assert seen == [[("before",)], [("",), ("after",), ("before",)]]  # before and after the commit

    together(scenario())


def test_G11_state_survives_a_crash_and_another_engine_goes_on_with_it(tmp_path: Path) -> None:
    @hf.workflow(name="counting")
    async def counting() -> int:
        hf.state["count"] = 1
        await held("crash")
        hf.state["count"] = hf.state["count"] + 1
        return int(hf.state["count"])

    async def scenario() -> None:
        gates["crash"] = asyncio.Event()
        first = engine_of(tmp_path / "s.db", counting, held, lease=1)
        await first.__aenter__()
        await first.start(counting, id="it")
        await worker_of(first).kill()
        await first._kill()
        gates["crash"].set()
        async with engine_of(tmp_path / "s.db", counting, held, lease=1) as second:
            async with asyncio.timeout(20):
                assert await second.get("it").result() == 2
            assert await second.get("it").state() == {"count": 2}

    together(scenario())


def test_G11_state_is_one_while_two_engines_take_the_turns_of_an_instance(tmp_path: Path) -> None:
    """Neither keeps anything in memory, so whoever is first takes the next turn, and both show the same."""
    store, steps = tmp_path / "s.db", 8

    @hf.workflow(name="tallying")
    async def tallying() -> dict[str, int]:
        async for number in hf.events("number", int):
            hf.state["sum"] = hf.state.get("sum", int, 0) + number
            hf.state[f"last-{number % 2}"] = number
            hf.set_status(number)
            if number == steps - 1:
                break
        return {key: hf.state.get(key, int, 0) for key in hf.state}

    async def scenario() -> None:
        engines = [engine_of(store, tallying, cache_size=0), engine_of(store, tallying, cache_size=0)]
        async with engines[0] as first, engines[1] as second:
            await first.start(tallying, id="it")
            for number in range(steps):
                await (first, second)[number % 2].get("it").raise_event("number", number)
            expected = {"sum": sum(range(steps)), "last-0": steps - 2, "last-1": steps - 1}
            assert await second.get("it").result() == expected
            for engine in (first, second):
                assert await engine.get("it").state() == expected
                assert (await engine.get("it").describe()).custom_status == steps - 1
        check_tables(store)
        assert audit(store) == []

    together(scenario())


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [("", 1, hf.errors.InvalidOption), ("k" * 201, 1, hf.errors.InvalidOption), ("k", "x" * 70_000, hf.PayloadError)],
)
def test_state_is_bounded_with_typed_errors(key: str, value: object, error: type[Exception]) -> None:
    @hf.workflow(name="bounded")
    async def bounded() -> str:
        with pytest.raises(error):
            hf.state[key] = value
        return "refused"

    assert finish(bounded) == "refused"


@pytest.mark.parametrize("has_status", [False, True])
def test_the_status_is_not_counted_among_the_keys(has_status: bool) -> None:
    @hf.workflow(name="full")
    async def full() -> int:
        if has_status:
            hf.set_status("full")
        for number in range(MAX_KEYS):
            hf.state[f"{number}"] = number
        with pytest.raises(hf.errors.InvalidOption):
            hf.state["one more"] = 1
        hf.state["0"] = 1
        return len(hf.state)

    assert finish(full) == MAX_KEYS


def test_state_and_status_are_for_workflow_code_only() -> None:
    with pytest.raises(hf.errors.NotInWorkflow):
        hf.set_status("x")
    with pytest.raises(hf.errors.NotInWorkflow):
        hf.state["x"] = 1


# ---------------------------------------------------------------------- waiting for a condition


@hf.workflow
async def counts_to_three() -> list[str]:
    done: list[int] = []
    told: list[str] = []

    async def work(number: int) -> None:
        done.append(await step(number))

    async def watch(least: int) -> None:
        await hf.wait_until(lambda: len(done) >= least)
        told.append(f"{least} of {len(done)}")

    watchers = [asyncio.create_task(watch(least)) for least in (3, 1, 2)]
    for number in range(3):
        await work(number)
    await asyncio.gather(*watchers)
    return told


@CACHES
def test_G10_a_condition_is_looked_at_after_every_step(cache_size: int) -> None:
    assert finish(counts_to_three, step, cache_size=cache_size) == ["1 of 1", "2 of 2", "3 of 3"]


@hf.workflow
async def one_at_a_time() -> list[int]:
    """Each waiter makes the condition false again, so the next one has to wait."""
    tokens = 0
    most = 0
    order: list[int] = []

    async def take(number: int) -> None:
        nonlocal tokens, most
        await hf.wait_until(lambda: tokens > 0)
        most = max(most, tokens)
        tokens -= 1
        order.append(number)

    takers = [asyncio.create_task(take(number)) for number in range(3)]
    for _ in range(3):
        await step(0)
        tokens += 1
    await asyncio.gather(*takers)
    return [*order, most, tokens]


def test_G10_of_several_waiters_one_is_woken_at_a_time_the_oldest_first() -> None:
    assert finish(one_at_a_time, step) == [0, 1, 2, 1, 0]


@CACHES
def test_G10_the_time_out_of_a_condition_is_a_durable_timer(cache_size: int) -> None:
    @hf.workflow(name="never")
    async def never() -> str:
        try:
            await hf.wait_until(lambda: False, timeout=0.02)
        except TimeoutError:
            return "timed out"
        return "?"

    async def scenario() -> None:
        async with engine_of(":memory:", never, cache_size=cache_size) as engine:
            assert await engine.run(never, id="it") == "timed out"
            kinds = [entry.kind for entry in await engine.get("it").history()]
            assert kinds == ["started", "timer_started", "timer_fired", "workflow_completed"]

    together(scenario())


def test_a_predicate_that_raises_or_has_to_be_awaited_fails_where_it_is_waited_for() -> None:
    @hf.workflow(name="mistaken")
    async def mistaken() -> list[str]:
        broken: list[bool] = []

        def raises() -> bool:
            if broken:
                raise ZeroDivisionError("too late")
            return False

        async def coroutine() -> bool:
            return True

        waiting = asyncio.create_task(hf.wait_until(raises))
        await step(0)
        broken.append(True)
        told: list[str] = []
        for awaitable in (waiting, hf.wait_until(coroutine)):
            try:
                await awaitable
            except (ZeroDivisionError, hf.errors.UsageError) as error:
                told.append(type(error).__name__)
        return told

    assert finish(mistaken, step) == ["ZeroDivisionError", "UsageError"]


@CACHES
def test_a_predicate_that_looks_at_what_was_cancelled_fails_where_it_is_waited_for(cache_size: int) -> None:
    @hf.workflow
    async def looking() -> str:
        slow = asyncio.create_task(asyncio.sleep(60))
        asyncio.create_task(step(0)).add_done_callback(lambda _: slow.cancel())
        try:
            await hf.wait_until(lambda: slow.done() and slow.result())
        except asyncio.CancelledError:
            return "told"
        return "not told"

    assert finish(looking, step, cache_size=cache_size) == "told"


def test_G14_a_condition_that_a_clean_up_waits_for_is_looked_at_too() -> None:
    @hf.workflow(name="cleans")
    async def cleans() -> str:
        done: list[int] = []

        async def first() -> None:
            try:
                await hf.wait_until(lambda: False)
            finally:
                done.append(await step(1))

        async def second() -> None:
            try:
                await hf.wait_until(lambda: False)
            finally:
                await hf.wait_until(lambda: bool(done))
                await step(2)

        left = [asyncio.create_task(first()), asyncio.create_task(second())]
        await step(0)
        return f"{len(left)}"

    assert finish(cleans, step) == "2"
