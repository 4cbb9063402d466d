"""Rules of instances: one start creates an instance, only its owner commits turns, and a turn is committed as a whole.

Continue-as-new: one execution ends and the next begins, in one commit (G4).

Flows: the key changes in the commit of the turn (K2), and a saved definition never changes.

State values: they change in the commit of the turn (G11), and belong to the instance, not to an execution (G4).
"""

from typing import Any

import msgspec

from holdfast.core.deadlines import Deadline
from holdfast.core.history import (
    ContinuedAsNew,
    EventReceived,
    Payload,
    Started,
    UpdateAccepted,
    decode_event,
    encode_event,
    encode_events,
)
from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.storage.members.instances import Block, ClaimInstances, Release, RetryBlocked, SaveFlow, Terminate
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import ClaimedInstances, Delivered, Rejected, RetriedInstance, StartedInstance
from holdfast.storage.members.turns import NextExecution, Turn
from holdfast.storage.records import Fence, InstanceId, InstanceNumber, InstanceRecord, StateValue, TimerRow
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
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

NOTHING = ClaimedInstances(instances=[])


class InstanceRules(Rules):
    """G1-G3, G9-G11."""

    def test_G3_one_id_is_one_instance_however_often_it_is_started(self) -> None:
        async def case(bench: Bench) -> None:
            outcomes = await bench.commit(start("a"), start("a"), start("a", first=first_turn()))
            numbers = [outcome.instance.number for outcome in outcomes if isinstance(outcome, StartedInstance)]
            created = [outcome.created for outcome in outcomes if isinstance(outcome, StartedInstance)]
            check(created == [True, False, False])
            check(len(set(numbers)) == 1)
            check(not await bench.store.read_attempts(numbers[0], 1), "the first turn of a duplicate left something")

        self.on_bench(case)

    def test_A9_an_instance_is_created_when_its_first_turn_began(self) -> None:
        async def case(bench: Bench) -> None:
            bench.clock.now_ms += 500
            outcome = await bench.one(start("a", first=first_turn()))
            waits = await bench.one(start("b"))
            check(isinstance(outcome, StartedInstance) and isinstance(waits, StartedInstance))
            found = await bench.store.find_instance(InstanceId("a"))
            later = await bench.store.find_instance(InstanceId("b"))
            check(found is not None and found.created_at_ms == found.stamp_ms < bench.clock.now_ms)
            check(later is not None and later.created_at_ms == bench.clock.now_ms)
            if isinstance(outcome, StartedInstance):
                check(found == outcome.instance)

        self.on_bench(case)

    def test_G3_another_input_or_workflow_for_the_same_id_is_a_conflict(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a", given=b"1"))
            for other in (start("a", given=b"2"), start("a", given=b"1", workflow="other")):
                outcome = await bench.one(other)
                check(isinstance(outcome, Rejected) and "'a'" in outcome.reason)

        self.on_bench(case)

    def test_G1_every_claim_raises_the_fence_and_a_stale_turn_changes_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            first = await self._claim_instance(bench, ANNA)
            check(first.fence == 1)
            check(applied(await bench.one(Release(number=first.number, owner=ANNA, fence=first.fence))))
            second = await self._claim_instance(bench, BERT)
            check(second.fence == Fence(2))
            stale = await bench.one(turn(first, attempts=(new_attempt(0),)))
            check(isinstance(stale, Rejected))
            now = await bench.instance("a")
            check((now.turn, now.owner) == (0, BERT))
            check(not await bench.store.read_history(now.number, 1))
            check(not await bench.store.read_attempts(now.number, 1))

        self.on_bench(case)

    def test_G1_an_older_fence_of_the_same_owner_changes_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            first = await self._claim_instance(bench, ANNA)
            check(applied(await bench.one(Release(number=first.number, owner=ANNA, fence=first.fence))))
            check(isinstance(await bench.one(turn(first)), Rejected), "it had no owner")
            second = await self._claim_instance(bench, ANNA)
            for stale in (
                turn(first),
                Release(number=first.number, owner=ANNA, fence=first.fence),
                Block(number=first.number, owner=ANNA, fence=first.fence, reason="why", build="one"),
            ):
                check(isinstance(await bench.one(stale), Rejected))
            check(await bench.instance("a") == second)
            check(applied(await bench.one(turn(second))))

        self.on_bench(case)

    def test_G12_a_blocked_instance_is_tried_once_by_each_build_with_a_higher_fence(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            fence = record.fence
            for build, tried in (("one", ()), ("two", ("one",))):
                block = Block(number=record.number, owner=ANNA, fence=fence, reason="why", build=build)
                check(applied(await bench.one(block)))
                check(applied(await bench.one(block)), "it is tried again after a lost reply")
                other = msgspec.structs.replace(block, reason="another reason")
                check(isinstance(await bench.one(other), Rejected))
                blocked = await bench.instance("a")
                check((blocked.state, blocked.owner, blocked.blocked) == (InstanceState.BLOCKED, None, "why"))
                for known in (build, *tried):
                    again = ClaimInstances(owner=ANNA, workflows=("flow",), limit=1, blocked=True, build=known)
                    check(await bench.one(again) == NOTHING, "it was tried by that build")
                    check(not await bench.store.has_blocked(("flow",), known))
                check(await bench.one(ClaimInstances(owner=ANNA, workflows=("flow",), limit=1)) == NOTHING)
                check(await bench.store.has_blocked(("flow",), "three"))
                new = ClaimInstances(owner=ANNA, workflows=("flow",), limit=1, blocked=True, build="three")
                check(isinstance(await bench.one(new), ClaimedInstances))
                now = await bench.instance("a")
                check((now.state, now.owner, now.blocked) == (InstanceState.RUNNING, ANNA, None))
                check(now.fence == fence + 1)
                fence = now.fence

        self.on_bench(case)

    def test_G15_an_instance_is_not_claimable_before_the_time_that_its_start_names(self) -> None:
        async def case(bench: Bench) -> None:
            at_ms = bench.clock.now_ms + 1_000
            deadline = Deadline(500)
            begun = await bench.one(start("a", start_at_ms=at_ms, deadline=deadline))
            check(isinstance(begun, StartedInstance) and begun.created and begun.instance.start_at_ms == at_ms)
            again = await bench.one(start("a", start_at_ms=at_ms + 1))
            check(isinstance(again, StartedInstance) and not again.created, "another time finds the instance")
            record = await bench.instance("a")
            check((record.state, record.claimable_at_ms) == (InstanceState.REQUESTED, at_ms))
            check(record.start_at_ms == at_ms)
            found = await bench.store.read_deadline(record.number)
            check(found is not None and found.at_ms == at_ms + 500, "the deadline counts from the first turn")
            payload = Payload(msgspec.Raw(b"[]"))
            sent = (
                UpdateAccepted(time_ms=0, id="u", name="add", input=payload),
                EventReceived(time_ms=0, name="word", value=payload),
            )
            for event in sent:
                check(isinstance(await bench.one(Deliver(id=record.id, event=event)), Delivered))
            claim = ClaimInstances(owner=BERT, workflows=("flow",), limit=9)
            due = (await bench.store.next_due(workflows=("flow",), queues=(), names=())).instance_ms
            check(due == at_ms, "messages do not make it claimable earlier")
            bench.clock.now_ms = at_ms - 1
            check(await bench.one(claim) == NOTHING)
            bench.clock.now_ms = at_ms
            claimed = await bench.one(claim)
            check(isinstance(claimed, ClaimedInstances) and [each.id for each in claimed.instances] == ["a"])
            check(len((await bench.store.load(record.number, 1)).inbox) == 3)
            bench.beat(BERT)
            plain = await bench.one(start("b", start_at_ms=at_ms - 1))
            check(isinstance(plain, StartedInstance))
            claimed = await bench.one(claim)
            check(isinstance(claimed, ClaimedInstances) and len(claimed.instances) == 1, "a time in the past is now")

        self.on_bench(case)

    def test_G12_a_blocked_instance_is_retried_on_request_by_every_build(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            retry = RetryBlocked(id=record.id)
            for given in (retry, RetryBlocked(id=record.id, number=record.number)):
                found = await bench.one(given)
                check(isinstance(found, RetriedInstance) and not found.was_blocked, "it is not blocked")
            check(await bench.instance("a") == record)
            block = Block(number=record.number, owner=ANNA, fence=record.fence, reason="why", build="one")
            check(applied(await bench.one(block)))
            check(not await bench.store.has_blocked(("flow",), "one"))
            claim = ClaimInstances(owner=BERT, workflows=("flow",), limit=9)
            check(await bench.one(claim) == ClaimedInstances(instances=[]), "nothing but a request makes it claimable")
            found = await bench.one(retry)
            check(isinstance(found, RetriedInstance) and found.was_blocked)
            check((await bench.instance("a")).state is InstanceState.RUNNING)
            due_ms = (await bench.store.next_due(workflows=("flow",), queues=(), names=())).instance_ms
            check(due_ms is not None and due_ms <= bench.clock.now_ms)
            claimed = await bench.one(claim)
            check(isinstance(claimed, ClaimedInstances) and [each.id for each in claimed.instances] == ["a"])
            (again,) = claimed.instances if isinstance(claimed, ClaimedInstances) else []
            check((again.blocked, again.losses, again.fence) == (None, 0, record.fence + 1))
            check(isinstance(await bench.one(block), Rejected), "the worker that blocked it does not own it")
            second = msgspec.structs.replace(block, owner=BERT, fence=again.fence, build="two")
            check(applied(await bench.one(second)))
            check(not await bench.store.has_blocked(("flow",), "two"), "this build has tried it again")
            check(await bench.store.has_blocked(("flow",), "one"), "every build tries it once for each request")
            await bench.one(Terminate(id=record.id))
            closed = await bench.one(retry)
            check(isinstance(closed, RetriedInstance) and not closed.was_blocked)
            check((await bench.instance("a")).state is InstanceState.TERMINATED)
            check(isinstance(await bench.one(RetryBlocked(id=InstanceId("unknown"))), Rejected))

        self.on_bench(case)

    def test_G1_two_claimers_never_get_the_same_instance(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.commit(*(start(f"i{number}") for number in range(10)))
            outcomes = await bench.commit(
                *(ClaimInstances(owner=owner, workflows=("flow",), limit=4) for owner in (ANNA, BERT, ANNA, BERT))
            )
            numbers = [
                record.number
                for outcome in outcomes
                if isinstance(outcome, ClaimedInstances)
                for record in outcome.instances
            ]
            check(len(numbers) == 10)
            check(len(set(numbers)) == 10)

        self.on_bench(case)

    def test_G12_only_registered_workflows_are_claimed(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.commit(start("a", workflow="mine"), start("b", workflow="other"))
            outcome = await bench.one(ClaimInstances(owner=ANNA, workflows=("mine",), limit=10))
            check(isinstance(outcome, ClaimedInstances) and [each.id for each in outcome.instances] == ["a"])

        self.on_bench(case)

    def test_G12_instances_that_are_claimable_longest_are_claimed_first(self) -> None:
        async def case(bench: Bench) -> None:
            for workflow, name, due_in_ms in (("one", "c", 3), ("two", "a", 1), ("one", "b", 2), ("two", "d", 4)):
                mine = start(name, workflow=workflow, first=first_turn(activities=0))
                check(isinstance(await bench.one(mine), StartedInstance))
                record = await bench.instance(name)
                timer = TimerRow(timer=1, due_at_ms=bench.clock.now_ms + due_in_ms)
                check(applied(await bench.one(turn(record, timers_started=(timer,), release=True))))
            bench.clock.now_ms += 10
            for expected in ({"a", "b"}, {"c", "d"}):
                outcome = await bench.one(ClaimInstances(owner=BERT, workflows=("one", "two"), limit=2))
                check(isinstance(outcome, ClaimedInstances) and {each.id for each in outcome.instances} == expected)

        self.on_bench(case)

    def test_G12_work_for_other_workers_is_not_in_the_next_due_time(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a", workflow="other"))
            record = await bench.started("b", activities=0)
            timer = TimerRow(timer=1, due_at_ms=bench.clock.now_ms + 5)
            waiting = new_attempt(0, available_at_ms=bench.clock.now_ms + 7)
            check(applied(await bench.one(turn(record, timers_started=(timer,), attempts=(waiting,), release=True))))

            async def next_in_ms(workflow: str, queue: str, name: str, after_ms: int = -1) -> int | None:
                due = await bench.store.next_due(
                    workflows=(workflow,), queues=(queue,), names=(name,), after_ms=after_ms
                )
                at_ms = due.earliest_ms
                return None if at_ms is None else at_ms - bench.clock.now_ms

            check(await next_in_ms("flow", "default", "step") == 5)
            check(await next_in_ms("flow", "default", "step", timer.due_at_ms) == 7)
            check(await next_in_ms("stranger", "default", "step") == 7)
            check(await next_in_ms("stranger", "elsewhere", "step") is None)
            check(await next_in_ms("stranger", "default", "stranger") is None)

        self.on_bench(case)

    def test_G9_a_turn_is_committed_once(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            outcomes = await bench.commit(turn(record), turn(record))
            check(applied(outcomes[0]) and isinstance(outcomes[1], Rejected))
            rows = await bench.store.read_history(record.number, 1)
            check([row.turn for row in rows] == [0, 1])
            check((await bench.instance("a")).turn == 2)

        self.on_bench(case)

    def test_G9_a_turn_without_events_does_not_advance_the_turn(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(turn(record, events=b""))))
            check((await bench.instance("a")).turn == record.turn)

        self.on_bench(case)

    def test_G11_a_turn_is_written_whole(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            timer = TimerRow(timer=1, due_at_ms=5)
            whole = turn(record, attempts=(new_attempt(0),), timers_started=(timer,))
            twice = turn(record, turn=record.turn + 1, attempts=(new_attempt(0),), timers_started=(timer,))
            outcomes = await bench.commit(whole, twice)
            check(applied(outcomes[0]), "the first turn is fine")
            check(not applied(outcomes[1]), "the second opens an attempt that is there already")
            loaded = await bench.store.load(record.number, 1)
            check(len(loaded.history) == 2)
            check(len(loaded.attempts) == len(loaded.timers) == 1)
            check((await bench.instance("a")).turn == record.turn + 1)

        self.on_bench(case)

    def test_G2_a_released_instance_is_claimable_when_its_timer_is_due_and_not_before(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            due = TimerRow(timer=1, due_at_ms=bench.clock.now_ms + 500)
            check(applied(await bench.one(turn(record, timers_started=(due,), release=True))))
            claim = ClaimInstances(owner=BERT, workflows=("flow",), limit=1)
            bench.clock.now_ms += 499
            early = await bench.one(claim)
            check(isinstance(early, ClaimedInstances) and not early.instances, "it was claimed before its time")
            bench.clock.now_ms += 1
            late = await bench.one(claim)
            check(isinstance(late, ClaimedInstances) and [each.id for each in late.instances] == ["a"])

        self.on_bench(case)

    def test_A9_a_closed_instance_leaves_nothing_pending(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=1)
            timer = TimerRow(timer=1, due_at_ms=5)
            check(applied(await bench.one(turn(record, attempts=(new_attempt(1),), timers_started=(timer,)))))
            record = await bench.instance("a")
            check(applied(await bench.one(closing(record))))
            closed = await bench.instance("a")
            check((closed.state, closed.owner, closed.outcome) == (InstanceState.COMPLETED, None, b'{"data":1}'))
            loaded = await bench.store.load(record.number, 1)
            check(not loaded.timers)
            check([attempt.state for attempt in loaded.attempts] == ["CANCELLED_RUNNING", "CANCELLED"])
            check(isinstance(await bench.one(turn(closed, owner=ANNA)), Rejected))

        self.on_bench(case)

    def test_A9_a_timer_is_deleted_with_its_closed_instance(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a", activities=0)
            timer = TimerRow(timer=1, due_at_ms=5)
            check(applied(await bench.one(turn(record, timers_started=(timer,)))))
            check(applied(await bench.one(closing(await bench.instance("a")))))
            check(not (await bench.store.load(record.number, 1)).timers)

        self.on_bench(case)

    def test_G7_reads_of_unknown_instances_are_empty(self) -> None:
        async def case(bench: Bench) -> None:
            check(await bench.store.find_instance(InstanceId("missing")) is None)
            loaded = await bench.store.load(InstanceNumber(77), 1)
            check(not loaded.history and not loaded.inbox)

        self.on_bench(case)

    def test_G8_instances_are_loaded_together_as_alone_and_in_the_given_order(self) -> None:
        async def case(bench: Bench) -> None:
            executions: list[tuple[InstanceNumber, int]] = [(InstanceNumber(77_777), 1)]
            for instance_id in ("a", "b", "c"):
                record = await bench.started(instance_id, activities=0)
                timers = (TimerRow(timer=2, due_at_ms=7), TimerRow(timer=1, due_at_ms=5))
                attempts = (new_attempt(10), new_attempt(9, owner=ANNA))
                check(applied(await bench.one(turn(record, attempts=attempts, timers_started=timers))))
                for name in ("first", "second"):
                    received = EventReceived(time_ms=0, name=name, value=Payload(msgspec.Raw(b"1")))
                    check(isinstance(await bench.one(Deliver(id=record.id, event=received)), Delivered))
                check(applied(await bench.one(completion(record, 9))))
                executions.insert(0, (record.number, 1))
            record = await bench.instance("b")
            check(applied(await bench.one(continuing(record))), "it has rows of two executions")
            executions[1] = (record.number, 2)
            [loaded_b] = await bench.store.load_many([executions[1]])
            check(loaded_b.history == [] and loaded_b.timers == [] and len(loaded_b.inbox) > 0)
            alone = [await bench.store.load(*each) for each in executions]
            check(await bench.store.load_many(executions) == alone)
            check([len(each.history) for each in alone] == [2, 0, 2, 0])
            check(await bench.store.load_many([]) == [])

        self.on_bench(case)

    async def _claim_instance(self, bench: Bench, owner: WorkerKey) -> InstanceRecord:
        outcome = await bench.one(ClaimInstances(owner=owner, workflows=("flow",), limit=1))
        check(isinstance(outcome, ClaimedInstances) and len(outcome.instances) == 1)
        return outcome.instances[0]  # type: ignore[union-attr,index]  # checked above


GIVEN = b'{"next":1}'


def continuing(record: InstanceRecord, **more: Any) -> Turn:
    """The last turn of an execution that is continued as new."""
    payload = Payload(msgspec.Raw(GIVEN))
    started = Started(time_ms=record.stamp_ms, workflow=record.workflow, version="", seed=2, input=payload, execution=2)
    following = NextExecution(input=GIVEN, started=encode_event(started))
    return turn(record, events=encode_events([ContinuedAsNew(input=payload)]), next=following, **more)


class ContinueAsNewRules(Rules):
    """G4, and what it means for owners, attempts, timers and waiting messages."""

    def test_G4_the_next_execution_has_its_start_and_its_owner(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(continuing(record))))
            after = await bench.instance("a")
            check((after.number, after.execution, after.turn) == (record.number, 2, 0))
            check((after.state, after.owner, after.input) == (InstanceState.RUNNING, ANNA, GIVEN))
            check(after.input_hash == record.input_hash, "the id stays that of the first input (G3)")
            check(after.fence > record.fence, "what the old execution still sends must not fit (G1)")
            loaded = await bench.store.load(record.number, 2)
            starts = [decode_event(row.event) for row in loaded.inbox]
            check(loaded.history == [] and len(starts) == 1)
            check(isinstance(starts[0], Started) and starts[0].execution == 2)
            check(len(await bench.store.read_history(record.number, 1)) == record.turn + 1)

        self.on_bench(case)

    def test_G4_open_activities_end_with_their_execution_and_late_answers_change_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            more = (new_attempt(1), new_attempt(2, owner=ANNA))
            due = TimerRow(timer=1, due_at_ms=bench.clock.now_ms + 10)
            check(applied(await bench.one(turn(record, attempts=more, timers_started=(due,)))))
            record = await bench.instance("a")
            check(applied(await bench.one(completion(record, 2))), "it waits in the inbox, unread")
            check(applied(await bench.one(continuing(record))))
            states = {each.key.activity: each.state for each in await bench.store.read_attempts(record.number, 1)}
            check(states[0] is AttemptState.CANCELLED_RUNNING and states[1] is AttemptState.CANCELLED)
            await bench.one(completion(record, 0))
            loaded = await bench.store.load(record.number, 2)
            check(loaded.timers == [] and loaded.attempts == [])
            check([type(decode_event(row.event)) for row in loaded.inbox] == [Started])

        self.on_bench(case)

    def test_G1_a_turn_of_the_old_execution_is_rejected(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(continuing(record))))
            check(not applied(await bench.one(continuing(record))), "one successor")
            check(not applied(await bench.one(turn(record, turn=0))))
            check((await bench.instance("a")).execution == 2)

        self.on_bench(case)

    def test_G2_a_turn_that_releases_makes_the_next_execution_claimable(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(continuing(record, release=True))))
            after = await bench.instance("a")
            check((after.owner, after.claimable_at_ms) == (None, 0))
            claimed = await bench.one(ClaimInstances(owner=BERT, workflows=(record.workflow,), limit=10))
            check(isinstance(claimed, ClaimedInstances) and [each.execution for each in claimed.instances] == [2])

        self.on_bench(case)


def saved(name: str, definition: bytes) -> SaveFlow:
    return SaveFlow(hash=f"hash of {name}", name=name, version="1", definition=definition)


class FlowRules(Rules):
    """Keys (`Turn.key`) and definitions (`SaveFlow`) of flows."""

    def test_K2_the_key_is_that_of_the_last_turn(self) -> None:
        async def case(bench: Bench) -> None:
            first = msgspec.structs.replace(first_turn(ANNA), key="986")
            await bench.one(start("a", first=first))
            record, other = await bench.instance("a"), await bench.started("b")
            check(await bench.store.read_key(record.number) == "986")
            check(await bench.store.read_key(other.number) is None, "a workflow written as code has none")
            check(applied(await bench.one(turn(record, key="966"))))
            check(await bench.store.read_key(record.number) == "966")
            check(applied(await bench.one(turn(await bench.instance("a")))))
            check(await bench.store.read_key(record.number) == "966", "a turn without a key changed the key")
            check(applied(await bench.one(closing(await bench.instance("a"), key="666"))))
            check(await bench.store.read_key(record.number) == "666")

        self.on_bench(case)

    def test_K2_G1_a_rejected_turn_moves_no_digit(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(turn(record, key="986"))))
            record = await bench.instance("a")
            for stale in (turn(record, key="666", fence=Fence(record.fence + 1)), turn(record, key="666", turn=0)):
                check(isinstance(await bench.one(stale), Rejected))
            check(await bench.store.read_key(record.number) == "986")
            check((await bench.instance("a")).turn == record.turn)

        self.on_bench(case)

    def test_K1_a_definition_is_saved_under_its_hash_and_never_changed(self) -> None:
        async def case(bench: Bench) -> None:
            check(await bench.store.read_flow("hash of fox") is None)
            check(applied(await bench.one(saved("fox", b'{"flow": 1}'))))
            check(all(map(applied, await bench.commit(saved("fox", b"other"), saved("hen", b"{}")))))
            check(await bench.store.read_flow("hash of fox") == b'{"flow": 1}')
            check(await bench.store.read_flow("hash of hen") == b"{}")

        self.on_bench(case)


def kept(**values: bytes | None) -> tuple[StateValue, ...]:
    return tuple(StateValue(key=key, value=value) for key, value in values.items())


class StateValueRules(Rules):
    """State values (`TurnEffects.state_values`) and the status."""

    def test_G11_state_values_commit_with_their_turn(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            other = await bench.started("b")
            check(await bench.store.read_state_values(record.number) == {})
            check(applied(await bench.one(turn(record, state_values=kept(a=b"1", b=b"2")))))
            check(await bench.store.read_state_values(record.number) == {"a": b"1", "b": b"2"})
            check(await bench.store.read_state_values(other.number) == {})
            record = await bench.instance("a")
            check(applied(await bench.one(turn(record, state_values=kept(a=b"3", b=None, never=None)))))
            check(await bench.store.read_state_values(record.number) == {"a": b"3"})

        self.on_bench(case)

    def test_G11_a_rejected_turn_sets_no_state_value(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            stale = turn(record, fence=Fence(record.fence + 1), state_values=kept(a=b"1"))
            check(isinstance(await bench.one(stale), Rejected))
            check(await bench.store.read_state_values(record.number) == {})

        self.on_bench(case)

    def test_G11_state_values_of_the_last_turn_stay_and_the_status_is_listed(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            status = (StateValue(key="", value=b'"done"'), StateValue(key="k", value=b"1"))
            check(applied(await bench.one(closing(record, state_values=status))))
            check(await bench.store.read_state_values(record.number) == {"": b'"done"', "k": b"1"})
            (listed,) = await bench.store.list_instances(before=2**62, limit=10)
            check(listed.custom_status == b'"done"')

        self.on_bench(case)

    def test_G11_read_latest_has_the_instance_with_its_status_and_its_last_turn(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await bench.store.read_latest(InstanceNumber(record.number + 1)) is None)
            second = turn(record, state_values=(StateValue(key="", value=b'"half"'),))
            check(applied(await bench.one(second)))
            found = await bench.store.read_latest(record.number)
            check(found is not None and found[0].turn == record.turn + 1 and found[0].custom_status == b'"half"')
            check(found is not None and found[1] == second.events)
            await bench.one(start("b"))
            unbegun = await bench.store.read_latest((await bench.instance("b")).number)
            check(unbegun is not None and unbegun[1] is None, "there is no turn to be seen yet")

        self.on_bench(case)
