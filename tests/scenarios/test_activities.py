"""Bodies of activities: how they run, fail, are tried again, time out and are cancelled (A, G13)."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.bodies import calling, outcome_of
from tests.scenarios.support import check_tables, engine_of, finish, path_of, together

import holdfast as hf
from holdfast.core.lifecycle import AttemptState

QUICK = hf.Retry(attempts=3, initial=0.01)
ONCE = hf.Retry(attempts=1)


class Unpicklable(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()
        self.code = 7


def test_an_async_body_runs_in_the_loop_and_a_plain_one_in_a_thread() -> None:
    @hf.activity
    async def in_loop() -> str:
        return threading.current_thread().name

    @hf.activity
    def in_thread() -> str:
        return threading.current_thread().name

    assert outcome_of(in_loop)[0] == threading.main_thread().name
    assert str(outcome_of(in_thread)[0]).startswith("holdfast-activity")


def test_G13_retry_is_decided_with_the_failure() -> None:
    """Each failure closes its attempt and opens the next in one commit, without a turn of the workflow."""
    keys: list[str] = []
    numbers: list[int] = []

    @hf.activity(retry=QUICK)
    async def flaky() -> str:
        keys.append(hf.idempotency_key())
        numbers.append(hf.activity_info().attempt)
        if len(keys) < 3:
            raise ConnectionError(f"try {len(keys)}")
        return "done"

    async def scenario() -> None:
        flow = calling(flaky)
        async with engine_of(":memory:", flaky, flow) as engine:
            assert await engine.run(flow, id="it") == "done"
            described = await engine.get("it").describe()
            assert [view.state for view in described.attempts] == [
                AttemptState.FAILED,
                AttemptState.FAILED,
                AttemptState.COMPLETED,
            ]
            assert [f"{view.ledger:015d}" for view in described.attempts][-1] == "888000001000001"
            assert described.attempts[0].failure == "ConnectionError: try 1"
            assert described.turn == 2
            assert [entry.kind for entry in await engine.get("it").history()].count("activity_failed") == 0
            check_tables(path_of(engine))

    together(scenario())
    assert numbers == [1, 2, 3]
    assert len(set(keys)) == 1


def test_G13_backoff_puts_the_attempts_apart() -> None:
    times: list[float] = []

    @hf.activity(retry=hf.Retry(attempts=3, initial=0.05, backoff=2, jitter=False))
    async def flaky() -> None:
        times.append(asyncio.get_running_loop().time())
        raise ConnectionError

    outcome_of(flaky)
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps[0] >= 0.049
    assert gaps[1] >= 0.099


def test_all_attempts_exhausted_is_the_last_error() -> None:
    tries: list[int] = []

    @hf.activity(retry=QUICK)
    def hopeless() -> None:
        tries.append(1)
        raise OSError(28, "No space left on device")

    cause, states, _ = outcome_of(hopeless)
    assert isinstance(cause, OSError)
    assert cause.errno == 28
    assert states == [AttemptState.FAILED] * 3
    assert len(tries) == 3


@pytest.mark.parametrize("named", [LookupError, "LookupError", "builtins.LookupError"])
def test_a_non_retryable_error_and_those_derived_from_it_end_it_at_once(named: Any) -> None:
    @hf.activity(retry=hf.Retry(attempts=5, initial=0.01, non_retryable=(named,)))
    async def wrong() -> None:
        raise KeyError("card")

    cause, states, _ = outcome_of(wrong)
    assert isinstance(cause, KeyError)
    assert states == [AttemptState.FAILED]


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_sys_exit_in_a_body_fails_the_attempt_and_the_worker_lives(kind: str) -> None:
    @hf.activity(name="leave", retry=ONCE)
    async def leave() -> None:
        sys.exit(3)

    @hf.activity(name="leave", retry=ONCE)
    def leave_thread() -> None:
        sys.exit(3)

    cause, states, failures = outcome_of(leave if kind == "async" else leave_thread)
    assert isinstance(cause, hf.errors.RemoteError)
    assert cause.type_name == "builtins.SystemExit"
    assert (states, failures) == ([AttemptState.FAILED], ["SystemExit: 3"])


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_stop_iteration_in_a_body_fails_the_attempt(kind: str) -> None:
    """Python cannot pass it through a future; without care the attempt would never end."""

    @hf.activity(name="empty", retry=ONCE)
    async def empty() -> int:
        return next(iter([]))

    @hf.activity(name="empty", retry=ONCE)
    def empty_thread() -> int:
        return next(iter([]))

    cause, states, _ = outcome_of(empty if kind == "async" else empty_thread)
    assert isinstance(cause, RuntimeError)
    assert states == [AttemptState.FAILED]


def test_an_unserialisable_result_fails_the_attempt_and_names_the_path() -> None:
    @hf.activity(retry=ONCE)
    async def odd() -> dict[str, Any]:
        return {"fine": 1, "odd": [object()]}

    cause, states, _ = outcome_of(odd)
    assert isinstance(cause, hf.PayloadError)
    assert "odd" in str(cause)
    assert states == [AttemptState.FAILED]


def test_an_error_with_state_that_no_json_holds_keeps_what_can_be_kept() -> None:
    @hf.activity(retry=ONCE)
    async def fails() -> None:
        raise Unpicklable("locked")

    cause, _, failures = outcome_of(fails)
    assert isinstance(cause, Unpicklable)
    assert (str(cause), cause.code) == ("locked", 7)
    assert not hasattr(cause, "lock")
    assert failures == ["Unpicklable: locked"]


@pytest.mark.parametrize("kind", ["async", "thread", "stream", "thread stream"])
def test_G13_a_result_that_cannot_be_stored_is_not_retried(kind: str) -> None:
    """Another attempt would repeat the side effects of the body for the same refusal."""
    runs: list[str] = []

    @hf.activity
    async def in_loop() -> int:
        runs.append("charged")
        return "seven"  # type: ignore[return-value]  # wrong on purpose

    @hf.activity
    def in_thread() -> int:
        runs.append("charged")
        return "seven"  # type: ignore[return-value]

    @hf.activity
    async def stream() -> AsyncIterator[int]:
        runs.append("charged")
        yield "seven"  # type: ignore[misc]

    @hf.activity
    def stream_in_thread() -> Iterator[int]:
        runs.append("charged")
        yield "seven"  # type: ignore[misc]

    bodies: dict[str, Any] = {
        "async": in_loop,
        "thread": in_thread,
        "stream": stream,
        "thread stream": stream_in_thread,
    }
    body = bodies[kind]

    @hf.workflow
    async def call() -> Any:
        return [value async for value in body()] if body.yields else await body()

    with pytest.raises(hf.WorkflowFailed) as failed:
        finish(call, body)
    assert isinstance(failed.value.cause, hf.PayloadError)
    assert "expected int, found str" in str(failed.value.cause)
    assert runs == ["charged"]


def test_G13_an_error_of_the_payload_that_the_body_itself_raises_is_retried() -> None:
    runs: list[int] = []

    @hf.activity(retry=QUICK)
    async def reads_something() -> int:
        runs.append(1)
        if len(runs) < 3:
            raise hf.PayloadError("a message from elsewhere cannot be read")
        return 7

    assert outcome_of(reads_something)[0] == 7


def test_activity_info_names_everything(tmp_path: Path) -> None:
    @hf.activity(name="who", queue="special")
    async def who() -> list[Any]:
        info = hf.activity_info()
        return [info.instance_id, info.workflow, info.activity, info.number, info.attempt, info.queue, info.details]

    @hf.workflow(name="asks")
    async def asks() -> list[Any]:
        await who()
        return await who()

    found = finish(asks, who, store=tmp_path / "shop.db", queues=["special"])
    assert found == ["it", "asks", "who", 1, 1, "special", None]


def test_outside_of_its_place_every_helper_says_so() -> None:
    for outside in (hf.activity_info, hf.idempotency_key, hf.heartbeat):
        with pytest.raises(hf.errors.UsageError, match="body of an activity"):
            outside()
    for inside in (hf.now, hf.random, hf.uuid4, hf.info, lambda: hf.side_effect(lambda: 1)):
        with pytest.raises(hf.errors.NotInWorkflow):
            inside()


def test_an_activity_awaited_outside_of_a_workflow_simply_runs() -> None:
    @hf.activity
    async def double(number: int) -> int:
        return 2 * number

    @hf.activity
    def triple(number: int) -> int:
        return 3 * number

    async def scenario() -> list[int]:
        return [await double(2), await triple(2), await double.fn(4), triple.fn(4)]

    assert together(scenario()) == [4, 6, 8, 12]


def test_an_activity_that_is_not_registered_anywhere_waits_visibly(tmp_path: Path) -> None:
    @hf.activity
    async def elsewhere() -> str:
        return "here"

    async def scenario() -> None:
        flow = calling(elsewhere)
        path = tmp_path / "shop.db"
        async with engine_of(path, flow) as engine:
            handle = await engine.start(flow, id="it")
            described = await handle.describe()
            assert described.waiting_for == ["activity elsewhere"]
            assert described.attempts[0].state is AttemptState.READY
            async with engine_of(path, elsewhere):
                assert await handle.result(timeout=10) == "here"

    together(scenario())


@pytest.mark.parametrize("cache_size", [0, 100])
def test_what_workflow_code_raises_has_no_context_but_its_own(cache_size: int) -> None:
    """The turn that takes a failure in may run right where the body failed. Nothing of that shows in the code."""

    @hf.activity(retry=ONCE)
    async def fails() -> None:
        raise ValueError("of the body")

    @hf.workflow
    async def goes_on() -> None:
        with contextlib.suppress(ValueError):
            await fails()
        raise LookupError("of the code")

    for code, kind in ((calling(fails), ValueError), (goes_on, LookupError)):
        with pytest.raises(hf.WorkflowFailed) as failed:
            finish(code, fails, cache_size=cache_size)
        assert type(failed.value.cause) is kind
        assert failed.value.cause.__cause__ is None


@dataclass
class Cash:
    cents: int


@dataclass
class Card:
    cents: int


@dataclass
class Bill:
    parts: list[Cash | Card]


@pytest.mark.parametrize("cache_size", [0, 10])
def test_arguments_results_and_events_may_have_unions_of_dataclasses_inside(tmp_path: Path, cache_size: int) -> None:
    @hf.activity
    async def swap(bill: Bill) -> list[Cash | Card]:
        return [Card(part.cents) if isinstance(part, Cash) else Cash(part.cents) for part in bill.parts]

    @hf.workflow
    async def pays(first: dict[str, Cash | Card]) -> Bill:
        swapped = await swap(Bill([*first.values()]))
        return Bill(swapped + await hf.event("more", list[Cash | Card]))

    more = hf.Event[list[Cash | Card]]("more")

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", swap, pays, cache_size=cache_size) as engine:
            first: dict[str, Cash | Card] = {"a": Cash(1), "b": Card(2)}
            second: list[Cash | Card] = [Card(3)]
            handle = await engine.start(pays, first)
            await handle.raise_event(more, second)
            assert await handle.result() == Bill([Card(1), Cash(2), Card(3)])

    together(scenario())
