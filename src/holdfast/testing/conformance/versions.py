"""Rules of versions: which instances a worker claims (R8), and how an instance gets its version (R6, R7)."""

from collections.abc import Sequence

import msgspec

from holdfast.core.leases import SUSPECT_AFTER, WorkerKey
from holdfast.storage.contract import COUNTS, counting
from holdfast.storage.members.instances import Block, ClaimInstances, RetryBlocked, SaveFlow
from holdfast.storage.members.messages import AskQuery, ClaimQueries, QueryRow
from holdfast.storage.members.outcomes import ClaimedInstances, ClaimedQueries, StartedInstance
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import Fence, InstanceId, VersionCount
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    FIRST_TIME_MS,
    Bench,
    Rules,
    applied,
    check,
    first_turn,
    start,
    turn,
)
from holdfast.testing.conformance.instances import continuing

WORKFLOW = "flow"
ALL = ("", "1", "2", "10", "beta")


def code(*versions: str) -> tuple[tuple[str, str], ...]:
    """The versions of a worker."""
    return tuple((WORKFLOW, version) for version in versions)


async def claimed(bench: Bench, *versions: str, workflow: str = WORKFLOW, limit: int = 10) -> list[str]:
    """The ids of the instances that a worker with these versions claims; without any it has a flow."""
    claim = ClaimInstances(owner=BERT, workflows=(workflow,), versions=code(*versions), limit=limit)
    outcome = await bench.one(claim)
    return sorted(each.id for each in outcome.instances) if isinstance(outcome, ClaimedInstances) else []


async def block(bench: Bench, name: str, build: str) -> None:
    """Block an instance that BERT owns."""
    record = await bench.instance(name)
    member = Block(number=record.number, owner=BERT, fence=record.fence, reason="x", build=build)
    check(applied(await bench.one(member)))


class VersionRules(Rules):
    """R6-R8."""

    def test_R8_a_worker_claims_the_versions_that_it_has_and_instances_without_one(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.commit(*(start(f"v{version}", version=version) for version in ALL), start("open", version=None))
            check(await claimed(bench, "3") == ["open"], "any version may take an instance that has chosen none")
            check(await claimed(bench, "1", "beta") == ["v1", "vbeta"])
            check(await claimed(bench, "1", "3") == [])
            check(await claimed(bench, "") == ["v"], "no version is a version of its own")
            check(await claimed(bench, "2", "10", limit=1) != [])
            check(len(await claimed(bench, "2", "10")) == 1)

        self.on_bench(case)

    def test_R8_the_versions_of_another_workflow_do_not_count(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.commit(start("a", version="1"), start("b", version="1", workflow="other"))
            claim = ClaimInstances(
                owner=BERT, workflows=(WORKFLOW, "other"), versions=(("other", "1"), (WORKFLOW, "2")), limit=10
            )
            outcome = await bench.one(claim)
            check(isinstance(outcome, ClaimedInstances) and [each.id for each in outcome.instances] == ["b"])

        self.on_bench(case)

    def test_R8_a_worker_with_a_flow_claims_all_its_saved_versions(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.commit(
                SaveFlow(hash="x", name=WORKFLOW, version="1", definition=b"1"),
                SaveFlow(hash="y", name=WORKFLOW, version="2", definition=b"2"),
                SaveFlow(hash="z", name="other", version="3", definition=b"3"),
                *(start(f"v{version}", version=version) for version in ("", "1", "2", "3")),
                start("open", version=None),
            )
            check(await claimed(bench) == ["open", "v", "v1", "v2"], "and those of releases that chose none")
            check(await claimed(bench, workflow="other") == [])

        self.on_bench(case)

    def test_R8_the_next_due_time_is_that_of_its_versions(self) -> None:
        async def case(bench: Bench) -> None:
            later = bench.clock.now_ms + 50
            await bench.commit(start("a", version="1"), start("b", version="2", start_at_ms=later))

            async def due(*versions: str) -> int | None:
                found = await bench.store.next_due(workflows=(WORKFLOW,), versions=code(*versions), queues=(), names=())
                return found.instance_ms

            check(await due("1", "2") == 0)
            check(await due("2") == later)
            check(await due("3") is None)

        self.on_bench(case)

    def test_R8_a_blocked_instance_is_tried_by_a_worker_with_its_version(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a", version="1"))
            check(await claimed(bench, "1") == ["a"])
            await block(bench, "a", "b")

            async def tried(version: str, build: str) -> bool:
                has = await bench.store.has_blocked((WORKFLOW,), build, code(version))
                claim = ClaimInstances(
                    owner=ANNA, workflows=(WORKFLOW,), versions=code(version), limit=1, blocked=True, build=build
                )
                outcome = await bench.one(claim)
                check(isinstance(outcome, ClaimedInstances) and bool(outcome.instances) == has)
                return has

            check(not await tried("2", "c"))
            check(not await tried("1", "b"))
            check(await tried("1", "c"))

        self.on_bench(case)

    def test_R8_a_retried_instance_waits_for_its_version(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a", version="1"))
            check(await claimed(bench, "1") == ["a"])
            await block(bench, "a", "b")
            await bench.one(RetryBlocked(id=InstanceId("a")))
            check(await claimed(bench, "2") == [])
            check(await claimed(bench, "1") == ["a"])

        self.on_bench(case)

    def test_R8_a_suspect_waits_for_its_version(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a", version="1"))
            for name in ("carl", "dora"):
                key = WorkerKey(name)
                bench.beat(key)
                claim = ClaimInstances(owner=key, workflows=(WORKFLOW,), versions=code("1"), limit=1)
                check(isinstance(await bench.one(claim), ClaimedInstances))
                culprit = (await bench.instance("a")).number
                lost = MarkWorkerLost(key=key, at_deadline=False, limit=10, culprit=culprit)
                check(applied(await bench.one(lost)))
            check((await bench.instance("a")).losses == SUSPECT_AFTER)
            check(await claimed(bench, "2") == [])
            check(await claimed(bench, "1") == ["a"])

        self.on_bench(case)

    def test_R8_a_query_is_claimed_by_the_owner_or_by_a_worker_with_the_version(self) -> None:
        async def case(bench: Bench) -> None:
            released = start("a", version="1", first=first_turn(activities=0, release=True))
            await bench.commit(released, start("b", version="1", first=first_turn()))
            for name in ("a", "b"):
                record = await bench.instance(name)
                query = QueryRow(id=f"q{name}", number=record.number, name="status", input=b"[]")
                check(applied(await bench.one(AskQuery(query=query, expires_at_ms=FIRST_TIME_MS + 10_000))))

            async def taken(owner: object, *versions: str) -> list[str]:
                take = ClaimQueries(
                    owner=ANNA if owner == ANNA else BERT, workflows=(WORKFLOW,), versions=code(*versions), limit=10
                )
                outcome = await bench.one(take)
                return [query.id for query in outcome.queries] if isinstance(outcome, ClaimedQueries) else []

            check(await taken(BERT, "2") == [])
            check(await taken(ANNA, "2") == ["qb"], "its owner has the code in memory")
            check(await taken(BERT, "1") == ["qa"])

        self.on_bench(case)

    def test_R6_the_first_turn_stores_the_version_that_it_chose(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a", version=None))
            check((await bench.instance("a")).version is None)
            check(await claimed(bench, "2") == ["a"])
            record = await bench.instance("a")
            check(record.version is None, "a claim chooses none: its turn may fail")
            stale = turn(record, version="3", fence=Fence(record.fence - 1))
            check(not applied(await bench.one(stale)))
            check((await bench.instance("a")).version is None, "a rejected turn chooses none")
            check(applied(await bench.one(turn(record, version="2", release=True))))
            check((await bench.instance("a")).version == "2")
            await bench.one(start("b", version=None))
            check(await claimed(bench, "1") == ["b"], "the first one is for version 2 from now on")

        self.on_bench(case)

    def test_R6_a_start_with_its_first_turn_has_its_version(self) -> None:
        async def case(bench: Bench) -> None:
            outcome = await bench.one(start("a", version="2", first=first_turn()))
            check(isinstance(outcome, StartedInstance) and outcome.instance.version == "2")
            check((await bench.instance("a")).version == "2")

        self.on_bench(case)

    def test_G3_the_version_plays_no_part_in_a_repeated_start(self) -> None:
        async def case(bench: Bench) -> None:
            first = await bench.one(start("a", version="1"))
            for version in ("2", "", None):
                again = await bench.one(start("a", version=version))
                check(isinstance(again, StartedInstance) and isinstance(first, StartedInstance))
                check(not again.created and again.instance.number == first.instance.number)  # type: ignore[union-attr]
            check((await bench.instance("a")).version == "1")

        self.on_bench(case)

    def test_R7_the_next_execution_stays_on_its_version_or_chooses_again(self) -> None:
        async def case(bench: Bench) -> None:
            for name in ("a", "b"):
                await bench.one(start(name, version="1", first=first_turn(activities=0)))
            stays = continuing(await bench.instance("a"), release=True)
            moves = continuing(await bench.instance("b"), release=True)
            effects = moves.effects
            if effects is None or effects.next is None:
                raise AssertionError
            newest = msgspec.structs.replace(effects.next, is_on_newest=True)
            moves = msgspec.structs.replace(moves, effects=msgspec.structs.replace(effects, next=newest))
            for each in (stays, moves):
                check(applied(await bench.one(each)))
            check([(await bench.instance(name)).version for name in ("a", "b")] == ["1", None])
            check(await claimed(bench, "2") == ["b"])
            check(await claimed(bench, "1") == ["a"])

        self.on_bench(case)

    def test_R9_open_instances_are_counted_by_version_and_owner(self) -> None:
        async def case(bench: Bench) -> None:
            if COUNTS not in getattr(bench.store, "capabilities", ()):
                return
            store = counting(bench.store)
            await bench.commit(
                start("a", version="1"),
                start("b", version="1"),
                start("c", version=None),
                start("d", version="1", first=first_turn()),
            )
            await bench.one(start("e", version="2", first=first_turn(BERT)))
            await block(bench, "e", "b1")
            expected = [("1", None, 2), (None, None, 1), ("1", ANNA, 1), ("2", None, 1)]
            check(_counted(await store.count_versions(10)) == {(WORKFLOW, *each) for each in expected})
            check([each.instances for each in await store.count_versions(1)] == [2])
            check(await store.count_blocked_by(10) == {"b1": 1})

        self.on_bench(case)


def _counted(groups: Sequence[VersionCount]) -> set[tuple[str, str | None, str | None, int]]:
    return {(each.workflow, each.version, each.owner, each.instances) for each in groups}
