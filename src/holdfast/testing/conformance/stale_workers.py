"""Rules of stale members: of a worker that lost its rows, and of maintenance that acts on an outdated read.

Two known defects of other engines are tests here. In one, the result of the old worker of a rescheduled activity is
accepted once the new worker has started. In the other, maintenance finds the attempt to reschedule by its activity
alone, and takes it from a healthy owner.

Instances whose code crashes their owners: how losses are counted, and when the instance is blocked (G12).
"""

import msgspec

from holdfast.core.activity_options import ActivityOptions
from holdfast.core.history import ActivityCompleted, CancelRequested, Payload
from holdfast.core.leases import MAX_LOST_OWNERS, SUSPECT_AFTER, WorkerKey
from holdfast.core.ledger import enter_leg2, exit_leg2
from holdfast.core.lifecycle import AttemptEvent, AttemptState
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.attempt_endings import end_by_failure, end_by_loss, transition
from holdfast.storage.members.attempts import ClaimAttempts, Completion, HeartbeatAttempt, OpenNextAttempt
from holdfast.storage.members.instances import Block, ClaimInstances, Release
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Applied, ClaimedAttempts, ClaimedInstances, Rejected
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown
from holdfast.storage.records import AttemptRecord, InstanceNumber, InstanceRecord, OwnedAttempt, OwnedInstance
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    Bench,
    Rules,
    applied,
    check,
    completion,
    new_attempt,
    start,
    turn,
)

EVERYTHING = 1_000
ENTERED_LEDGER = 899_000_000_000_000
LATE = RecordedFailure(type="holdfast.errors.ActivityTimedOut", message="too late")


class StaleWorkerRules(Rules):
    """W6, W7, A2, A7: a stale member changes nothing, whichever worker owns the row now."""

    def test_A7_the_answer_of_a_timed_out_attempt_is_rejected_though_its_worker_is_active(self) -> None:
        """Anna's lease is valid, but this attempt missed its heartbeat, and Bert has started the next one."""

        async def case(bench: Bench) -> None:
            record, first = await _silent(bench)
            (second,) = await _claim(bench, BERT)
            check((second.key.attempt, second.owner) == (2, BERT))
            before = await _rows(bench, record)
            for late in _all_about(record, first):
                check(isinstance(await bench.one(late), Rejected), f"{late} was taken")
            check(await _rows(bench, record) == before)
            check(applied(await bench.one(_completed(second))), "the completion of the owner was rejected")

        self.on_bench(case)

    def test_A7_an_older_attempt_is_rejected_though_its_worker_owns_the_next_one(self) -> None:
        async def case(bench: Bench) -> None:
            record, first = await _silent(bench)
            (second,) = await _claim(bench, ANNA)
            before = await _rows(bench, record)
            for late in _all_about(record, first):
                check(isinstance(await bench.one(late), Rejected), f"{late} was taken")
            check(await _rows(bench, record) == before)
            check(applied(await bench.one(_completed(second))))

        self.on_bench(case)

    def test_W7_a_stale_worker_is_rejected_whether_the_next_owner_has_started_or_finished(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            (first,) = await bench.store.read_attempts(record.number, 1)
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=EVERYTHING))))
            check(isinstance(await bench.one(_claim_instance(BERT)), ClaimedInstances))
            check((await bench.instance("a")).owner == BERT)
            for _ in range(2):
                before = await _rows(bench, record)
                for late in (*_all_about(record, first), turn(record), turn(record, completions=(completion(record),))):
                    check(isinstance(await bench.one(late), Rejected), f"{late} was taken")
                check(await _rows(bench, record) == before)
                for second in await _claim(bench, BERT):
                    check(applied(await bench.one(_completed(second))))

        self.on_bench(case)

    def test_W6_a_late_member_of_maintenance_changes_nothing(self) -> None:
        """It read the same lost worker and the same expired attempt as the maintenance that committed first."""

        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=2)
            stale = await bench.store.read_attempts(record.number, 1)
            held = await bench.store.rows_owned_by(ANNA)
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=EVERYTHING))))
            check(isinstance(await bench.one(_claim_instance(BERT)), ClaimedInstances))
            check((await bench.instance("a")).owner == BERT)
            taken = await _claim(bench, BERT)
            check(len(taken) == 2)
            before = await _rows(bench, record)
            bench.clock.now_ms += 1
            for at_deadline in (True, False):
                mark_lost = MarkWorkerLost(key=ANNA, at_deadline=at_deadline, limit=EVERYTHING)
                check(await bench.one(mark_lost) == Applied(changed=0), "nothing is in the lost worker's name any more")
            for member in (*(_expiry(bench, each) for each in stale), *(_loss(bench, each) for each in stale)):
                check(isinstance(await bench.one(member), Rejected), f"{member} was taken")
            for owner in (ANNA, BERT):
                release = ReleaseUnknown(owner=owner, attempts=tuple(held.attempts), instances=tuple(held.instances))
                check(await bench.one(release) in (Applied(changed=0), _refused(ANNA)))
            check(await _rows(bench, record) == before)
            for each in taken:
                check(applied(await bench.one(_completed(each))))

        self.on_bench(case)

    def test_W6_an_attempt_that_was_claimed_again_is_not_ended_by_an_earlier_loss(self) -> None:
        """Its claimer was lost before the body began, so it kept its number (799): digits and owner differ."""

        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            queued = new_attempt(0, owner=ANNA, state=AttemptState.QUEUED, ledger=ENTERED_LEDGER)
            check(applied(await bench.one(turn(record, attempts=(queued,)))))
            (stale,) = await bench.store.read_attempts(record.number, 1)
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=EVERYTHING))))
            (again,) = await _claim(bench, BERT)
            check((again.key, again.owner) == (stale.key, BERT))
            before = await _rows(bench, record)
            bench.beat(CARL)
            held = OwnedAttempt(key=stale.key, state=stale.state, ledger=stale.ledger)
            for owner in (ANNA, BERT, CARL):
                outcome = await bench.one(ReleaseUnknown(owner=owner, attempts=(held,)))
                check(outcome in (Applied(changed=0), _refused(ANNA)))
            check(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=EVERYTHING)) == Applied(changed=0))
            check(isinstance(await bench.one(_expiry(bench, stale)), Rejected))
            check(isinstance(await bench.one(completion(record, owner=ANNA)), Rejected))
            check(isinstance(await bench.one(completion(record, owner=CARL)), Rejected))
            check(await _rows(bench, record) == before)
            check(applied(await bench.one(_completed(again))))

        self.on_bench(case)

    def test_G1_an_instance_that_was_claimed_again_is_not_released_by_its_former_owner(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            check(isinstance(await bench.one(_claim_instance(ANNA)), ClaimedInstances))
            record = await bench.instance("a")
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            check(isinstance(await bench.one(_claim_instance(BERT)), ClaimedInstances))
            check((await bench.instance("a")).owner == BERT)
            before = await bench.instance("a")
            stale = OwnedInstance(number=record.number, fence=record.fence)
            check(isinstance(await bench.one(turn(record)), Rejected))
            check(isinstance(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence)), Rejected))
            for owner in (ANNA, BERT):
                check(await bench.one(ReleaseUnknown(owner=owner, instances=(stale,))) == Applied(changed=0))
            check(await bench.instance("a") == before)

        self.on_bench(case)


async def _silent(bench: Bench) -> tuple[InstanceRecord, AttemptRecord]:
    """An instance of Anna's whose activity missed its heartbeat time-out and was retried by maintenance."""
    record = await bench.started("a", activities=0)
    beats = new_attempt(0, owner=ANNA, options=ActivityOptions(heartbeat_ms=5), expires_at_ms=bench.clock.now_ms + 5)
    check(applied(await bench.one(turn(record, attempts=(beats,)))))
    (first,) = await bench.store.read_attempts(record.number, 1)
    bench.clock.now_ms += 5
    check(applied(await bench.one(_expiry(bench, first))), "its deadline has passed")
    bench.clock.now_ms += 3_600_000  # the next attempt waits for its time, as every retry does
    return await bench.instance("a"), first


def _expiry(bench: Bench, attempt: AttemptRecord) -> Member:
    """The member of maintenance for an attempt that has expired."""
    ended = end_by_failure(attempt, LATE, (), event=AttemptEvent.EXPIRE, now_ms=bench.clock.now_ms, random_number=0.0)
    return msgspec.structs.replace(ended, by_owner=False)


def _loss(bench: Bench, attempt: AttemptRecord) -> Member:
    """The member of maintenance for an attempt of a lost worker."""
    return msgspec.structs.replace(end_by_loss(attempt, now_ms=bench.clock.now_ms), by_owner=False)


def _all_about(record: InstanceRecord, first: AttemptRecord) -> tuple[Member, ...]:
    """Every member that the owner of an attempt may commit."""
    return (
        completion(record),
        msgspec.structs.replace(completion(record), to_state=AttemptState.FAILED),
        OpenNextAttempt(ended=transition(first, AttemptEvent.FAIL), next=new_attempt(0, attempt=2)),
        HeartbeatAttempt(key=first.key, owner=ANNA, details=b"7", expires_at_ms=None),
    )


def _completed(attempt: AttemptRecord) -> Completion:
    """The completion of an attempt by its owner."""
    entered, _ = enter_leg2(attempt.ledger)
    key = attempt.key
    return Completion(
        key=key,
        owner=attempt.owner,
        from_state=attempt.state,
        from_ledger=attempt.ledger,
        to_state=AttemptState.COMPLETED,
        entered_ledger=entered,
        applied_ledger=exit_leg2(entered, final=True),
        event=ActivityCompleted(
            time_ms=0, activity=key.activity, attempt=key.attempt, result=Payload(msgspec.Raw(b"1"))
        ),
    )


def _refused(key: WorkerKey) -> Rejected:
    return Rejected(reason=f"worker {key} is not active")


def _claim_instance(owner: WorkerKey) -> ClaimInstances:
    return ClaimInstances(owner=owner, workflows=("flow",), limit=1)


async def _claim(bench: Bench, owner: WorkerKey) -> list[AttemptRecord]:
    outcome = await bench.one(ClaimAttempts(owner=owner, queues=("default",), names=("step",), limit=EVERYTHING))
    return outcome.attempts if isinstance(outcome, ClaimedAttempts) else []


async def _rows(bench: Bench, record: InstanceRecord) -> list[object]:
    return [await bench.store.read_instance(record.number), await bench.store.load(record.number, 1)]


CARL = WorkerKey("carl")
DORA = WorkerKey("dora")


class LostOwnerRules(Rules):
    """G12: losses that are counted for an instance, and suspects."""

    def test_G12_a_loss_during_a_turn_is_counted_once_for_that_instance_only(self) -> None:
        async def case(bench: Bench) -> None:
            guilty = await bench.started("guilty", activities=0)
            for name in ("a", "b", "c"):
                await bench.started(name, activities=0)
            for _ in range(5):  # in batches, and by several janitors
                check(applied(await bench.one(_lose(ANNA, guilty.number, limit=1))))
            losses = {each.id: each.losses for each in await _claim_suspect(bench, BERT)}
            check(losses == {"guilty": 1, "a": 0, "b": 0, "c": 0})

        self.on_bench(case)

    def test_G12_a_loss_is_not_counted_for_an_instance_that_the_worker_does_not_own(self) -> None:
        async def case(bench: Bench) -> None:
            elsewhere = await bench.started("a", owner=BERT, activities=0)
            alive = MarkWorkerLost(key=BERT, at_deadline=True, limit=EVERYTHING, culprit=elsewhere.number)
            check(not applied(await bench.one(alive)), "its lease was still running")
            check(applied(await bench.one(_lose(ANNA, elsewhere.number))))
            check(applied(await bench.one(_lose(BERT, None))))
            check([each.losses for each in await _claim_suspect(bench, WorkerKey("carl"))] == [0])

        self.on_bench(case)

    def test_G12_losses_in_a_row_are_counted_and_a_turn_resets_the_count(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            for number in range(MAX_LOST_OWNERS):
                (record,) = await _claim_suspect(bench, WorkerKey(f"owner{number}"))
                check(record.losses == number)
                check(not await _claim_suspect(bench, BERT), "it is taken")
                check(applied(await bench.one(_lose(WorkerKey(f"owner{number}"), record.number))))
            (record,) = await _claim_suspect(bench, ANNA)
            check(record.losses == MAX_LOST_OWNERS)
            check(applied(await bench.one(turn(record))))
            check(applied(await bench.one(_lose(ANNA, record.number))))
            check([each.losses for each in await _claim_suspect(bench, BERT)] == [1])

        self.on_bench(case)

    def test_G12_an_instance_that_crashed_its_owners_waits_for_another_build(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            for number in range(MAX_LOST_OWNERS):
                (record,) = await _claim_suspect(bench, WorkerKey(f"owner{number}"))
                check(applied(await bench.one(_lose(WorkerKey(f"owner{number}"), record.number))))
            (record,) = await _claim_suspect(bench, ANNA)
            block = Block(number=record.number, owner=ANNA, fence=record.fence, reason="it kills", build="old")
            check(applied(await bench.one(block)))
            check((await bench.instance("a")).blocked == "it kills")
            check(not await _claim_suspect(bench, BERT))
            check(not await _claim_suspect(bench, BERT, blocked=True), "a restart must not lose another worker to it")
            check(not await _claim_suspect(bench, BERT, blocked=True, build="old"))
            (record,) = await _claim_suspect(bench, BERT, blocked=True, build="new")
            check(record.losses == 0)

        self.on_bench(case)

    def test_G12_an_unexplained_loss_is_counted_once_for_each_instance_of_the_owner(self) -> None:
        async def case(bench: Bench) -> None:
            for name in ("a", "b", "c"):
                await bench.started(name, activities=0)
            elsewhere = await bench.started("d", owner=BERT, activities=0)
            for _ in range(5):  # in batches, and by several janitors
                check(applied(await bench.one(_lose_unexplained(ANNA, limit=1))))
            check({each.id: each.losses for each in await _claim_suspect(bench, CARL)} == {"a": 1, "b": 1, "c": 1})
            check(applied(await bench.one(_lose(BERT, None))))
            check([(each.number, each.losses) for each in await _claim_suspect(bench, CARL)] == [(elsewhere.number, 0)])

        self.on_bench(case)

    def test_G12_instances_that_lost_two_owners_are_claimed_one_at_a_time(self) -> None:
        async def case(bench: Bench) -> None:
            await _under_suspicion(bench, "a", "b", "c")
            await bench.one(start("innocent"))
            (first, *others) = sorted(await _claim_suspect(bench, CARL), key=lambda each: -each.losses)
            check(first.losses == SUSPECT_AFTER)
            check([each.id for each in others] == ["innocent"], "one suspect, and the instances that are none")
            check(not await _claim_suspect(bench, CARL), "no other before this one is cleared")
            (second,) = await _claim_suspect(bench, DORA)
            check(
                (second.losses, second.number != first.number) == (SUSPECT_AFTER, True), "another owner tries another"
            )
            check(applied(await bench.one(turn(first))))
            (third,) = await _claim_suspect(bench, CARL)
            check({first.id, second.id, third.id} == {"a", "b", "c"})
            check(not await _claim_suspect(bench, DORA))

        self.on_bench(case)

    def test_G12_a_suspect_counts_within_the_limit_of_a_claim(self) -> None:
        async def case(bench: Bench) -> None:
            await _under_suspicion(bench, "a")
            await bench.one(start("innocent"))
            check([each.id for each in await _claim_suspect(bench, CARL, limit=1)] == ["a"])
            check([each.id for each in await _claim_suspect(bench, CARL, limit=1)] == ["innocent"])

        self.on_bench(case)

    def test_G12_the_next_loss_is_counted_for_the_suspect_that_was_claimed_alone(self) -> None:
        async def case(bench: Bench) -> None:
            await _under_suspicion(bench, "a", "b")
            (tried,) = await _claim_suspect(bench, CARL)
            check(applied(await bench.one(_lose_unexplained(CARL))))
            found = [*await _claim_suspect(bench, DORA), *await _claim_suspect(bench, WorkerKey("emil"))]
            losses = {each.id: each.losses for each in found}
            check(losses == {"a": SUSPECT_AFTER, "b": SUSPECT_AFTER} | {tried.id: MAX_LOST_OWNERS})

        self.on_bench(case)

    def test_G12_a_released_suspect_is_claimed_again_when_it_has_something_to_do(self) -> None:
        async def case(bench: Bench) -> None:
            await _under_suspicion(bench, "a", "b")
            (tried,) = await _claim_suspect(bench, CARL)
            check(applied(await bench.one(Release(number=tried.number, owner=CARL, fence=tried.fence))))
            (other,) = await _claim_suspect(bench, CARL)
            check(other.id != tried.id)
            check(applied(await bench.one(turn(other))))
            check(not await _claim_suspect(bench, CARL), "it has nothing to do")
            check(applied(await bench.one(_lose_unexplained(CARL))))
            await bench.one(Deliver(id=tried.id, event=CancelRequested(time_ms=0)))
            losses = {each.id: each.losses for each in await _claim_suspect(bench, DORA)}
            check(losses == {tried.id: SUSPECT_AFTER, other.id: 1}, "who does not have it is not lost with it")

        self.on_bench(case)


async def _under_suspicion(bench: Bench, *names: str) -> None:
    """Instances that lost two owners in a row, by unexplained losses."""
    for name in names:
        await bench.started(name, activities=0)
    for number in range(SUSPECT_AFTER):
        check(applied(await bench.one(_lose_unexplained(ANNA if number == 0 else WorkerKey(f"lost{number}")))))
        if number + 1 < SUSPECT_AFTER:
            check(len(await _claim_suspect(bench, WorkerKey(f"lost{number + 1}"))) == len(names))


def _lose_unexplained(key: WorkerKey, *, limit: int = EVERYTHING) -> MarkWorkerLost:
    return MarkWorkerLost(key=key, at_deadline=False, limit=limit, unexplained=True)


def _lose(key: WorkerKey, culprit: InstanceNumber | None, *, limit: int = EVERYTHING) -> MarkWorkerLost:
    return MarkWorkerLost(key=key, at_deadline=False, limit=limit, culprit=culprit)


async def _claim_suspect(
    bench: Bench, owner: WorkerKey, *, blocked: bool = False, build: str = "", limit: int = EVERYTHING
) -> list[InstanceRecord]:
    """Claim all instances, with a worker that is registered first if necessary."""
    if owner not in bench.tokens:
        bench.beat(owner)
    claim = ClaimInstances(owner=owner, workflows=("flow",), limit=limit, blocked=blocked, build=build)
    outcome = await bench.one(claim)
    return outcome.instances if isinstance(outcome, ClaimedInstances) else []
