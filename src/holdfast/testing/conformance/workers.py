"""Workers: leases in the store, and what becomes of a lost worker's work.

What a store tells people about its workers and queues.
"""

import asyncio

import msgspec

from holdfast.core.activity_options import ActivityOptions
from holdfast.core.leases import Heartbeat, Renewed, TokenMismatch, WorkerInactive, WorkerKey
from holdfast.core.lifecycle import AttemptEvent, AttemptState
from holdfast.storage.attempt_endings import transition
from holdfast.storage.members.attempts import ClaimAttempts, HeartbeatAttempt, OpenNextAttempt
from holdfast.storage.members.instances import Block, ClaimInstances, Release
from holdfast.storage.members.outcomes import Applied, ClaimedAttempts, ClaimedInstances, Rejected, StartedInstance
from holdfast.storage.members.workers import MarkWorkerLost, Registration, ReleaseUnknown
from holdfast.storage.records import CommitId, InstanceId, QueueRow, TimerRow, WorkerLoad
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    HERE,
    Bench,
    Rules,
    applied,
    check,
    completion,
    first_turn,
    new_attempt,
    start,
    turn,
)

EVERYTHING = 1_000
ENTERED_LEDGER = 899_000_000_000_000


class WorkerRules(Rules):
    """W1-W7, W10, A10."""

    def test_W1_W2_W3_W4_W5_heartbeats_are_judged_by_state_and_token(self) -> None:
        async def case(bench: Bench) -> None:
            key = WorkerKey("carl")
            check(bench.store.heartbeat(Heartbeat(key, 1), HERE) == WorkerInactive(), "unknown, with a token")
            reply = bench.store.heartbeat(Heartbeat(key, None, 5_000), HERE)
            check(reply == Renewed(1, bench.clock.now_ms + 5_000, 5_000))
            check(bench.store.heartbeat(Heartbeat(key, None, 5_000), HERE) == TokenMismatch(1))
            check(isinstance(bench.store.heartbeat(Heartbeat(key, 1, 5_000), HERE), Renewed))
            check(bench.store.heartbeat(Heartbeat(key, 1, 60_000), HERE) == TokenMismatch(2), "a token counts once")
            check(applied(await bench.one(MarkWorkerLost(key=key, at_deadline=False, limit=EVERYTHING))))
            check(bench.store.heartbeat(Heartbeat(key, 2, 5_000), HERE) == WorkerInactive())
            check(bench.store.heartbeat(Heartbeat(key, 7, 5_000), HERE) == WorkerInactive(), "the state comes first")

        self.on_bench(case)

    def test_W6_expiry_acts_at_the_deadline_and_not_on_a_lease_that_was_renewed(self) -> None:
        async def case(bench: Bench) -> None:
            mark_lost = MarkWorkerLost(key=ANNA, at_deadline=True, limit=EVERYTHING)
            check(isinstance(await bench.one(mark_lost), Rejected), "its lease was still running")
            bench.clock.now_ms += 9_999
            bench.beat(ANNA)
            bench.clock.now_ms += 9_999
            check(isinstance(await bench.one(mark_lost), Rejected), "it was renewed meanwhile")
            bench.clock.now_ms += 1
            check(applied(await bench.one(mark_lost)))

        self.on_bench(case)

    def test_W9_while_a_clock_that_was_set_back_catches_up_no_lease_ends_and_all_are_renewed(self) -> None:
        async def case(bench: Bench) -> None:
            members = [MarkWorkerLost(key=key, at_deadline=True, limit=EVERYTHING) for key in (ANNA, BERT)]
            mark_ms = bench.store.now_ms()
            bench.clock.now_ms -= 3_600_000
            for _ in range(3):
                bench.clock.now_ms += 20_000  # by far more than the lease, and time in the store stands still
                check(isinstance(bench.beat(ANNA), Renewed))
                for mark_lost in members:
                    check(isinstance(await bench.one(mark_lost), Rejected))
            bench.clock.now_ms = mark_ms + 10_000
            check(isinstance(bench.beat(ANNA), Renewed))
            check(
                [applied(await bench.one(mark_lost)) for mark_lost in members] == [False, True],
                "the silent one is found now",
            )

        self.on_bench(case)

    def test_W9_a_clock_that_is_set_forward_ends_no_lease_that_is_renewed_in_time(self) -> None:
        async def case(bench: Bench) -> None:
            bench.clock.now_ms += 3_600_000
            check(isinstance(bench.beat(ANNA), Renewed))
            members = [MarkWorkerLost(key=key, at_deadline=True, limit=EVERYTHING) for key in (ANNA, BERT)]
            check([applied(await bench.one(mark_lost)) for mark_lost in members] == [False, True])
            check(isinstance(bench.beat(BERT), WorkerInactive), "it takes a new key")

        self.on_bench(case)

    def test_W6_an_attempt_of_a_lost_worker_is_timed_out_and_retried(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=EVERYTHING))))
            attempts = await bench.store.read_attempts(record.number, 1)
            states = [(each.key.activity, each.key.attempt, str(each.state), each.losses) for each in attempts]
            check(states == [(0, 1, "TIMED_OUT", 0), (0, 2, "READY", 1), (1, 1, "TIMED_OUT", 0), (1, 2, "READY", 1)])
            claimed = await bench.one(ClaimInstances(owner=BERT, workflows=("flow",), limit=1))
            check(isinstance(claimed, ClaimedInstances) and claimed.instances[0].fence == record.fence + 1)

        self.on_bench(case)

    def test_W1_a_worker_whose_loop_is_blocked_loses_its_instances_and_keeps_its_lease_and_attempts(self) -> None:
        async def case(bench: Bench) -> None:
            guilty = await bench.started("a", activities=1)
            await bench.started("b", activities=1)
            await bench.started("c", owner=BERT, activities=1)
            release = MarkWorkerLost(
                key=ANNA, at_deadline=False, limit=EVERYTHING, instances_only=True, culprit=guilty.number
            )
            [outcome] = bench.store.commit_apart(CommitId(4_711), [release])
            check(outcome == Applied(changed=2))
            check(await bench.one(release) == Applied(changed=0), "the second time there is nothing left")
            check(isinstance(bench.beat(ANNA), Renewed), "its lease goes on")
            held = await bench.store.rows_owned_by(ANNA)
            check((len(held.attempts), held.instances) == (2, []))
            check(isinstance(await bench.one(turn(guilty)), Rejected), "G1: its own turn is stale, claimed or not")
            claimed = await bench.one(ClaimInstances(owner=BERT, workflows=("flow",), limit=EVERYTHING))
            check(isinstance(claimed, ClaimedInstances))
            instances = claimed.instances if isinstance(claimed, ClaimedInstances) else []
            check(
                {(each.id, each.fence, each.losses) for each in instances} == {("a", guilty.fence + 1, 1), ("b", 2, 0)}
            )
            check(applied(await bench.one(completion(guilty, 0))), "its attempts are its own, and their answers count")
            check((await bench.instance("c")).owner == BERT)

        self.on_bench(case)

    def test_W1_a_worker_that_is_not_active_releases_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.started("a", activities=1)
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=0))))
            release = MarkWorkerLost(key=ANNA, at_deadline=False, limit=EVERYTHING, instances_only=True)
            check(isinstance(await bench.one(release), Rejected))
            [outcome] = bench.store.commit_apart(
                CommitId(4_711), [msgspec.structs.replace(release, key=WorkerKey("carl"))]
            )
            check(isinstance(outcome, Rejected), "it is unknown")
            check((await bench.instance("a")).owner == ANNA)

        self.on_bench(case)

    def test_W10_a_clean_stop_releases_everything_and_counts_no_loss(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=1)
            check(
                applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=EVERYTHING, is_clean=True)))
            )
            attempts = await bench.store.read_attempts(record.number, 1)
            check([(str(each.state), each.losses) for each in attempts] == [("TIMED_OUT", 0), ("READY", 0)])

        self.on_bench(case)

    def test_W6_rows_of_a_lost_worker_are_released_in_batches(self) -> None:
        async def case(bench: Bench) -> None:
            for number in range(5):
                await bench.started(f"i{number}", activities=1)
            moved: list[int] = []
            while not moved or moved[-1]:
                outcome = await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=2))
                check(isinstance(outcome, Applied))
                moved.append(outcome.changed if isinstance(outcome, Applied) else 0)
            check(sum(moved) == 10)
            check(max(moved) <= 4, "a batch is bounded")

        self.on_bench(case)

    def test_W7_a_lost_worker_changes_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            (running,) = await bench.store.read_attempts(record.number, 1)
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=EVERYTHING))))
            for late in (
                turn(record, completions=(completion(record),)),
                completion(record),
                OpenNextAttempt(ended=transition(running, AttemptEvent.FAIL), next=new_attempt(0, attempt=2)),
                HeartbeatAttempt(key=running.key, owner=ANNA, details=b"7", expires_at_ms=None),
                Release(number=record.number, owner=ANNA, fence=record.fence),
                Block(number=record.number, owner=ANNA, fence=record.fence, reason="why", build="one"),
                ClaimInstances(owner=ANNA, workflows=("flow",), limit=1),
                ClaimAttempts(owner=ANNA, queues=("default",), names=("step",), limit=1),
                start("b", first=first_turn(ANNA)),
            ):
                check(isinstance(await bench.one(late), Rejected), f"a zombie may not {type(late).__name__}")
            check(await bench.store.find_instance(InstanceId("b")) is None)
            now = await bench.instance("a")
            check((now.turn, now.owner) == (record.turn, None))
            attempts = await bench.store.read_attempts(record.number, 1)
            check([str(each.state) for each in attempts] == ["TIMED_OUT", "READY"])

        self.on_bench(case)

    def test_A10_an_activity_that_may_not_run_twice_fails_with_its_worker(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            once = new_attempt(0, owner=ANNA, options=ActivityOptions(rerun_after_loss=False))
            worn = new_attempt(1, owner=ANNA, losses=5)
            check(applied(await bench.one(turn(record, attempts=(once, worn)))))
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=EVERYTHING))))
            loaded = await bench.store.load(record.number, 1)
            check([str(each.state) for each in loaded.attempts] == ["TIMED_OUT", "TIMED_OUT"])
            check(len(loaded.inbox) == 2)
            check(all(b"WorkerLost" in row.event for row in loaded.inbox))

        self.on_bench(case)

    def test_W3_rows_are_listed_by_their_owner(self) -> None:
        async def case(bench: Bench) -> None:
            first = await bench.started("a", activities=2)
            await bench.started("b", owner=BERT)
            check(applied(await bench.one(completion(first, 0))), "a closed attempt has no owner")
            held = await bench.store.rows_owned_by(ANNA)
            check([(each.key.activity, str(each.state)) for each in held.attempts] == [(1, "RUNNING")])
            check([(each.number, each.fence) for each in held.instances] == [(first.number, first.fence)])
            check(applied(await bench.one(Release(number=first.number, owner=ANNA, fence=first.fence))))
            check((await bench.store.rows_owned_by(ANNA)).instances == [])

        self.on_bench(case)

    def test_W3_unknown_rows_of_a_worker_are_released_and_the_others_stay(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            await bench.started("b")
            waiting = (
                new_attempt(2, owner=ANNA, state=AttemptState.QUEUED, ledger=ENTERED_LEDGER),
                new_attempt(3, owner=ANNA, state=AttemptState.PREPARING, ledger=ENTERED_LEDGER),
                new_attempt(4, owner=ANNA),
            )
            check(applied(await bench.one(turn(record, attempts=waiting))))
            check(applied(await bench.one(turn(await bench.instance("a"), abandoned=(4,)))))
            held = await bench.store.rows_owned_by(ANNA)
            lost = tuple(each for each in held.attempts if each.key.number == record.number and each.key.activity != 1)
            mine = tuple(each for each in held.instances if each.number == record.number)
            check(applied(await bench.one(ReleaseUnknown(owner=ANNA, attempts=lost, instances=mine))))
            attempts = await bench.store.read_attempts(record.number, 1)
            states = [(each.key.activity, each.key.attempt, str(each.state), each.losses) for each in attempts]
            check(states[:3] == [(0, 1, "TIMED_OUT", 0), (0, 2, "READY", 1), (1, 1, "RUNNING", 0)])
            check(states[3:] == [(2, 1, "READY", 0), (3, 1, "READY", 0), (4, 1, "CANCELLED", 0)])
            check((await bench.instance("a")).owner is None)
            check((await bench.instance("b")).owner == ANNA)
            check(applied(await bench.one(completion(record, 1))), "what it knows it goes on with")

        self.on_bench(case)

    def test_W3_a_released_unknown_instance_is_claimable_when_it_has_something_to_do(self) -> None:
        async def case(bench: Bench) -> None:
            at_ms = bench.clock.now_ms + 5
            record = await bench.started("a", activities=0)
            check(applied(await bench.one(turn(record, timers_started=(TimerRow(timer=1, due_at_ms=at_ms),)))))
            held = await bench.store.rows_owned_by(ANNA)
            check(applied(await bench.one(ReleaseUnknown(owner=ANNA, instances=tuple(held.instances)))))
            claim = ClaimInstances(owner=BERT, workflows=("flow",), limit=1)
            check(await bench.one(claim) == ClaimedInstances(instances=[]))
            bench.clock.now_ms += 5
            claimed = await bench.one(claim)
            check(isinstance(claimed, ClaimedInstances) and claimed.instances[0].fence == record.fence + 1)

        self.on_bench(case)

    def test_W3_rows_that_changed_since_they_were_read_are_not_released(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            held = await bench.store.rows_owned_by(ANNA)
            seen = ReleaseUnknown(owner=ANNA, attempts=tuple(held.attempts), instances=tuple(held.instances))
            strangers = ReleaseUnknown(owner=BERT, attempts=seen.attempts, instances=seen.instances)
            check(await bench.one(strangers) == Applied(changed=0), "they are not in its name")
            check(applied(await bench.one(completion(record, 0))))
            check(applied(await bench.one(turn(record, abandoned=(1,)))))
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            check(
                isinstance(await bench.one(ClaimInstances(owner=ANNA, workflows=("flow",), limit=1)), ClaimedInstances)
            )
            check(await bench.one(seen) == Applied(changed=0), "one is closed, one asked to stop, one claimed again")
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=EVERYTHING))))
            check(isinstance(await bench.one(seen), Rejected), "W7: a zombie gives nothing up")

        self.on_bench(case)

    def test_W8_owners_that_are_not_active_are_found(self) -> None:
        """The worker that released a batch of its rows has died: it is INACTIVE and still owns the rest."""

        async def case(bench: Bench) -> None:
            for number in range(3):
                await bench.started(f"i{number}")
            await bench.started("b", owner=BERT)
            check(await bench.store.dead_owners() == [], "both are active")
            mark_lost = MarkWorkerLost(key=ANNA, at_deadline=False, limit=1)
            check(applied(await bench.one(mark_lost)))
            check(await bench.store.dead_owners() == [ANNA])
            while await bench.store.dead_owners():
                check(applied(await bench.one(mark_lost)))
            held = await bench.store.rows_owned_by(ANNA)
            check((held.attempts, held.instances) == ([], []))
            check((await bench.instance("b")).owner == BERT)

        self.on_bench(case)


GROUPS = 80


class WorkerListRules(Rules):
    """W1, and what `holdfast workers` and `holdfast queues` show."""

    def test_W1_a_worker_is_listed_as_it_registered(self) -> None:
        async def case(bench: Bench) -> None:
            carl = WorkerKey("carl")
            code = ('["checkout"]', '["charge","ship"]')
            registration = Registration(
                host=b'{"pid":7}', queues='["a,b","c"]', build="b1", slots=12, workflows=code[0], activities=code[1]
            )
            bench.store.heartbeat(Heartbeat(carl, None, 5_000), registration)
            bench.clock.now_ms += 1_000
            bench.store.heartbeat(Heartbeat(carl, 1, 4_000), registration)
            (row,) = [each for each in await bench.store.workers() if each.key == carl]
            check(
                (row.host, row.queues, row.build, row.slots)
                == (registration.host, registration.queues, registration.build, registration.slots)
            )
            check((row.workflows, row.activities) == code)
            check((row.lease_ms, row.deadline_ms) == (4_000, bench.clock.now_ms + 4_000))
            check(row.registered_at_ms == bench.clock.now_ms - 1_000)

        self.on_bench(case)

    def test_W3_each_heartbeat_updates_the_number_of_abandoned_bodies(self) -> None:
        async def case(bench: Bench) -> None:
            carl = WorkerKey("carl")
            for token, abandoned in ((None, 0), (1, 2), (2, 1)):
                registration = Registration(host=b"", queues="[]", build="", abandoned=abandoned)
                bench.store.heartbeat(Heartbeat(carl, token, 5_000), registration)
                (row,) = [each for each in await bench.store.workers() if each.key == carl]
                check(row.abandoned == abandoned)
            refused = Registration(host=b"", queues="[]", build="", abandoned=9)
            bench.store.heartbeat(Heartbeat(carl, 1, 5_000), refused)
            (row,) = [each for each in await bench.store.workers() if each.key == carl]
            check(row.abandoned == 1)

        self.on_bench(case)

    def test_W3_the_load_of_a_worker_counts_its_open_rows(self) -> None:
        async def case(bench: Bench) -> None:
            check(await bench.store.worker_loads() == [])
            first = await bench.started("a", activities=2)
            await bench.started("b", activities=0)
            await bench.started("c", owner=BERT, activities=1)
            queued = new_attempt(3, owner=ANNA, state=AttemptState.QUEUED, ledger=ENTERED_LEDGER)
            check(applied(await bench.one(turn(first, attempts=(queued, new_attempt(4)), abandoned=(1,)))))
            anna = WorkerLoad(key=ANNA, attempts=3, instances=2)
            check(await bench.store.worker_loads() == [anna, WorkerLoad(key=BERT, attempts=1, instances=1)])

        self.on_bench(case)

    def test_a_queue_is_listed_with_its_ready_later_and_running_attempts(self) -> None:
        async def case(bench: Bench) -> None:
            check(await bench.store.queues() == [])
            record = await bench.started("a", activities=1)
            now_ms = bench.clock.now_ms
            attempts = (
                new_attempt(1, queue="mail", available_at_ms=now_ms),
                new_attempt(2, queue="mail", available_at_ms=now_ms - 20),
                new_attempt(3, queue="mail", available_at_ms=now_ms + 50),
                new_attempt(4, queue="later", available_at_ms=now_ms + 50),
            )
            check(applied(await bench.one(turn(record, attempts=attempts))))
            running = QueueRow(queue="default", ready=0, later=0, running=1)
            later = QueueRow(queue="later", ready=0, later=1, running=0)
            mail = QueueRow(queue="mail", ready=2, later=1, running=0, oldest_at_ms=now_ms - 20)
            check(await bench.store.queues() == [running, later, mail])
            claim = ClaimAttempts(owner=BERT, queues=("mail",), names=("step",), limit=1)
            check(isinstance(await bench.one(claim), ClaimedAttempts))
            mail = QueueRow(queue="mail", ready=1, later=1, running=1, oldest_at_ms=now_ms)
            check(await bench.store.queues() == [running, later, mail])

        self.on_bench(case)

    def test_groups_may_be_committed_concurrently(self) -> None:
        """A worker and a client of one process share a store."""

        async def case(bench: Bench) -> None:
            outcomes = await asyncio.gather(*(bench.one(start(f"i{number}")) for number in range(GROUPS)))
            numbers = {outcome.instance.number for outcome in outcomes if isinstance(outcome, StartedInstance)}
            check(len(numbers) == GROUPS)

        self.on_bench(case)
