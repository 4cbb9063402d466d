"""Rules of an activity that is cancelled from outside of its workflow, which gets exactly one answer (A1, A6)."""

import msgspec

from holdfast.core.history import ActivityCompleted, ActivityFailed, decode_event
from holdfast.core.lifecycle import AttemptEvent, AttemptState
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.attempt_endings import end_by_cancel, end_by_failure, transition
from holdfast.storage.members.attempts import CancelActivity, Completion, HeartbeatAttempt, OpenNextAttempt
from holdfast.storage.members.instances import ClaimInstances, Release, Terminate
from holdfast.storage.members.member import CANCEL_AWAITED, CANCEL_REQUESTED
from holdfast.storage.members.outcomes import CancelledActivity, ClaimedInstances, Outcome, Rejected
from holdfast.storage.members.turns import NextExecution
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown
from holdfast.storage.records import AttemptRecord, InstanceRecord, OwnedAttempt
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    RUNNING_LEDGER,
    Bench,
    Rules,
    applied,
    check,
    closing,
    completion,
    first_turn,
    new_attempt,
    start,
    turn,
)

CANCELLED = "holdfast.errors.ActivityCancelled"
DECLINED = RecordedFailure(type="shop.Declined", message="declined")


def cancel_of(record: InstanceRecord, activity: int = 0) -> CancelActivity:
    return CancelActivity(number=record.number, execution=record.execution, activity=activity)


def state_of(outcome: Outcome) -> AttemptState | None:
    return outcome.state if isinstance(outcome, CancelledActivity) else None


async def last_of(bench: Bench, record: InstanceRecord) -> AttemptRecord:
    return (await bench.store.read_attempts(record.number, 1))[-1]


async def answers_of(bench: Bench, record: InstanceRecord) -> list[str]:
    """The answers in the inbox: the types of failures, or the data of results."""
    found: list[str] = []
    for row in (await bench.store.load(record.number, 1)).inbox:
        event = decode_event(row.event)
        if isinstance(event, ActivityFailed):
            found.append(msgspec.json.decode(event.failure.data, type=RecordedFailure).type)
        elif isinstance(event, ActivityCompleted):
            found.append(bytes(event.result.data).decode())
    return found


def failed(attempt: AttemptRecord, event: AttemptEvent = AttemptEvent.FAIL) -> Completion | OpenNextAttempt:
    """The member of a body that failed or timed out, by the row that its worker has."""
    return end_by_failure(attempt, DECLINED, (), event=event, now_ms=2_000_000, random_number=0.5)


class ActivityCancelRules(Rules):
    """A1, A2, A6, A8, G4, W6."""

    def test_A1_a_cancel_before_an_executor_has_it_ends_the_attempt_and_answers_at_once(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            check(applied(await bench.one(turn(record, attempts=(new_attempt(0),), release=True))))
            check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED)
            attempt = await last_of(bench, record)
            check(attempt.state is AttemptState.CANCELLED and attempt.closed_at_ms is not None)
            check(attempt.ledger == new_attempt(0).ledger, "its digits stay")
            check(await answers_of(bench, record) == [CANCELLED])
            claimed = await bench.one(ClaimInstances(owner=BERT, workflows=("flow",), limit=1))
            check(isinstance(claimed, ClaimedInstances) and len(claimed.instances) == 1, "the answer wakes it")
            check(isinstance(await bench.one(cancel_of(record)), Rejected), "it is closed")
            check(await answers_of(bench, record) == [CANCELLED])

        self.on_bench(case)

    def test_A1_a_running_attempt_is_asked_and_its_workflow_waits_for_the_end(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            running = await last_of(bench, record)
            for _ in range(2):  # the second request changes nothing
                check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED_RUNNING)
                found = await last_of(bench, record)
                check(found.cancel_requested_at_ms == bench.clock.now_ms and found.ledger == running.ledger)
                check(await answers_of(bench, record) == [])
            asked = await last_of(bench, record)
            rows = await bench.store.rows_owned_by(ANNA)
            check([row.cancel_requested_at_ms for row in rows.attempts] == [asked.cancel_requested_at_ms])
            stopped = end_by_cancel(asked, AttemptEvent.STOPPED, now_ms=0)
            check(applied(await bench.one(stopped)))
            check((await last_of(bench, record)).state is AttemptState.CANCELLED)
            check(await answers_of(bench, record) == [CANCELLED])
            check(isinstance(await bench.one(stopped), Rejected))

        self.on_bench(case)

    def test_A1_the_result_of_a_body_that_was_asked_to_stop_is_delivered(self) -> None:
        async def case(bench: Bench) -> None:
            for name, from_state in (("a", AttemptState.RUNNING), ("b", AttemptState.CANCELLED_RUNNING)):
                record = await bench.started(name)
                check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED_RUNNING)
                check(applied(await bench.one(completion(record, from_state=from_state))))
                check(await answers_of(bench, record) == ["1"])
                check((await last_of(bench, record)).state is AttemptState.COMPLETED)

        self.on_bench(case)

    def test_A1_every_other_end_after_the_request_is_answered_by_the_cancel_without_a_retry(self) -> None:
        """Its worker knows of the request, or reports from RUNNING what is CANCELLED_RUNNING by now."""

        async def case(bench: Bench) -> None:
            for number, event in enumerate((AttemptEvent.FAIL, AttemptEvent.EXPIRE) * 2):
                record = await bench.started(f"a{number}")
                running = await last_of(bench, record)
                check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED_RUNNING)
                known = await last_of(bench, record) if number >= 2 else running
                ended = failed(known, event)
                check(isinstance(ended, OpenNextAttempt) == (number < 2))
                check(applied(await bench.one(ended)))
                (attempt,) = await bench.store.read_attempts(record.number, 1)
                check(attempt.state is (AttemptState.FAILED if event is AttemptEvent.FAIL else AttemptState.TIMED_OUT))
                check(await answers_of(bench, record) == [CANCELLED])
                failure = msgspec.json.decode(attempt.failure or b"", type=RecordedFailure)
                check(failure.cause is not None and failure.cause.type == DECLINED.type)
                check(isinstance(await bench.one(ended), Rejected))

        self.on_bench(case)

    def test_A1_a_final_failure_that_a_turn_applied_after_the_request_rejects_the_turn(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            running = (await bench.store.read_attempts(record.number, 1))[0]
            final = end_by_failure(
                running,
                msgspec.structs.replace(DECLINED, retryable=False),
                (),
                event=AttemptEvent.FAIL,
                now_ms=0,
                random_number=0.5,
            )
            check(isinstance(final, Completion))
            check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED_RUNNING)
            outcome = await bench.one(turn(record, completions=(final, completion(record, 1))))
            check(isinstance(outcome, Rejected))
            check((await bench.instance("a")).turn == record.turn)
            check(sorted(await answers_of(bench, record)) == ["1", CANCELLED])
            first = (await bench.store.read_attempts(record.number, 1))[0]
            check((first.state, first.ledger) == (AttemptState.FAILED, RUNNING_LEDGER + 10**6))

        self.on_bench(case)

    def test_A6_the_reply_to_a_heartbeat_says_whether_the_workflow_waits(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED_RUNNING)
            check(applied(await bench.one(turn(record, abandoned=(1,)))))
            for attempt, reason in zip(
                await bench.store.read_attempts(record.number, 1), (CANCEL_AWAITED, CANCEL_REQUESTED), strict=True
            ):
                beat = HeartbeatAttempt(key=attempt.key, owner=ANNA, details=None, expires_at_ms=None)
                outcome = await bench.one(beat)
                check(isinstance(outcome, Rejected) and outcome.reason == reason)

        self.on_bench(case)

    def test_W6_the_loss_of_the_worker_of_a_cancelled_attempt_is_its_answer(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED_RUNNING)
            check(applied(await bench.one(turn(record, abandoned=(1,)))))
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=9))))
            attempts = await bench.store.read_attempts(record.number, 1)
            check([each.state for each in attempts] == [AttemptState.CANCELLED] * 2)
            check(await answers_of(bench, record) == [CANCELLED], "nothing waits for the other one")

        self.on_bench(case)

    def test_W3_a_cancelled_attempt_that_its_owner_does_not_know_is_answered(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED_RUNNING)
            asked = await last_of(bench, record)
            held = OwnedAttempt(key=asked.key, state=asked.state, ledger=asked.ledger)
            check(applied(await bench.one(ReleaseUnknown(owner=ANNA, attempts=(held,)))))
            check((await last_of(bench, record)).state is AttemptState.CANCELLED)
            check(await answers_of(bench, record) == [CANCELLED])

        self.on_bench(case)

    def test_A1_only_the_newest_attempt_of_an_open_execution_is_cancelled(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            running = await last_of(bench, record)
            again = new_attempt(0, attempt=2, available_at_ms=bench.clock.now_ms + 100)
            ended = transition(running, AttemptEvent.FAIL, failure=b"{}")
            check(applied(await bench.one(OpenNextAttempt(ended=ended, next=again))))
            check(isinstance(await bench.one(cancel_of(record, 7)), Rejected), "there is no such activity")
            check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED)
            states = [each.state for each in await bench.store.read_attempts(record.number, 1)]
            check(states == [AttemptState.FAILED, AttemptState.CANCELLED])
            check(await answers_of(bench, record) == [CANCELLED])
            await bench.one(Terminate(id=record.id))
            check(isinstance(await bench.one(cancel_of(record)), Rejected), "the instance has ended")

        self.on_bench(case)

    def test_G4_the_answer_of_an_execution_that_ended_meanwhile_is_dropped(self) -> None:
        async def case(bench: Bench) -> None:
            following = NextExecution(input=b"{}", started=start("b").started)
            for name in ("a", "b", "c"):
                record = await bench.started(name)
                check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED_RUNNING)
                asked = await last_of(bench, record)
                leaving = {"a": closing(record), "b": turn(record, next=following), "c": turn(record, abandoned=(0,))}
                check(applied(await bench.one(leaving[name])))
                check(isinstance(await bench.one(cancel_of(record)), Rejected) == (name != "c"))
                check(applied(await bench.one(end_by_cancel(asked, AttemptEvent.STOPPED, now_ms=0))))
                check((await last_of(bench, record)).state is AttemptState.CANCELLED)
                check(await answers_of(bench, record) == ([CANCELLED] if name == "c" else []))
                check(isinstance(await bench.one(cancel_of(record)), Rejected))

        self.on_bench(case)

    def test_A1_a_cancel_by_the_workflow_itself_is_not_answered_by_a_later_request(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(turn(record, abandoned=(0,)))))
            check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED_RUNNING)
            asked = await last_of(bench, record)
            check(asked.cancel_requested_at_ms is None)
            check(applied(await bench.one(end_by_cancel(asked, AttemptEvent.STOPPED, now_ms=0))))
            check(await answers_of(bench, record) == [])

        self.on_bench(case)

    def test_G1_a_cancel_needs_neither_lease_nor_owner(self) -> None:
        async def case(bench: Bench) -> None:
            made = start("a", first=first_turn(ANNA, activities=1))
            check(not cancel_of(await bench.started("b")).needs_lease)
            await bench.one(made)
            record = await bench.instance("a")
            check(applied(await bench.one(Release(number=record.number, fence=record.fence, owner=ANNA))))
            check(state_of(await bench.one(cancel_of(record))) is AttemptState.CANCELLED_RUNNING)
            asked = await last_of(bench, record)
            check(applied(await bench.one(end_by_cancel(asked, AttemptEvent.STOPPED, now_ms=0))))
            claimed = await bench.one(ClaimInstances(owner=BERT, workflows=("flow",), limit=9))
            check(isinstance(claimed, ClaimedInstances) and [each.id for each in claimed.instances] == ["a"])

        self.on_bench(case)
