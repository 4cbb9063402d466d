"""Bodies that are told to stop before they began."""

import asyncio
from typing import Any

import pytest
from tests.scenarios.support import until

import holdfast as hf
from holdfast.authoring.registry import Registry
from holdfast.core.activity_options import ActivityOptions, encode_options
from holdfast.core.leases import WorkerKey
from holdfast.core.ledger import SEED, conclude_leg1, enter_leg1
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.attempts import runner as runtime_attempts
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceNumber

NEVER_MS = 2**53


@hf.activity
async def body() -> None:
    raise AssertionError("it must not run")


def attempt(**options: Any) -> AttemptRecord:
    return AttemptRecord(
        key=AttemptKey(InstanceNumber(1), 1, 0, 1),
        name="body",
        queue="default",
        state=AttemptState.RUNNING,
        ledger=conclude_leg1(enter_leg1(SEED)[0]),
        input=b"{}",
        options=encode_options(ActivityOptions(**options)),
        available_at_ms=0,
        scheduled_at_ms=0,
        owner=WorkerKey("anna"),
        expires_at_ms=NEVER_MS if options else None,
    )


def runner_of(ended: list[Completion | OpenNextAttempt]) -> AttemptRunner:
    return AttemptRunner(
        Registry((), (), (body,)),
        SystemClockAndIds(),
        lambda: 0,
        slots=1,
        ended=ended.append,
        beat=lambda _: None,
        respond=lambda _responses, _done: None,
        fenced_at_ms=lambda _: NEVER_MS,
    )


def test_a_body_that_is_cancelled_before_it_began_ends_as_cancelled() -> None:
    ended: list[Completion | OpenNextAttempt] = []

    async def scenario() -> None:
        runner = runner_of(ended)
        assert runner.reserve()
        runner.start(attempt())
        runner.cancel_instance(1)
        await until(lambda: not runner.running)

    asyncio.run(scenario())
    [completion] = ended
    assert isinstance(completion, Completion)
    assert completion.to_state is AttemptState.CANCELLED


def test_W7_a_body_that_is_abandoned_before_it_began_gives_its_slot_back_without_a_word() -> None:
    ended: list[Completion | OpenNextAttempt] = []

    async def scenario() -> int:
        runner = runner_of(ended)
        assert runner.reserve()
        runner.start(attempt())
        runner.abandon_all()
        await until(lambda: not runner.running)
        return runner.free

    assert asyncio.run(scenario()) == 1
    assert ended == []


def test_A5_a_body_with_a_time_out_that_is_cancelled_before_it_began_is_not_abandoned_and_frees_one_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_attempts, "GRACE_SECONDS", 0)

    async def scenario() -> tuple[int, int]:
        runner = runner_of([])
        assert runner.reserve()
        runner.start(attempt(start_to_close_ms=60_000))
        runner.cancel_instance(1)
        await until(lambda: not runner.running)
        await asyncio.sleep(0)  # the grace is over
        return runner.free, len(runner.abandoned)

    assert asyncio.run(scenario()) == (1, 0)
