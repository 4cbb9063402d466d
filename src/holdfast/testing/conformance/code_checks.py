"""Rules of a store whose open instances are checked against code (R16, R17).

They apply to stores with the capability `CODE_CHECKS`; for other stores they are skipped.
"""

from collections.abc import Awaitable, Callable
from typing import cast
from unittest import SkipTest

from holdfast.compose import capabilities_of
from holdfast.storage.contract import CODE_CHECKS, CheckableStore
from holdfast.storage.members.instances import Block, Release
from holdfast.storage.records import LONGEST_BLOCKED, BlockedInstance, Fence, InstanceNumber
from holdfast.testing.conformance.bench import ANNA, Bench, Rules, applied, check, closing, completion, start


class CodeCheckRules(Rules):
    """What `holdfast replay`, `patches` and `blocked` read."""

    def on_checkable(self, case: Callable[[Bench, CheckableStore], Awaitable[None]]) -> None:
        """As `on_bench`, for a store that lists its open instances."""

        async def capable(bench: Bench) -> None:
            if CODE_CHECKS not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {CODE_CHECKS!r}")
            await case(bench, cast("CheckableStore", bench.store))

        self.on_bench(capable)

    def test_R16_the_numbers_of_open_instances_are_listed_in_pages(self) -> None:
        async def case(bench: Bench, store: CheckableStore) -> None:
            owned = await bench.started("owned")
            closed = await bench.started("closed")
            check(applied(await bench.one(closing(closed, completions=(completion(closed),)))))
            released = await bench.started("released")
            check(applied(await bench.one(Release(number=released.number, owner=ANNA, fence=released.fence))))
            await bench.one(start("requested"))
            requested = await bench.instance("requested")
            blocked = await bench.started("blocked")
            check(applied(await bench.one(_block(blocked.number, blocked.fence, "x", "b"))))
            expected = [record.number for record in (owned, released, requested, blocked)]
            check(await store.open_numbers(after=-1, limit=9) == expected)
            check(await store.open_numbers(after=-1, limit=2) == expected[:2])
            check(await store.open_numbers(after=expected[1], limit=9) == expected[2:])
            check(await store.open_numbers(after=expected[-1], limit=9) == [])

        self.on_checkable(case)

    def test_R17_blocked_instances_are_listed_with_their_builds(self) -> None:
        async def case(bench: Bench, store: CheckableStore) -> None:
            await bench.started("runs")
            first = await bench.started("a")
            second = await bench.started("b")
            for record, reason in ((first, "x" * 2 * LONGEST_BLOCKED), (second, "because")):
                check(applied(await bench.one(_block(record.number, record.fence, reason, "one"))))
            check(applied(await bench.one(_block(second.number, second.fence, "because", "two"))))
            listed = await store.blocked_instances(after=-1, limit=9)
            expected = [
                BlockedInstance(
                    number=record.number,
                    id=record.id,
                    workflow=record.workflow,
                    version=record.version,
                    reason=reason,
                    builds=builds,
                    created_at_ms=record.created_at_ms,
                )
                for record, reason, builds in (
                    (first, "x" * LONGEST_BLOCKED, ("one",)),
                    (second, "because", ("one", "two")),
                )
            ]
            check(listed == expected)
            check(await store.blocked_instances(after=-1, limit=1) == expected[:1])
            check(await store.blocked_instances(after=first.number, limit=9) == expected[1:])

        self.on_checkable(case)


def _block(number: int, fence: int, reason: str, build: str) -> Block:
    return Block(number=InstanceNumber(number), owner=ANNA, fence=Fence(fence), reason=reason, build=build)
