"""What a store tells people about its workers and queues."""

import asyncio

from holdfast.core.lifecycle import AttemptState
from holdfast.core.liveness import Heartbeat, WorkerKey
from holdfast.storage.contract import (
    ClaimAttempts,
    ClaimedAttempts,
    QueueRow,
    Registration,
    StartedInstance,
    WorkerLoad,
)
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, Rules, applied, check, new_attempt, start, turn

ENTERED_LEDGER = 899_000_000_000_000
GROUPS = 80


class OverviewRules(Rules):
    """W1, and what `holdfast workers` and `holdfast queues` show."""

    def test_W1_a_worker_is_kept_as_it_registered(self) -> None:
        async def case(bench: Bench) -> None:
            carl = WorkerKey("carl")
            code = ('["checkout"]', '["charge","ship"]')
            said = Registration(
                host=b'{"pid":7}', queues='["a,b","c"]', build="b1", slots=12, workflows=code[0], activities=code[1]
            )
            bench.store.heartbeat(Heartbeat(carl, None, 5_000), said)
            bench.clock.now_ms += 1_000
            bench.store.heartbeat(Heartbeat(carl, 1, 4_000), said)
            (row,) = [each for each in await bench.store.workers() if each.key == carl]
            check((row.host, row.queues, row.build, row.slots) == (said.host, said.queues, said.build, said.slots))
            check((row.workflows, row.activities) == code)
            check((row.lease_ms, row.deadline_ms) == (4_000, bench.clock.now_ms + 4_000))
            check(row.registered_at_ms == bench.clock.now_ms - 1_000)

        self.on_bench(case)

    def test_W3_each_heartbeat_brings_the_number_of_abandoned_bodies(self) -> None:
        async def case(bench: Bench) -> None:
            carl = WorkerKey("carl")
            for token, abandoned in ((None, 0), (1, 2), (2, 1)):
                said = Registration(host=b"", queues="[]", build="", abandoned=abandoned)
                bench.store.heartbeat(Heartbeat(carl, token, 5_000), said)
                (row,) = [each for each in await bench.store.workers() if each.key == carl]
                check(row.abandoned == abandoned)
            refused = Registration(host=b"", queues="[]", build="", abandoned=9)
            bench.store.heartbeat(Heartbeat(carl, 1, 5_000), refused)
            (row,) = [each for each in await bench.store.workers() if each.key == carl]
            check(row.abandoned == 1)

        self.on_bench(case)

    def test_W3_the_load_of_a_worker_is_what_is_in_its_name(self) -> None:
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

    def test_a_queue_is_told_with_what_waits_what_runs_and_since_when(self) -> None:
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

    def test_groups_may_be_handed_in_at_once(self) -> None:
        """A worker and a client of one process share a store."""

        async def case(bench: Bench) -> None:
            outcomes = await asyncio.gather(*(bench.one(start(f"i{number}")) for number in range(GROUPS)))
            numbers = {outcome.instance.number for outcome in outcomes if isinstance(outcome, StartedInstance)}
            check(len(numbers) == GROUPS)

        self.on_bench(case)
