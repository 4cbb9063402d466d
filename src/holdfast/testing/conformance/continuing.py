"""Continue-as-new: one execution ends and the next begins, in one commit (G4)."""

from typing import Any

import msgspec

from holdfast.core.events import ContinuedAsNew, Payload, Started, decode_event, encode_event, encode_events
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.storage.contract import ClaimedInstances, ClaimInstances, InstanceRecord, NextExecution, TimerRow, Turn
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, Rules, applied, check, completion, new_attempt, turn

GIVEN = b'{"next":1}'


def continuing(record: InstanceRecord, **more: Any) -> Turn:
    """The last turn of an execution that is continued as new."""
    payload = Payload(msgspec.Raw(GIVEN))
    started = Started(time_ms=record.stamp_ms, workflow=record.workflow, version="", seed=2, input=payload, execution=2)
    following = NextExecution(input=GIVEN, started=encode_event(started))
    return turn(record, events=encode_events([ContinuedAsNew(input=payload)]), next=following, **more)


class ContinuingRules(Rules):
    """G4, and what it means for owners, attempts, timers and waiting messages."""

    def test_G4_the_next_execution_is_there_with_its_start_and_its_owner(self) -> None:
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

    def test_G4_what_was_open_ends_and_a_late_answer_changes_nothing(self) -> None:
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

    def test_G1_a_turn_of_the_old_execution_is_refused(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(continuing(record))))
            check(not applied(await bench.one(continuing(record))), "one successor")
            check(not applied(await bench.one(turn(record, turn=0))))
            check((await bench.instance("a")).execution == 2)

        self.on_bench(case)

    def test_G2_a_turn_that_lets_go_leaves_the_next_execution_to_anyone(self) -> None:
        async def case(bench: Bench) -> None:
            record = await bench.started("a")
            check(applied(await bench.one(continuing(record, release=True))))
            after = await bench.instance("a")
            check((after.owner, after.claimable_at_ms) == (None, 0))
            claimed = await bench.one(ClaimInstances(owner=BERT, workflows=(record.workflow,), limit=10))
            check(isinstance(claimed, ClaimedInstances) and [each.execution for each in claimed.instances] == [2])

        self.on_bench(case)
