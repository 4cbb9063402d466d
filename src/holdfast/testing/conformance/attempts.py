"""Attempts: completions, retries, claims and heartbeats, each accepted once and from its owner only.

Large inputs: the rows of instances and attempts have a reference, and a claim returns the data.
"""

from hashlib import sha256

import msgspec

from holdfast.core.activity_options import ActivityOptions
from holdfast.core.admission import IdPolicy
from holdfast.core.history import ActivityCompleted, Payload, Started, decode_event, encode_events
from holdfast.core.ledger import SEED, enter_leg1, exit_leg2
from holdfast.core.lifecycle import AttemptEvent, AttemptState
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.attempt_endings import transition
from holdfast.storage.large_payloads import marked, offload
from holdfast.storage.members.attempts import (
    ClaimAttempts,
    HeartbeatAttempt,
    OpenNextAttempt,
    RunPrepared,
    Transition,
)
from holdfast.storage.members.instances import ClaimInstances, Release, Start
from holdfast.storage.members.outcomes import Applied, ClaimedAttempts, ClaimedInstances, Rejected, StartedInstance
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown
from holdfast.storage.records import AttemptKey, AttemptRecord, InstanceId, InstanceNumber, LargePayload, OwnedAttempt
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    Bench,
    Rules,
    applied,
    check,
    closing,
    completion,
    new_attempt,
    start,
    turn,
)

ENTERED = enter_leg1(SEED)[0]
"""The digits of an attempt that was claimed and is being prepared."""


class AttemptRules(Rules):
    """L2, L3, L9, L13, L14, A2, A6, A8, G4, G5, G13."""

    def test_L13_a_completion_with_its_turn_enters_and_leaves_leg_2_in_one_commit(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(turn(record, completions=(completion(record),)))))
            attempt = (await bench.store.read_attempts(record.number, 1))[0]
            check((attempt.state, attempt.ledger) == (AttemptState.COMPLETED, 888_000_001_000_001))

        self.on_bench(case)

    def test_L14_a_completion_without_a_turn_is_put_into_the_inbox_and_wakes_the_instance(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            check((await bench.instance("a")).claimable_at_ms is None)
            check(applied(await bench.one(completion(record))))
            loaded = await bench.store.load(record.number, 1)
            check((loaded.attempts[0].state, loaded.attempts[0].ledger) == ("COMPLETED", 889_000_001_000_000))
            check([decode_event(row.event).__class__.__name__ for row in loaded.inbox] == ["ActivityCompleted"])
            claimed = await bench.one(ClaimInstances(owner=BERT, workflows=("flow",), limit=1))
            check(isinstance(claimed, ClaimedInstances) and len(claimed.instances) == 1)

        self.on_bench(case)

    def test_G5_a_rejected_turn_does_not_lose_the_completions_it_was_to_apply(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            stale = turn(record, turn=77, completions=(completion(record, 0), completion(record, 1)))
            check(isinstance(await bench.one(stale), Rejected))
            loaded = await bench.store.load(record.number, 1)
            check([attempt.ledger for attempt in loaded.attempts] == [889_000_001_000_000] * 2)
            check(len(loaded.inbox) == 2)
            check(len(loaded.history) == 1)

        self.on_bench(case)

    def test_L9_a_completion_counts_once(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            outcomes = await bench.commit(completion(record), completion(record))
            check(applied(outcomes[0]) and isinstance(outcomes[1], Rejected))
            check(len((await bench.store.load(record.number, 1)).inbox) == 1)
            recorded = (completion(record),)
            for again in (turn(record, completions=recorded), closing(record, completions=recorded)):
                rejected = isinstance(await bench.one(again), Rejected)
                check(rejected, "a turn applied a completion that was recorded before")
                check((await bench.instance("a")).turn == record.turn)

        self.on_bench(case)

    def test_A2_only_the_owner_ends_an_attempt(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            for wrong in (
                completion(record, owner=BERT),
                completion(record, from_ledger=789_000_000_000_000),
                completion(record, from_state=AttemptState.CANCELLED_RUNNING),
            ):
                check(isinstance(await bench.one(wrong), Rejected))
            check((await bench.store.read_attempts(record.number, 1))[0].state == "RUNNING")

        self.on_bench(case)

    def test_G4_a_late_completion_of_a_closed_instance_is_recorded_and_not_delivered(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(closing(record))))
            late = completion(record, from_state=AttemptState.CANCELLED_RUNNING)
            check(applied(await bench.one(late)))
            loaded = await bench.store.load(record.number, 1)
            check((loaded.attempts[0].state, loaded.attempts[0].ledger) == ("COMPLETED", 888_000_001_000_001))
            check(not loaded.inbox)

        self.on_bench(case)

    def test_G13_a_failure_and_the_next_attempt_are_one_commit(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            first = (await bench.store.read_attempts(record.number, 1))[0]
            again = new_attempt(0, attempt=2, failures=1, available_at_ms=bench.clock.now_ms + 100)
            retry = OpenNextAttempt(ended=transition(first, AttemptEvent.FAIL, failure=b"{}"), next=again)
            outcomes = await bench.commit(retry, retry)
            check(applied(outcomes[0]) and isinstance(outcomes[1], Rejected))
            attempts = await bench.store.read_attempts(record.number, 1)
            check([(each.state, each.ledger) for each in attempts] == [("FAILED", first.ledger), ("READY", SEED)])
            check(not await self._claim_attempts(bench), "it was claimed before its delay was over")
            bench.clock.now_ms += 100
            check([each.key.attempt for each in await self._claim_attempts(bench)] == [2])

        self.on_bench(case)

    def test_L2_a_claim_of_an_attempt_that_is_prepared_enters_leg_1_and_keeps_its_deadline(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            options = ActivityOptions(prepares=True, schedule_to_start_ms=500, start_to_close_ms=100, heartbeat_ms=100)
            expires_at_ms = bench.clock.now_ms + 500
            ready = new_attempt(0, options=options, expires_at_ms=expires_at_ms)
            check(applied(await bench.one(turn(record, attempts=(ready,)))))
            [claimed] = await self._claim_attempts(bench)
            check(claimed == (await self._with_instance(bench, record.number))[0], "a claim returns the row")
            check((claimed.state, claimed.ledger, claimed.owner) == ("PREPARING", ENTERED, BERT))
            check(
                (claimed.started_at_ms, claimed.heartbeat_at_ms, claimed.expires_at_ms) == (None, None, expires_at_ms)
            )
            check(not await self._claim_attempts(bench), "it was claimed twice")
            bench.clock.now_ms = expires_at_ms
            check([each.key for each in await bench.store.expired_attempts(9)] == [claimed.key])

        self.on_bench(case)

    async def _with_instance(self, bench: Bench, number: InstanceNumber) -> list[AttemptRecord]:
        rows = await bench.store.read_attempts(number, 1)
        return [msgspec.structs.replace(each, instance_id=InstanceId("a"), workflow="flow") for each in rows]

    def test_L3_a_prepared_attempt_runs_once_in_the_name_of_its_owner(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            mine = new_attempt(0, owner=ANNA, state=AttemptState.PREPARING, ledger=ENTERED, expires_at_ms=999)
            check(applied(await bench.one(turn(record, attempts=(mine,)))))
            before = (await bench.store.read_attempts(record.number, 1))[0]
            check((before.state, before.started_at_ms, before.heartbeat_at_ms) == ("PREPARING", None, None))
            run = RunPrepared(owner=ANNA, key=before.key, from_ledger=ENTERED, expires_at_ms=bench.clock.now_ms + 700)
            bench.clock.now_ms += 5
            for wrong in (
                msgspec.structs.replace(run, owner=BERT),
                msgspec.structs.replace(run, from_ledger=799_000_000_000_000),
                msgspec.structs.replace(run, key=msgspec.structs.replace(run.key, attempt=2)),
            ):
                check(isinstance(await bench.one(wrong), Rejected))
            check((await bench.store.read_attempts(record.number, 1))[0] == before)
            check(await bench.one(run) == Applied(changed=1))
            after = (await bench.store.read_attempts(record.number, 1))[0]
            check((after.state, after.ledger, after.owner) == ("RUNNING", 889_000_000_000_000, ANNA))
            check((after.started_at_ms, after.heartbeat_at_ms) == (bench.clock.now_ms, bench.clock.now_ms))
            check(after.expires_at_ms == run.expires_at_ms)
            bench.clock.now_ms += 5
            check(await bench.one(run) == Applied(changed=0), "the reply was lost, and it is submitted again")
            check(isinstance(await bench.one(msgspec.structs.replace(run, owner=BERT)), Rejected))
            check((await bench.store.read_attempts(record.number, 1))[0] == after)

        self.on_bench(case)

    def test_A2_a_prepared_attempt_that_was_cancelled_expired_or_released_does_not_run(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            mine = tuple(
                new_attempt(number, owner=ANNA, state=AttemptState.PREPARING, ledger=ENTERED, expires_at_ms=1)
                for number in range(4)
            )
            check(applied(await bench.one(turn(record, attempts=mine))))
            rows = await bench.store.read_attempts(record.number, 1)
            check(applied(await bench.one(turn(await bench.instance("a"), abandoned=(0,)))))
            again = new_attempt(1, attempt=2, failures=1)
            expired = OpenNextAttempt(ended=transition(rows[1], AttemptEvent.EXPIRE), next=again, by_owner=False)
            check(applied(await bench.one(expired)))
            released = OwnedAttempt(key=rows[2].key, state=AttemptState.PREPARING, ledger=ENTERED)
            check(applied(await bench.one(ReleaseUnknown(owner=ANNA, attempts=(released,)))))
            runs = [RunPrepared(owner=ANNA, key=row.key, from_ledger=ENTERED, expires_at_ms=None) for row in rows]
            check(all(isinstance(outcome, Rejected) for outcome in await bench.commit(*runs[:3])))
            after = await bench.store.read_attempts(record.number, 1)
            states = [(each.key.activity, str(each.state), each.ledger) for each in after]
            check(states[0] == (0, "CANCELLED", ENTERED))
            check(states[1:3] == [(1, "TIMED_OUT", ENTERED), (1, "READY", SEED)])
            check(states[3:] == [(2, "READY", ENTERED), (3, "PREPARING", ENTERED)])
            check(applied(await bench.one(runs[3])))
            check(applied(await bench.one(turn(await bench.instance("a"), abandoned=(3,)))))
            check(await bench.one(runs[3]) == Applied(changed=0), "it ran, and was cancelled after that")
            check((await bench.store.read_attempts(record.number, 1))[-1].state == "CANCELLED_RUNNING")

        self.on_bench(case)

    def test_A6_a_heartbeat_of_an_attempt_that_is_prepared_is_rejected(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            mine = new_attempt(0, owner=ANNA, state=AttemptState.PREPARING, ledger=ENTERED)
            check(applied(await bench.one(turn(record, attempts=(mine,)))))
            before = (await bench.store.read_attempts(record.number, 1))[0]
            beat = HeartbeatAttempt(owner=ANNA, key=before.key, details=b"1", expires_at_ms=7)
            check(isinstance(await bench.one(beat), Rejected))
            check((await bench.store.read_attempts(record.number, 1))[0] == before)

        self.on_bench(case)

    def test_A2_ready_attempts_are_claimed_once_in_the_order_they_became_available(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            ready = tuple(new_attempt(number, available_at_ms=bench.clock.now_ms - number) for number in range(6))
            check(applied(await bench.one(turn(record, attempts=ready))))
            claim = ClaimAttempts(owner=BERT, queues=("default",), names=("step",), limit=4)
            outcomes = await bench.commit(claim, claim)
            taken = [
                attempt for outcome in outcomes if isinstance(outcome, ClaimedAttempts) for attempt in outcome.attempts
            ]
            check([attempt.key.activity for attempt in taken] == [5, 4, 3, 2, 1, 0])
            check({(each.state, each.ledger, each.owner) for each in taken} == {("RUNNING", 889_000_000_000_000, BERT)})
            check(taken[0].instance_id == "a")

        self.on_bench(case)

    def test_attempts_are_claimed_by_queue_and_by_registered_activities(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            ready = (new_attempt(0, queue="gpu"), new_attempt(1, name="other"), new_attempt(2))
            check(applied(await bench.one(turn(record, attempts=ready))))
            check([each.key.activity for each in await self._claim_attempts(bench)] == [2])

        self.on_bench(case)

    def test_A2_the_queue_with_the_oldest_ready_attempt_is_claimed_from_first(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            now_ms = bench.clock.now_ms
            ready = (
                *(new_attempt(number, queue="busy", available_at_ms=now_ms - 50) for number in range(4)),
                new_attempt(4, queue="quiet", available_at_ms=now_ms - 60),
                new_attempt(5, queue="other", available_at_ms=now_ms - 70, name="unknown"),
                new_attempt(6, queue="other", available_at_ms=now_ms - 40),
                new_attempt(7, queue="later", available_at_ms=now_ms + 1),
            )
            check(applied(await bench.one(turn(record, attempts=ready))))
            queues = ("busy", "later", "other", "unused", "quiet")
            claim = ClaimAttempts(owner=BERT, queues=queues, names=("step", "step two"), limit=2)
            outcomes = await bench.commit(claim, claim, claim, claim)
            taken = [
                [attempt.key.activity for attempt in outcome.attempts]
                for outcome in outcomes
                if isinstance(outcome, ClaimedAttempts)
            ]
            check(taken[0][:1] == [4], f"the one that waited longest had to wait: {taken}")
            check(sorted(each for some in taken[:3] for each in some) == [0, 1, 2, 3, 4, 6], f"{taken}")
            check(taken[2][1:] == [6], f"the newest came before older ones: {taken}")
            check(taken[3] == [], "what is not known, or not due, was claimed")

        self.on_bench(case)

    def test_L8_an_attempt_whose_claimers_were_lost_too_often_fails_with_a_reason(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            worn = new_attempt(0, ledger=499_000_000_000_000, options=ActivityOptions(max_claims=5))
            check(applied(await bench.one(turn(record, attempts=(worn,)))))
            check(not await self._claim_attempts(bench))
            loaded = await bench.store.load(record.number, 1)
            check((loaded.attempts[0].state, loaded.attempts[0].ledger) == ("FAILED", 499_000_000_000_000))
            check(b"claimed 5 times" in (loaded.attempts[0].failure or b""))
            check(len(loaded.inbox) == 1)
            check(applied(await bench.one(closing(await bench.instance("a")))))
            given_up = (await bench.store.read_attempts(record.number, 1))[0]
            check(
                given_up.ledger == 499_000_000_000_000, "it never ran: the end of its instance leaves its digits (A8)"
            )

        self.on_bench(case)

    def test_A6_a_heartbeat_is_accepted_from_the_owner_of_an_open_attempt_and_reports_a_cancel(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            key = AttemptKey(record.number, 1, 0, 1)
            beat = HeartbeatAttempt(key=key, owner=ANNA, details=b"7", expires_at_ms=None)
            check(applied(await bench.one(beat)))
            check((await bench.store.read_attempts(record.number, 1))[0].details == b"7")
            stranger = HeartbeatAttempt(key=key, owner=BERT, details=b"8", expires_at_ms=None)
            check(isinstance(await bench.one(stranger), Rejected))
            check(applied(await bench.one(closing(record))))
            check(await bench.one(beat) == Rejected(reason="cancel requested"))

        self.on_bench(case)

    def test_A6_an_attempt_is_not_timed_out_at_a_deadline_that_a_heartbeat_has_moved(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            late, later = bench.clock.now_ms + 100, bench.clock.now_ms + 200
            check(applied(await bench.one(turn(record, attempts=(new_attempt(0, owner=ANNA, expires_at_ms=late),)))))
            bench.clock.now_ms = late
            (overdue,) = await bench.store.expired_attempts(10)
            beat = HeartbeatAttempt(key=overdue.key, owner=ANNA, details=None, expires_at_ms=later)
            check(applied(await bench.one(beat)))
            ended = transition(overdue, AttemptEvent.EXPIRE)
            again = OpenNextAttempt(ended=ended, next=new_attempt(0, attempt=2), by_owner=False)
            given_up = completion(record, to_state=AttemptState.TIMED_OUT, by_owner=False)
            for early in (again, given_up):
                check(isinstance(await bench.one(early), Rejected), "it was renewed meanwhile")
            check(not await bench.store.expired_attempts(10))
            bench.clock.now_ms = later
            check(applied(await bench.one(again)))

        self.on_bench(case)

    def test_L13_an_answer_from_the_inbox_leaves_leg_2_with_its_digits_or_the_turn_fails(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(completion(record))))
            waiting = (await bench.store.read_attempts(record.number, 1))[0]
            (row,) = await bench.store.read_inbox_of(ANNA, 0)
            exit_digits = exit_leg2(waiting.ledger, final=True)
            for from_ledger, fits in ((exit_digits, False), (waiting.ledger, True)):
                response = Transition(
                    key=waiting.key,
                    owner=ANNA,
                    from_state=waiting.state,
                    from_ledger=from_ledger,
                    to_state=waiting.state,
                    to_ledger=exit_digits,
                )
                outcome = await bench.one(turn(record, responses=(response,), consumed=(row.row,)))
                check(applied(outcome) == fits)
                check((await bench.instance("a")).turn == record.turn + fits)
                check(bool(await bench.store.read_inbox_of(ANNA, 0)) != fits)
            check((await bench.store.read_attempts(record.number, 1))[0].ledger == exit_digits)

        self.on_bench(case)

    def test_A8_the_end_of_an_instance_applies_unread_answers_and_leaves_other_digits(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            check(applied(await bench.one(completion(record, 0))))
            failed = (await bench.store.read_attempts(record.number, 1))[1]
            retry = OpenNextAttempt(ended=transition(failed, AttemptEvent.FAIL), next=new_attempt(1, attempt=2))
            check(applied(await bench.one(retry)))
            check(applied(await bench.one(closing(record))))
            loaded = await bench.store.load(record.number, 1)
            check(
                [(str(each.state), each.ledger) for each in loaded.attempts]
                == [
                    ("COMPLETED", 888_000_001_000_001),
                    ("FAILED", failed.ledger),
                    ("CANCELLED", SEED),
                ]
            )
            check(not loaded.inbox)

        self.on_bench(case)

    def test_the_same_large_payload_is_stored_once(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            large = LargePayload(reference="hash", data=b"data")
            check(applied(await bench.one(turn(record, payloads=(large, large)))))
            check(applied(await bench.one(turn(await bench.instance("a"), payloads=(large,)))))
            check(await bench.store.read_payloads(record.number) == {"hash": b"data"})

        self.on_bench(case)

    async def _claim_attempts(self, bench: Bench) -> list[AttemptRecord]:
        outcome = await bench.one(ClaimAttempts(owner=BERT, queues=("default",), names=("step",), limit=10))
        return outcome.attempts if isinstance(outcome, ClaimedAttempts) else []

    def test_A6_a_deadline_that_was_renewed_after_it_was_read_is_not_enforced(self) -> None:
        """It read that the deadline had passed; before it wrote, a heartbeat moved it."""

        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            options = ActivityOptions(heartbeat_ms=50)
            at_ms = bench.clock.now_ms + 50
            silent = tuple(new_attempt(each, owner=ANNA, options=options, expires_at_ms=at_ms) for each in (0, 1))
            check(applied(await bench.one(turn(record, attempts=silent))))
            bench.clock.now_ms = at_ms
            overdue = await bench.store.expired_attempts(10)
            check(len(overdue) == 2)
            for late in overdue:
                beat = HeartbeatAttempt(key=late.key, owner=ANNA, details=None, expires_at_ms=at_ms + 50)
                check(applied(await bench.one(beat)))
            retry = _timed_out(overdue[0])
            ended = completion(record, 1, to_state=AttemptState.TIMED_OUT, by_owner=False)
            check(isinstance(await bench.one(retry), Rejected), "its deadline is in the future again")
            check(isinstance(await bench.one(ended), Rejected), "its deadline is in the future again")
            bench.clock.now_ms = at_ms + 50
            check(applied(await bench.one(retry)))
            check(applied(await bench.one(ended)))

        self.on_bench(case)

    def test_A1_a_failure_of_a_cancelled_attempt_ends_it_without_a_retry(self) -> None:
        """The request came while the body failed: its worker reports from RUNNING what is CANCELLED_RUNNING by now."""

        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=1)
            (running,) = await bench.store.read_attempts(record.number, 1)
            check(applied(await bench.one(turn(record, abandoned=(0,)))))
            failed = OpenNextAttempt(ended=transition(running, AttemptEvent.FAIL), next=new_attempt(0, attempt=2))
            check(applied(await bench.one(failed)))
            attempts = await bench.store.read_attempts(record.number, 1)
            check([str(each.state) for each in attempts] == ["FAILED"])
            check(isinstance(await bench.one(failed), Rejected))

        self.on_bench(case)


def _timed_out(attempt: AttemptRecord) -> OpenNextAttempt:
    """The member of maintenance for an attempt that has expired."""
    following = new_attempt(attempt.key.activity, attempt=attempt.key.attempt + 1, failures=1)
    return OpenNextAttempt(ended=transition(attempt, AttemptEvent.EXPIRE), next=following, by_owner=False)


SMALL = b'"' + b"s" * (INLINE_LIMIT_BYTES - 2) + b'"'
LARGE = b'"' + b"l" * INLINE_LIMIT_BYTES + b'"'
REFERENCE = sha256(LARGE).hexdigest()


def large_start(instance_id: str, given: bytes = LARGE, policy: IdPolicy = IdPolicy.IDEMPOTENT) -> Start:
    """As a client makes it: the event's payload is in the side table, too."""
    payloads: list[LargePayload] = []
    begun = Started(time_ms=0, workflow="flow", version="", seed=1, input=Payload(msgspec.Raw(given)))
    event = msgspec.json.encode(offload(begun, payloads))
    made = start(instance_id, given=given, policy=policy)
    return msgspec.structs.replace(made, started=event, payloads=tuple(payloads))


async def claim(bench: Bench) -> list[AttemptRecord]:
    outcome = await bench.one(ClaimAttempts(owner=BERT, queues=("default",), names=("step",), limit=9))
    check(isinstance(outcome, ClaimedAttempts))
    return outcome.attempts  # type: ignore[union-attr]  # checked above


class LargeInputRules(Rules):
    """What is above the inline limit is stored once for each instance, however many rows name it."""

    def test_a_large_input_of_an_instance_is_stored_once_and_referenced_by_its_row(self) -> None:
        async def case(bench: Bench) -> None:
            check(isinstance(await bench.one(large_start("a")), StartedInstance))
            check(isinstance(await bench.one(start("b", given=SMALL)), StartedInstance))
            record = await bench.instance("a")
            check(record.input == marked(REFERENCE))
            check(await bench.store.read_payloads(record.number) == {REFERENCE: LARGE})
            check(isinstance(await bench.one(start("c", given=LARGE)), StartedInstance))
            whole = await bench.instance("c")
            check(await bench.store.read_payloads(whole.number, [REFERENCE, "?"]) == {REFERENCE: LARGE})
            check((await bench.instance("b")).input == SMALL, "what is not above the limit stays in the row")
            loaded = await bench.store.load(record.number, 1)
            begun = decode_event(loaded.inbox[0].event)
            check(isinstance(begun, Started) and loaded.payloads[begun.input.reference] == LARGE)

        self.on_bench(case)

    def test_G3_large_inputs_are_compared_by_their_hash(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(large_start("a"))
            same = await bench.one(large_start("a"))
            check(isinstance(same, StartedInstance) and not same.created)
            check(isinstance(await bench.one(large_start("a", LARGE.replace(b"l", b"m"))), Rejected))
            again = await bench.one(large_start("a", policy=IdPolicy.TERMINATE_EXISTING))
            check(isinstance(again, StartedInstance) and again.created)
            newest = await bench.instance("a")
            check(await bench.store.read_payloads(newest.number) == {REFERENCE: LARGE}, "each instance has its own")

        self.on_bench(case)

    def test_a_claimed_attempt_has_its_large_input_in_place(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            attempts = (new_attempt(0, input=LARGE), new_attempt(1, input=SMALL), new_attempt(2, input=LARGE))
            check(applied(await bench.one(turn(record, attempts=attempts))))
            stored = await bench.store.read_attempts(record.number, 1)
            check([attempt.input for attempt in stored] == [marked(REFERENCE), SMALL, marked(REFERENCE)])
            check(await bench.store.read_payloads(record.number) == {REFERENCE: LARGE})
            check([attempt.input for attempt in await claim(bench)] == [LARGE, SMALL, LARGE])
            check((await bench.store.load(record.number, 1)).payloads == {}, "no event names it")

        self.on_bench(case)

    def test_G13_the_next_attempt_has_the_large_input_too(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            check(applied(await bench.one(turn(record, attempts=(new_attempt(0, input=LARGE),)))))
            (first,) = await claim(bench)
            for given in (first.input, marked(REFERENCE)):  # as its runner has it, and as a janitor reads it
                number = first.key.attempt + 1
                ended = transition(first, AttemptEvent.FAIL, failure=b"{}")
                again = OpenNextAttempt(ended=ended, next=new_attempt(0, attempt=number, input=given))
                check(applied(await bench.one(again)))
                (first,) = await claim(bench)
                check((first.key.attempt, first.input) == (number, LARGE))
            check(len(await bench.store.read_payloads(record.number)) == 1)

        self.on_bench(case)

    def test_W6_the_next_attempt_after_a_lost_worker_has_its_large_input(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            running = new_attempt(0, owner=ANNA, input=LARGE)
            check(applied(await bench.one(turn(record, attempts=(running,)))))
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=9))))
            (second,) = await claim(bench)
            check((second.key.attempt, second.input) == (2, LARGE))

        self.on_bench(case)

    def test_large_bytes_are_read_as_the_json_that_was_given(self) -> None:
        async def case(bench: Bench) -> None:
            raw = bytes(range(256)) * 100
            given = msgspec.json.encode(raw)
            answer = ActivityCompleted(time_ms=0, activity=0, result=Payload(msgspec.Raw(given)))
            payloads: list[LargePayload] = []
            named = offload(answer, payloads)
            check([payload.data for payload in payloads] == [raw], "the bytes are stored, and not their base64")
            record = await bench.started("a")
            check(applied(await bench.one(turn(record, payloads=tuple(payloads), events=encode_events([named])))))
            reference = named.result.reference
            check(await bench.store.read_payloads(record.number) == {reference: given})
            check(await bench.store.read_payloads(record.number, [reference]) == {reference: given})
            check((await bench.store.load(record.number, 1)).payloads == {reference: given})

        self.on_bench(case)
