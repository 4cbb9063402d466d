"""Rules of pauses: no turn is committed and no attempt is claimed while an instance is PAUSED (R20-R27)."""

from collections.abc import Awaitable, Callable
from unittest import SkipTest

import msgspec

from holdfast.compose import capabilities_of
from holdfast.core.activity_options import ActivityOptions, RetryPolicy, encode_options
from holdfast.core.deadlines import DeadlineVerdict
from holdfast.core.history import ActivityFailed, CancelRequested, decode_event
from holdfast.core.ledger import SEED
from holdfast.core.lifecycle import AttemptEvent, AttemptState, InstanceState
from holdfast.core.pauses import PauseVerdict, ResumeVerdict, original_ms
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.attempt_endings import end_by_failure
from holdfast.storage.contract import PAUSE
from holdfast.storage.members.attempts import ClaimAttempts, OpenNextAttempt
from holdfast.storage.members.instances import Block, ClaimInstances, Expire, Pause, Release, Resume, Terminate
from holdfast.storage.members.outcomes import (
    ClaimedAttempts,
    ClaimedInstances,
    Delivered,
    Expired,
    PausedInstance,
    Rejected,
    ResumedInstance,
)
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import AttemptRecord, InstanceId, InstanceRecord, NewAttempt
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    FIRST_TIME_MS,
    Bench,
    Rules,
    applied,
    check,
    completion,
    start,
    turn,
)
from holdfast.testing.conformance.deadlines import LIMIT, LIMIT_MS, limited
from holdfast.testing.conformance.messages import cancel

CLAIM = ClaimAttempts(owner=BERT, queues=("default",), names=("step",), limit=9)
CLAIM_INSTANCES = ClaimInstances(owner=BERT, workflows=("flow",), limit=9)
LOST = RecordedFailure(type="builtins.ValueError", message="no")
PAUSES = ActivityOptions(retry=RetryPolicy(attempts=1), pauses=True)


def ready(activity: int, options: ActivityOptions, *, available_at_ms: int = FIRST_TIME_MS) -> NewAttempt:
    """An attempt that waits for a worker."""
    return NewAttempt(
        activity=activity,
        attempt=1,
        name="step",
        queue="default",
        state=AttemptState.READY,
        ledger=SEED,
        input=b"{}",
        options=encode_options(options),
        available_at_ms=available_at_ms,
        scheduled_at_ms=FIRST_TIME_MS,
        expires_at_ms=options.expires_at_ready_ms(scheduled_at_ms=FIRST_TIME_MS, available_at_ms=available_at_ms),
    )


async def with_ready(bench: Bench, *new: NewAttempt, instance_id: str = "a") -> InstanceRecord:
    """An instance with one RUNNING attempt (activity 0) and others that wait."""
    record = await bench.started(instance_id)
    check(applied(await bench.one(turn(record, attempts=new))))
    return await bench.instance(instance_id)


async def pause(bench: Bench, record: InstanceRecord, reason: str = "") -> PauseVerdict | None:
    outcome = await bench.one(Pause(id=record.id, reason=reason))
    return outcome.verdict if isinstance(outcome, PausedInstance) else None


async def resume(
    bench: Bench, record: InstanceRecord, *, extend_ms: int = 0, fail: bool = False
) -> ResumeVerdict | None:
    outcome = await bench.one(Resume(id=record.id, extend_ms=extend_ms, fail=fail))
    return outcome.verdict if isinstance(outcome, ResumedInstance) else None


async def claimed(bench: Bench) -> list[AttemptRecord]:
    outcome = await bench.one(CLAIM)
    return outcome.attempts if isinstance(outcome, ClaimedAttempts) else []


async def attempt(bench: Bench, record: InstanceRecord, activity: int, number: int = 1) -> AttemptRecord:
    rows = await bench.store.read_attempts(record.number, record.execution)
    [found] = [row for row in rows if (row.key.activity, row.key.attempt) == (activity, number)]
    return found


class PauseRules(Rules):
    """R20-R27, as far as a store with the capability `PAUSE` decides them."""

    def _on_pausing(self, case: Callable[[Bench], Awaitable[None]]) -> None:
        async def capable(bench: Bench) -> None:
            if PAUSE not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {PAUSE!r}")
            await case(bench)

        self.on_bench(capable)

    def test_R20_a_pause_rejects_the_turn_that_is_under_way_and_no_worker_claims_the_instance(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await pause(bench, record, "why") is PauseVerdict.PAUSE)
            paused = await bench.instance("a")
            check((paused.state, paused.paused_from, paused.pause_reason) == (InstanceState.PAUSED, "RUNNING", "why"))
            check((paused.paused_at_ms, paused.owner) == (bench.clock.now_ms, None))
            check(isinstance(await bench.one(turn(record)), Rejected), "the fence has moved on")
            forged = msgspec.structs.replace(record, fence=paused.fence)
            check(isinstance(await bench.one(turn(forged)), Rejected), "it has no owner")
            check(isinstance(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence)), Rejected))
            block = Block(number=record.number, owner=ANNA, fence=record.fence, reason="why", build="one")
            check(isinstance(await bench.one(block), Rejected))
            check(await bench.one(CLAIM_INSTANCES) == ClaimedInstances(instances=[]))
            check(await pause(bench, record, "another") is PauseVerdict.SAME)
            check(await bench.instance("a") == paused, "a second pause changed it")

        self._on_pausing(case)

    def test_R20_results_wait_in_the_inbox_and_wake_no_worker(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await pause(bench, record)
            check(applied(await bench.one(completion(record))))
            check(len(await bench.store.peek_inbox(record.number, 9)) == 1)
            check((await bench.instance("a")).claimable_at_ms is None)
            check(await resume(bench, record) is ResumeVerdict.RESUME)
            now = await bench.instance("a")
            check((now.state, now.paused_at_ms, now.paused_from) == (InstanceState.RUNNING, None, None))
            outcome = await bench.one(CLAIM_INSTANCES)
            check(isinstance(outcome, ClaimedInstances) and [one.id for one in outcome.instances] == ["a"])

        self._on_pausing(case)

    def test_R20_a_rejected_turn_leaves_its_results_in_the_inbox(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await pause(bench, record)
            check(isinstance(await bench.one(turn(record, completions=(completion(record),))), Rejected))
            check(len(await bench.store.peek_inbox(record.number, 9)) == 1)
            check((await bench.instance("a")).claimable_at_ms is None)

        self._on_pausing(case)

    def test_R21_attempts_that_wait_are_not_claimed_and_do_not_expire(self) -> None:
        async def case(bench: Bench) -> None:
            short = ActivityOptions(schedule_to_start_ms=500, schedule_to_close_ms=900)
            later = FIRST_TIME_MS + 300
            far = FIRST_TIME_MS + 9_000
            options = ActivityOptions()
            record = await with_ready(
                bench,
                ready(1, short),
                ready(2, options, available_at_ms=later),
                ready(3, options, available_at_ms=far),
            )
            bench.clock.now_ms += 100
            since_ms = bench.clock.now_ms
            await pause(bench, record)
            bench.clock.now_ms += 5_000
            check(await claimed(bench) == [] and await bench.store.expired_attempts(9) == [])
            check([queue.ready for queue in await bench.store.queues()] in ([], [0]))
            due = await bench.store.next_due(workflows=(), queues=("default",), names=("step",))
            check(due.attempt_ms is None, "no worker wakes for them")
            await resume(bench, record)
            moved = await attempt(bench, record, 1)
            check(moved.available_at_ms == FIRST_TIME_MS + 5_000)
            check(moved.scheduled_at_ms == FIRST_TIME_MS + 5_000)
            check(moved.expires_at_ms == FIRST_TIME_MS + 500 + 5_000)
            check((await attempt(bench, record, 2)).available_at_ms == bench.clock.now_ms, "it fell due meanwhile")
            check((await attempt(bench, record, 3)).available_at_ms == far, "it is not due yet")
            check([row.key.activity for row in await claimed(bench)] == [1, 2], "in the order in which they waited")
            check(since_ms < bench.clock.now_ms)

        self._on_pausing(case)

    def test_R21_what_becomes_ready_during_the_pause_is_withheld(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            bench.beat(BERT)
            running = await attempt(bench, record, 0)
            await pause(bench, record)
            ended = end_by_failure(
                running, LOST, (), event=AttemptEvent.FAIL, now_ms=bench.clock.now_ms, random_number=0.0
            )
            check(isinstance(ended, OpenNextAttempt) and applied(await bench.one(ended)))
            bench.clock.now_ms += 60_000
            check(await claimed(bench) == [])
            check((await attempt(bench, record, 0, 2)).is_withheld)
            await resume(bench, record)
            check([row.key.attempt for row in await claimed(bench)] == [2])

        self._on_pausing(case)

    def test_R21_attempts_of_a_lost_worker_are_withheld(self) -> None:
        async def case(bench: Bench) -> None:
            record = await with_ready(bench, ready(1, ActivityOptions(prepares=True)))
            outcome = await bench.one(msgspec.structs.replace(CLAIM, owner=ANNA))
            check(isinstance(outcome, ClaimedAttempts) and len(outcome.attempts) == 1)
            await pause(bench, record)
            lost = MarkWorkerLost(key=ANNA, limit=9, at_deadline=False, is_clean=True)
            check(applied(await bench.one(lost)))
            check(await claimed(bench) == [], "one was released, and the next of the other opened")
            check((await attempt(bench, record, 1)).is_withheld and (await attempt(bench, record, 0, 2)).is_withheld)
            await resume(bench, record)
            check(sorted(row.key.activity for row in await claimed(bench)) == [0, 1])

        self._on_pausing(case)

    def test_R22_states_that_cannot_be_paused_or_resumed(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await resume(bench, record) is ResumeVerdict.NOT_PAUSED)
            block = Block(number=record.number, owner=ANNA, fence=record.fence, reason="why", build="one")
            check(applied(await bench.one(block)))
            check(await pause(bench, record) is PauseVerdict.NOT_RUNNING)
            check(await resume(bench, record) is ResumeVerdict.NOT_PAUSED)
            other = await bench.started("b")
            await bench.one(cancel(other.id))
            check(await pause(bench, other) is PauseVerdict.NOT_RUNNING, "it was asked to cancel")
            await bench.one(Terminate(id=other.id))
            check(await pause(bench, other) is PauseVerdict.CLOSED)
            check(await resume(bench, other) is ResumeVerdict.NOT_PAUSED)
            for member in (Pause(id=InstanceId("unknown")), Resume(id=InstanceId("unknown"))):
                check(isinstance(await bench.one(member), Rejected))

        self._on_pausing(case)

    def test_R23_an_instance_that_has_not_begun_returns_to_requested_or_is_cancelled_at_once(self) -> None:
        async def case(bench: Bench) -> None:
            at_ms = bench.clock.now_ms + 1_000
            await bench.commit(start("a", start_at_ms=at_ms), start("b"))
            later = await bench.instance("a")
            other = await bench.instance("b")
            check(await pause(bench, later) is PauseVerdict.PAUSE and await pause(bench, other) is PauseVerdict.PAUSE)
            check(await bench.one(CLAIM_INSTANCES) == ClaimedInstances(instances=[]))
            check(await resume(bench, later) is ResumeVerdict.RESUME)
            now = await bench.instance("a")
            check((now.state, now.claimable_at_ms) == (InstanceState.REQUESTED, at_ms), "its time is kept (G15)")
            outcome = await bench.one(cancel(other.id))
            check(isinstance(outcome, Delivered))
            ended = await bench.instance("b")
            check((ended.state, ended.paused_at_ms) == (InstanceState.CANCELLED, None))

        self._on_pausing(case)

    def test_R23_a_cancel_ends_the_pause_and_makes_the_attempts_available(self) -> None:
        async def case(bench: Bench) -> None:
            record = await with_ready(bench, ready(1, ActivityOptions()))
            await pause(bench, record)
            bench.clock.now_ms += 700
            await bench.one(cancel(record.id))
            now = await bench.instance("a")
            check((now.state, now.paused_at_ms) == (InstanceState.CANCEL_REQUESTED, None))
            check(now.claimable_at_ms == 0)
            check([row.key.activity for row in await claimed(bench)] == [1])

        self._on_pausing(case)

    def test_R23_a_termination_of_a_paused_instance_leaves_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            record = await with_ready(bench, ready(1, ActivityOptions()))
            await pause(bench, record)
            await bench.one(Terminate(id=record.id))
            now = await bench.instance("a")
            check((now.state, now.paused_at_ms) == (InstanceState.TERMINATED, None))
            check((await attempt(bench, record, 1)).state is AttemptState.CANCELLED)

        self._on_pausing(case)

    def test_R25_nothing_is_done_at_the_deadline_and_the_resume_applies_it(self) -> None:
        async def case(bench: Bench) -> None:
            record = await limited(bench)
            at_ms = bench.clock.now_ms + LIMIT_MS
            await pause(bench, record)
            bench.clock.now_ms += 5 * LIMIT_MS
            check(await bench.store.expired_instances(9) == [record.number])
            outcome = await bench.one(Expire(number=record.number))
            check(isinstance(outcome, Expired) and outcome.verdict is DeadlineVerdict.HOLD)
            check((await bench.instance("a")).state is InstanceState.PAUSED)
            check(await bench.store.expired_instances(9) == [], "it is looked at once")
            check(await resume(bench, record) is ResumeVerdict.RESUME)
            now = await bench.instance("a")
            check(now.state is InstanceState.CANCEL_REQUESTED)
            [message] = await bench.store.peek_inbox(record.number, 9)
            event = decode_event(message.event)
            check(isinstance(event, CancelRequested) and event.by_deadline and event.time_ms == at_ms)
            deadline = await bench.store.read_deadline(record.number)
            check(deadline is not None and deadline.expires_at_ms == bench.clock.now_ms + LIMIT.grace_ms)

        self._on_pausing(case)

    def test_R25_an_instance_that_has_not_begun_fails_at_the_resume(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a", deadline=LIMIT))
            record = await bench.instance("a")
            await pause(bench, record)
            bench.clock.now_ms += LIMIT_MS
            outcome = await bench.one(Resume(id=record.id))
            check(isinstance(outcome, ResumedInstance) and outcome.has_ended)
            check((await bench.instance("a")).state is InstanceState.FAILED)

        self._on_pausing(case)

    def test_R25_an_extension_moves_the_deadline(self) -> None:
        async def case(bench: Bench) -> None:
            record = await limited(bench)
            free = await bench.started("free")
            at_ms = bench.clock.now_ms + LIMIT_MS
            await pause(bench, record)
            bench.clock.now_ms += 2 * LIMIT_MS
            await bench.one(Expire(number=record.number))
            check(await resume(bench, record, extend_ms=5 * LIMIT_MS) is ResumeVerdict.RESUME)
            check((await bench.instance("a")).state is InstanceState.RUNNING)
            deadline = await bench.store.read_deadline(record.number)
            check(deadline is not None and deadline.at_ms == deadline.expires_at_ms == at_ms + 5 * LIMIT_MS)
            await pause(bench, free)
            check(await resume(bench, free, extend_ms=1) is ResumeVerdict.NO_DEADLINE)
            check((await bench.instance("free")).state is InstanceState.PAUSED)

        self._on_pausing(case)

    def test_R26_used_up_retries_pause_the_instance_and_a_resume_tries_again(self) -> None:
        async def case(bench: Bench) -> None:
            record = await self._exhausted(bench)
            paused = await bench.instance("a")
            check(paused.state is InstanceState.PAUSED and "step has used up its retries" in str(paused.pause_reason))
            held = await attempt(bench, record, 1, 2)
            check(held.is_withheld and held.is_exhausted and (held.failures, held.losses) == (0, 0))
            check(original_ms(held.available_at_ms) == bench.clock.now_ms)
            check(await bench.store.peek_inbox(record.number, 9) == [], "no failure is delivered")
            bench.clock.now_ms += 400
            check(await resume(bench, record) is ResumeVerdict.RESUME)
            [again] = await claimed(bench)
            check((again.key.attempt, again.failures, again.failure) == (2, 0, None))
            check(await pause(bench, record) is PauseVerdict.PAUSE)
            check(await resume(bench, record, fail=True) is ResumeVerdict.NOTHING_EXHAUSTED)

        self._on_pausing(case)

    def test_R27_a_resume_lets_the_failure_through(self) -> None:
        async def case(bench: Bench) -> None:
            record = await self._exhausted(bench)
            check(await resume(bench, record, fail=True) is ResumeVerdict.RESUME)
            [message] = await bench.store.peek_inbox(record.number, 9)
            event = decode_event(message.event)
            check(isinstance(event, ActivityFailed) and event.attempt == 2 and b'"no"' in bytes(event.failure.data))
            check((await attempt(bench, record, 1, 2)).state is AttemptState.CANCELLED)
            check(await claimed(bench) == [])
            now = await bench.instance("a")
            check((now.state, now.claimable_at_ms) == (InstanceState.RUNNING, 0))

        self._on_pausing(case)

    def test_R27_a_cancel_lets_the_failure_through_behind_it(self) -> None:
        async def case(bench: Bench) -> None:
            record = await self._exhausted(bench)
            await bench.one(cancel(record.id))
            events = [decode_event(row.event) for row in await bench.store.peek_inbox(record.number, 9)]
            check([type(event) for event in events] == [CancelRequested, ActivityFailed])
            check(await claimed(bench) == [])

        self._on_pausing(case)

    def test_R26_an_instance_that_cannot_be_paused_gets_the_failure(self) -> None:
        async def case(bench: Bench) -> None:
            record = await with_ready(bench, ready(1, PAUSES))
            [running] = await claimed(bench)
            await bench.one(cancel(record.id))
            ended = end_by_failure(
                running, LOST, (), event=AttemptEvent.FAIL, now_ms=bench.clock.now_ms, random_number=0.0
            )
            check(applied(await bench.one(ended)))
            check((await bench.instance("a")).state is InstanceState.CANCEL_REQUESTED)
            events = [decode_event(row.event) for row in await bench.store.peek_inbox(record.number, 9)]
            check([type(event) for event in events] == [CancelRequested, ActivityFailed])

        self._on_pausing(case)

    async def _exhausted(self, bench: Bench) -> InstanceRecord:
        """An instance that is PAUSED, because activity 1 has used up its retries."""
        record = await with_ready(bench, ready(1, PAUSES))
        [running] = await claimed(bench)
        ended = end_by_failure(running, LOST, (), event=AttemptEvent.FAIL, now_ms=bench.clock.now_ms, random_number=0.0)
        check(isinstance(ended, OpenNextAttempt) and ended.exhausted is not None)
        check(applied(await bench.one(ended)))
        return record
