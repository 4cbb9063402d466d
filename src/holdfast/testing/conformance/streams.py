"""Rules of pending responses: a value that an activity yields is accepted once, and only from the owner."""

import msgspec

from holdfast.core.history import ActivityYielded, Payload, decode_event
from holdfast.core.lifecycle import AttemptState
from holdfast.errors import InvariantBroken
from holdfast.storage.members.instances import ClaimInstances, Release, Terminate
from holdfast.storage.members.outcomes import Applied, ClaimedInstances, Failed, Rejected
from holdfast.storage.members.turns import AppliedValues, StreamValues
from holdfast.storage.records import AttemptKey, Fence, InstanceRecord
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, Rules, applied, check, completion, turn

RUNNING = 889_000_000_000_000


def responses(record: InstanceRecord, *numbers: int, entered: int = 0, attempt: int = 1) -> StreamValues:
    """Values with these numbers, of the attempt of a started instance."""
    values = tuple(Payload(msgspec.Raw(b"%d" % number)) for number in numbers)
    return StreamValues(
        key=AttemptKey(record.number, 1, 0, attempt),
        owner=ANNA,
        from_ledger=RUNNING + entered * 10**6,
        event=ActivityYielded(
            time_ms=1,
            activity=0,
            number=numbers[0],
            value=values[0],
            attempt=attempt,
            more=values[1:],
        ),
    )


class StreamRules(Rules):
    """L4, L5, L9, L11, L13, L14, L15."""

    def test_L15_pending_responses_enter_together_and_wait_in_order(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(responses(record, 0, 1, 2))))
            loaded = await bench.store.load(record.number, 1)
            check((loaded.attempts[0].state, loaded.attempts[0].ledger) == (AttemptState.RUNNING, 889_000_003_000_000))
            events = [decode_event(row.event) for row in loaded.inbox]
            check([event.numbers for event in events if isinstance(event, ActivityYielded)] == [range(3)])

        self.on_bench(case)

    def test_L11_the_same_responses_again_change_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(await bench.one(responses(record, 0, 1)) == Applied(changed=2))
            check(await bench.one(responses(record, 0, 1)) == Applied(changed=0))
            loaded = await bench.store.load(record.number, 1)
            check((loaded.attempts[0].ledger, len(loaded.inbox)) == (889_000_002_000_000, 1))

        self.on_bench(case)

    def test_L5_a_turn_takes_pending_responses_out_while_others_enter(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(responses(record, 0, 1))))
            key = AttemptKey(record.number, 1, 0, 1)
            inbox = [row.row for row in (await bench.store.load(record.number, 1)).inbox]
            taken = turn(record, consumed=tuple(inbox), applied_values=(AppliedValues(key=key, count=2),))
            outcomes = [await bench.one(responses(record, 2, entered=2)), await bench.one(taken)]
            check(all(applied(outcome) for outcome in outcomes))
            loaded = await bench.store.load(record.number, 1)
            check((loaded.attempts[0].ledger, len(loaded.inbox)) == (889_000_003_000_002, 1))
            ended = completion(
                record,
                from_ledger=RUNNING + 3 * 10**6,
                entered_ledger=RUNNING + 4 * 10**6,
                applied_ledger=RUNNING + 4 * 10**6 + 1 - 10**12,
            )
            check(applied(await bench.one(ended)))
            check((await bench.store.read_attempts(record.number, 1))[0].ledger == 889_000_004_000_002)

        self.on_bench(case)

    def test_L14_no_more_responses_leave_than_have_entered(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(responses(record, 0))))
            key = AttemptKey(record.number, 1, 0, 1)
            outcome = await bench.one(turn(record, applied_values=(AppliedValues(key=key, count=2),)))
            check(isinstance(outcome, Failed) and isinstance(outcome.error, InvariantBroken))
            check((await bench.store.read_attempts(record.number, 1))[0].ledger == 889_000_001_000_000)

        self.on_bench(case)

    def test_L9_responses_of_a_closed_attempt_or_of_another_worker_are_rejected(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(isinstance(await bench.one(responses(record, 5, entered=5)), Rejected), "other digits")
            stranger = msgspec.structs.replace(responses(record, 0), owner=BERT)
            check(isinstance(await bench.one(stranger), Rejected), "another owner")
            check(applied(await bench.one(completion(record))))
            check(isinstance(await bench.one(responses(record, 0)), Rejected), "closed")
            check((await bench.store.read_attempts(record.number, 1))[0].ledger == 889_000_001_000_000)

        self.on_bench(case)

    def test_A8_a_closed_instance_leaves_no_response_unapplied(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(responses(record, 0, 1))))
            await bench.one(Terminate(id=record.id))
            loaded = await bench.store.load(record.number, 1)
            check(loaded.attempts[0].state is AttemptState.CANCELLED_RUNNING)
            check((loaded.attempts[0].ledger, len(loaded.inbox)) == (889_000_002_000_002, 0))
            check(isinstance(await bench.one(responses(record, 2, entered=2)), Rejected))

        self.on_bench(case)

    def test_L13_values_enter_and_leave_leg_2_with_the_turn_that_applied_them(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(turn(record, stream_values=(responses(record, 0, 1, 2),)))))
            loaded = await bench.store.load(record.number, 1)
            check((loaded.attempts[0].ledger, len(loaded.inbox)) == (889_000_003_000_003, 0))
            again = await bench.one(responses(record, 0, 1, 2))
            check(again == Applied(changed=0), "alone, after the turn that brought them (L11)")
            check(len((await bench.store.load(record.number, 1)).inbox) == 0)
            check(applied(await bench.one(responses(record, 3, entered=3))))
            check((await bench.store.read_attempts(record.number, 1))[0].ledger == 889_000_004_000_003)

        self.on_bench(case)

    def test_L13_a_turn_with_stale_values_changes_nothing(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(responses(record, 0, 1))))
            before = await bench.store.load(record.number, 1)
            stale = turn(record, stream_values=(responses(record, 2, entered=2), responses(record, 0, 1)))
            check(isinstance(await bench.one(stale), Rejected))
            stranger = msgspec.structs.replace(responses(record, 2, entered=2), owner=BERT)
            check(isinstance(await bench.one(turn(record, stream_values=(stranger,))), Rejected))
            check(await bench.store.load(record.number, 1) == before)

        self.on_bench(case)

    def test_L14_values_of_a_rejected_turn_can_be_stored_without_it(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            values = responses(record, 0, 1)
            late = msgspec.structs.replace(turn(record, stream_values=(values,)), fence=Fence(record.fence + 1))
            check(isinstance(await bench.one(late), Rejected))
            check((await bench.store.read_attempts(record.number, 1))[0].ledger == RUNNING)
            check(await bench.one(values) == Applied(changed=2))
            loaded = await bench.store.load(record.number, 1)
            check((loaded.attempts[0].ledger, len(loaded.inbox)) == (889_000_002_000_000, 1))

        self.on_bench(case)

    def test_L15_the_end_of_a_stream_may_come_with_the_turn_of_its_last_values(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(turn(record, stream_values=(responses(record, 0),)))))
            ended = completion(
                record,
                from_ledger=RUNNING + 10**6,
                entered_ledger=RUNNING + 2 * 10**6,
                applied_ledger=RUNNING + 2 * 10**6 + 1 - 10**12,
            )
            following = msgspec.structs.replace(turn(record, completions=(ended,)), turn=record.turn + 1)
            check(applied(await bench.one(following)))
            check((await bench.store.read_attempts(record.number, 1))[0].ledger == 888_000_002_000_002)

        self.on_bench(case)

    def test_G5_values_make_an_unowned_instance_claimable(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(Release(number=record.number, owner=ANNA, fence=record.fence))))
            claim = ClaimInstances(owner=ANNA, workflows=(record.workflow,), limit=5)
            none = await bench.one(claim)
            check(isinstance(none, ClaimedInstances) and not none.instances, "there is nothing to do yet")
            check(applied(await bench.one(responses(record, 0))))
            found = await bench.one(claim)
            check(isinstance(found, ClaimedInstances) and [each.number for each in found.instances] == [record.number])

        self.on_bench(case)
