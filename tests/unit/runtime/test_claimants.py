"""The workers that wake-ups name: one after the other, of those that serve the workflow (C15)."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.core.leases import WorkerKey
from holdfast.errors import StoreError
from holdfast.runtime.claimants import REFRESH_SECONDS, Claimants
from holdfast.storage.records import WorkerRow
from holdfast.storage.wakeups import NOTHING, Wakeup

NOW_MS = 1_000
FLOW = Wakeup(workflows=frozenset({"flow"}))


def row(key: str, *workflows: str, state: str = "ACTIVE", deadline_ms: int = NOW_MS + 1) -> WorkerRow:
    return WorkerRow(
        key=WorkerKey(key),
        state=state,
        token=1,
        deadline_ms=deadline_ms,
        lease_ms=1,
        host=b"",
        queues="[]",
        build="",
        registered_at_ms=0,
        workflows=json.dumps(workflows),
    )


class Workers:
    """A store that has nothing but workers."""

    def __init__(self, *rows: WorkerRow) -> None:
        self.rows: Sequence[WorkerRow] = rows
        self.reads = 0
        self.is_failing = False
        self.elapsed = 0.0

    async def workers(self) -> Sequence[WorkerRow]:
        self.reads += 1
        if self.is_failing:
            raise StoreError("away")
        return self.rows

    def now_ms(self) -> int:
        return NOW_MS


def with_claimants(workers: Any, case: Callable[[Claimants], Awaitable[None]]) -> None:
    """Claimants that have read the workers."""

    async def run() -> None:
        claimants = Claimants(workers, lambda: workers.elapsed)
        assert claimants.named(FLOW) == FLOW, "nothing is known yet"
        await asyncio.sleep(0)
        assert workers.reads == 1
        await case(claimants)
        claimants.stop()

    asyncio.run(run())


def named(claimants: Claimants, times: int, wakeup: Wakeup = FLOW) -> list[set[str]]:
    return [set(claimants.named(wakeup).claimants) for _ in range(times)]


def test_C15_the_workers_of_a_workflow_are_named_in_turn() -> None:
    async def case(claimants: Claimants) -> None:
        found = named(claimants, 6)
        assert found[:3] == found[3:]
        assert sorted(map(sorted, found[:3])) == [["a"], ["b"], ["c"]]
        assert claimants.named(FLOW).workflows == FLOW.workflows

    with_claimants(Workers(row("c", "flow"), row("a", "flow", "other"), row("b", "flow")), case)


def test_C15_a_worker_that_cannot_claim_is_not_named() -> None:
    async def case(claimants: Claimants) -> None:
        assert set().union(*named(claimants, 6)) == {"a", "b"}

    gone = row("gone", "flow", state="INACTIVE")
    dead = row("dead", "flow", deadline_ms=NOW_MS)
    with_claimants(Workers(row("a", "flow"), gone, dead, row("other", "other"), row("b", "flow")), case)


def test_C15_none_is_named_where_one_worker_or_an_unknown_one_serves_a_workflow() -> None:
    both = Wakeup(workflows=frozenset({"flow", "other"}))

    async def case(claimants: Claimants) -> None:
        assert claimants.named(both) == both
        queue = Wakeup(queues=frozenset({"q"}))
        assert claimants.named(queue) is queue
        assert claimants.named(NOTHING) is NOTHING
        assert claimants.named(FLOW).claimants

    with_claimants(Workers(row("a", "flow", "other"), row("b", "flow")), case)


def test_C15_a_worker_is_named_for_each_workflow_of_a_wake_up() -> None:
    both = Wakeup(workflows=frozenset({"flow", "other"}))

    async def case(claimants: Claimants) -> None:
        for found in named(claimants, 4, both):
            assert found & {"a", "b"}
            assert found & {"c", "d"}

    with_claimants(Workers(row("a", "flow"), row("b", "flow"), row("c", "other"), row("d", "other")), case)


def test_C15_the_workers_are_read_again_after_a_while_and_not_before() -> None:
    workers = Workers(row("a", "flow"))

    async def case(claimants: Claimants) -> None:
        workers.rows = [row("a", "flow"), row("b", "flow")]
        workers.elapsed = REFRESH_SECONDS * 1000
        assert named(claimants, 3) == [set()] * 3
        await asyncio.sleep(0)
        assert workers.reads == 1
        workers.elapsed += 1
        named(claimants, 3)
        await asyncio.sleep(0)
        assert workers.reads == 2
        assert set().union(*named(claimants, 2)) == {"a", "b"}

    with_claimants(workers, case)


def test_C15_none_is_named_while_the_workers_cannot_be_read() -> None:
    workers = Workers(row("a", "flow"), row("b", "flow"))

    async def case(claimants: Claimants) -> None:
        assert all(named(claimants, 2))
        workers.is_failing = True
        workers.elapsed = REFRESH_SECONDS * 1000 + 1
        claimants.named(FLOW)
        await asyncio.sleep(0)
        assert named(claimants, 2) == [set(), set()]
        assert workers.reads == 2

    with_claimants(workers, case)
