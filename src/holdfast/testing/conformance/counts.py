"""Rules of a store whose outcomes are counted (M1, M2): what ended inside of it, and its open instances.

They apply to stores with the capability `COUNTS`; for other stores they are skipped.
"""

from collections.abc import Awaitable, Callable
from typing import cast
from unittest import SkipTest

from holdfast.compose import capabilities_of
from holdfast.core.children import ParentClose
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.storage.contract import COUNTS, CountingStore
from holdfast.storage.members.instances import Block, Terminate
from holdfast.storage.members.outcomes import Applied, Rejected, TerminatedInstance
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown
from holdfast.storage.records import Fence, OpenCount, OwnedAttempt
from holdfast.testing.conformance.bench import (
    ANNA,
    RUNNING_LEDGER,
    Bench,
    Rules,
    applied,
    check,
    closing,
    completion,
    start,
    turn,
)
from holdfast.testing.conformance.children import new_child, parent_with_children


class CountRules(Rules):
    """What metrics are counted from."""

    def on_counting(self, case: Callable[[Bench, CountingStore], Awaitable[None]]) -> None:
        """As `on_bench`, for a store that counts."""

        async def capable(bench: Bench) -> None:
            if COUNTS not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {COUNTS!r}")
            await case(bench, cast("CountingStore", bench.store))

        self.on_bench(capable)

    def test_M2_open_instances_are_counted_by_workflow_and_state(self) -> None:
        async def case(bench: Bench, store: CountingStore) -> None:
            for name in ("a0", "a1"):
                await bench.started(name)
            record = await bench.started("a2")
            check(applied(await bench.one(closing(record, completions=(completion(record),)))))
            for name in ("b", "c", "d"):
                await bench.one(start(name, workflow="other"))
            blocked = await bench.instance("a0")
            member = Block(number=blocked.number, owner=ANNA, fence=blocked.fence, reason="x", build="b")
            check(applied(await bench.one(member)))
            expected = [
                OpenCount(workflow="other", state=InstanceState.REQUESTED, instances=3),
                OpenCount(workflow="flow", state=InstanceState.BLOCKED, instances=1),
                OpenCount(workflow="flow", state=InstanceState.RUNNING, instances=1),
            ]
            check(await store.count_open(9) == expected)
            check(await store.count_open(1) == expected[:1])

        self.on_counting(case)

    def test_M1_the_loss_of_a_worker_names_the_attempts_that_ended(self) -> None:
        async def case(bench: Bench, _: CountingStore) -> None:
            record = await bench.started("a", activities=2)
            [first, second] = await bench.store.read_attempts(record.number, 1)
            owned = OwnedAttempt(key=first.key, state=AttemptState.RUNNING, ledger=RUNNING_LEDGER)
            unknown = await bench.one(ReleaseUnknown(owner=ANNA, attempts=(owned,)))
            check(isinstance(unknown, Applied) and [each.key for each in unknown.attempts_ended] == [first.key])
            lost = await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=9))
            ended = lost.attempts_ended if isinstance(lost, Applied) else ()
            check([(each.key, each.name, str(each.state)) for each in ended] == [(second.key, "step", "TIMED_OUT")])
            check([each.closed_at_ms for each in ended] == [bench.clock.now_ms])
            check([each.started_at_ms for each in ended] == [second.started_at_ms])

        self.on_counting(case)

    def test_M1_a_rejected_turn_names_the_completions_that_were_not_applied(self) -> None:
        async def case(bench: Bench, _: CountingStore) -> None:
            record = await bench.started("a", activities=2)
            check(applied(await bench.one(completion(record, 0))))
            moved_on = turn(
                record, fence=Fence(record.fence + 1), completions=(completion(record, 0), completion(record, 1))
            )
            outcome = await bench.one(moved_on)
            check(isinstance(outcome, Rejected) and outcome.stale == (completion(record, 0).key,))
            states = [str(each.state) for each in await bench.store.read_attempts(record.number, 1)]
            check(states == ["COMPLETED", "COMPLETED"], "the other one is recorded (G5)")

        self.on_counting(case)

    def test_M1_children_that_end_with_their_parent_are_named_with_their_state(self) -> None:
        async def case(bench: Bench, _: CountingStore) -> None:
            policies = (ParentClose.TERMINATE, ParentClose.CANCEL)
            children = [new_child(at, f"p/1/{at}", parent_close=policy) for at, policy in enumerate(policies)]
            parent = await parent_with_children(bench, *children)
            outcome = await bench.one(Terminate(id=parent.id))
            ended = outcome.ended if isinstance(outcome, TerminatedInstance) else ()
            for child in ended:
                record = await bench.instance(child.id)
                check((child.workflow, child.state) == (record.workflow, record.state))
            check(len(ended) >= 1)

        self.on_counting(case)
