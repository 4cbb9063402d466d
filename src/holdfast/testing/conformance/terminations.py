"""Rules of terminations: an instance ends in one commit, whichever worker owns it (A9)."""

from holdfast.core.history import InstanceTerminated, Started, decode_events
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.members.attempts import ClaimAttempts, HeartbeatAttempt
from holdfast.storage.members.instances import Block, ClaimInstances, Release, Terminate
from holdfast.storage.members.outcomes import ClaimedAttempts, ClaimedInstances, Rejected, TerminatedInstance
from holdfast.storage.records import InstanceId, InstanceRecord, TimerRow
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


def terminate(instance_id: str, reason: str = "") -> Terminate:
    return Terminate(id=InstanceId(instance_id), reason=reason)


async def ended(bench: Bench, instance_id: str, reason: str = "") -> InstanceRecord:
    """Terminate an open instance, and read it."""
    outcome = await bench.one(terminate(instance_id, reason))
    check(isinstance(outcome, TerminatedInstance) and outcome.was_open, f"it was not terminated: {outcome}")
    return await bench.instance(instance_id)


class TerminationRules(Rules):
    """A9, and what it means for owners, attempts and waiting messages."""

    def test_A9_a_terminated_instance_is_closed_with_its_reason_as_the_last_event(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            closed = await ended(bench, "a", "no longer wanted")
            check((closed.state, closed.owner, closed.claimable_at_ms) == (InstanceState.TERMINATED, None, None))
            check(closed.closed_at_ms is not None and closed.turn == record.turn + 1)
            check(closed.outcome == b'{"data":"no longer wanted"}')
            history = await bench.store.read_history(record.number, 1)
            last = decode_events(history[-1].events)
            check(last == [InstanceTerminated(time_ms=bench.clock.now_ms, reason="no longer wanted")])

        self.on_bench(case)

    def test_A9_a_terminated_instance_leaves_nothing_pending(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=3)
            timer = TimerRow(timer=1, due_at_ms=5)
            check(applied(await bench.one(turn(record, attempts=(new_attempt(3),), timers_started=(timer,)))))
            check(applied(await bench.one(completion(record, 1))), "an answer that waits in the inbox")
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            await ended(bench, "a")
            loaded = await bench.store.load(record.number, 1)
            check(not loaded.timers and not loaded.inbox)
            states = [attempt.state for attempt in loaded.attempts]
            check(states == ["CANCELLED_RUNNING", "COMPLETED", "CANCELLED_RUNNING", "CANCELLED"])
            check(loaded.attempts[1].ledger == 888_000_001_000_001, "the answer counts as applied (A8)")
            claims = await bench.commit(
                ClaimInstances(owner=BERT, workflows=("flow",), limit=9),
                ClaimAttempts(owner=BERT, queues=("default",), names=("step",), limit=9),
            )
            check(isinstance(claims[0], ClaimedInstances) and not claims[0].instances)
            check(isinstance(claims[1], ClaimedAttempts) and not claims[1].attempts)

        self.on_bench(case)

    def test_G1_a_turn_of_a_terminated_instance_changes_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            closed = await ended(bench, "a")
            late = turn(record, attempts=(new_attempt(7),), completions=(completion(record),))
            outcomes = await bench.commit(
                late,
                closing(record),
                Release(number=record.number, owner=ANNA, fence=record.fence),
                Block(number=record.number, owner=ANNA, fence=record.fence, reason="?", build=""),
            )
            check(all(isinstance(outcome, Rejected) for outcome in outcomes))
            check(await bench.instance("a") == closed)
            loaded = await bench.store.load(record.number, 1)
            check(len(loaded.attempts) == 1 and not loaded.inbox)
            check(loaded.attempts[0].state == "COMPLETED", "the body had ended before the cancel")

        self.on_bench(case)

    def test_A6_the_next_heartbeat_of_a_terminated_instances_body_reports_the_cancel(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            await ended(bench, "a")
            beat = HeartbeatAttempt(key=completion(record).key, owner=ANNA, details=None, expires_at_ms=None)
            check(isinstance(await bench.one(beat), Rejected))

        self.on_bench(case)

    def test_A9_an_instance_without_a_turn_has_its_start_and_its_end_in_the_history(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            closed = await ended(bench, "a")
            (row,) = await bench.store.read_history(closed.number, 1)
            kinds = [type(event) for event in decode_events(row.events)]
            check(kinds == [Started, InstanceTerminated] and closed.turn == 1)

        self.on_bench(case)

    def test_A9_a_blocked_instance_can_be_terminated(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            block = Block(number=record.number, owner=ANNA, fence=record.fence, reason="changed code", build="1")
            check(applied(await bench.one(block)))
            closed = await ended(bench, "a")
            check((closed.state, closed.blocked) == (InstanceState.TERMINATED, None))

        self.on_bench(case)

    def test_A9_a_closed_instance_is_not_changed_and_an_unknown_one_is_rejected(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(closing(record))))
            closed = await bench.instance("a")
            again = await bench.one(terminate("a", "too late"))
            check(again == TerminatedInstance(instance=closed, was_open=False))
            check(await bench.instance("a") == closed)
            check(isinstance(await bench.one(terminate("missing")), Rejected))

        self.on_bench(case)

    def test_A9_of_two_terminations_in_one_group_one_ends_the_instance(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            outcomes = await bench.commit(terminate("a", "first"), terminate("a", "second"))
            check(
                [outcome.was_open for outcome in outcomes if isinstance(outcome, TerminatedInstance)] == [True, False]
            )
            check((await bench.instance("a")).outcome == b'{"data":"first"}')
            check(len(await bench.store.read_history(record.number, 1)) == 2)

        self.on_bench(case)
