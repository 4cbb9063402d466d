"""Bodies that are asked to stop before they began."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.scenarios.support import until
from tests.support.workers import NEVER_MS, unstarted_worker

import holdfast as hf
from holdfast.core.activity_options import ActivityOptions, encode_options
from holdfast.core.leases import WorkerKey
from holdfast.core.ledger import SEED, conclude_leg1, enter_leg1
from holdfast.core.lifecycle import AttemptState
from holdfast.runtime.attempts import runner as runtime_attempts
from holdfast.runtime.committer import Done
from holdfast.runtime.worker import WorkerRuntime
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.turns import StreamValues
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceNumber
from holdfast.storage.sqlite.store import SqliteStore


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


class Ends:
    """Records the ends of attempts."""

    def __init__(self) -> None:
        self.ended: list[Completion | OpenNextAttempt] = []

    def attempt_ended(self, ended: Completion | OpenNextAttempt) -> None:
        self.ended.append(ended)

    def values_yielded(self, values: StreamValues, done: Done) -> None:
        raise AssertionError(values, done)

    def take_turns(self) -> None:
        """There are no instances."""


@contextmanager
def started(ends: Ends, **options: Any) -> Generator[WorkerRuntime]:
    """A worker that runs one attempt of `body`."""
    with unstarted_worker(SqliteStore(":memory:", clock=lambda: 0), body) as worker:
        worker.attempts.report_to(ends)
        assert worker.slots.reserve(1) == 1
        worker.attempts.start(attempt(**options))
        yield worker


def test_a_body_that_is_cancelled_before_it_began_ends_as_cancelled() -> None:
    ends = Ends()

    async def scenario() -> None:
        with started(ends) as worker:
            worker.attempts.cancel_instance(1)
            await until(lambda: not worker.attempts.running)

    asyncio.run(scenario())
    [completion] = ends.ended
    assert isinstance(completion, Completion)
    assert completion.to_state is AttemptState.CANCELLED


def test_W7_a_body_that_is_evicted_before_it_began_frees_its_slot_and_nothing_is_recorded() -> None:
    ends = Ends()

    async def scenario() -> int:
        with started(ends) as worker:
            worker.attempts.evict_all()
            await until(lambda: not worker.attempts.running)
            return worker.slots.free

    assert asyncio.run(scenario()) == 1
    assert ends.ended == []


def test_A5_a_body_with_a_time_out_that_is_cancelled_before_it_began_is_not_abandoned_and_frees_one_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_attempts, "GRACE_SECONDS", 0)

    async def scenario() -> tuple[int, int]:
        with started(Ends(), start_to_close_ms=60_000) as worker:
            worker.attempts.cancel_instance(1)
            await until(lambda: not worker.attempts.running)
            await asyncio.sleep(0)  # the grace is over
            return worker.slots.free, len(worker.attempts.abandoned)

    assert asyncio.run(scenario()) == (1, 0)
