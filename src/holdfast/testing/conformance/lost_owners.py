"""Instances whose code takes their owners down: how that is counted, and how it ends (G12)."""

from holdfast.core.events import CancelRequested
from holdfast.core.gates import MAX_LOST_OWNERS, SUSPECT_AFTER
from holdfast.core.liveness import WorkerKey
from holdfast.storage.contract import (
    Block,
    ClaimedInstances,
    ClaimInstances,
    Deliver,
    InstanceNumber,
    InstanceRecord,
    MarkWorkerLost,
    Release,
)
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, Rules, applied, check, start, turn

EVERYTHING = 1_000
CARL, DORA = WorkerKey("carl"), WorkerKey("dora")


class LostOwnerRules(Rules):
    """G12: the last words of lost owners."""

    def test_G12_an_owner_lost_in_the_middle_of_a_turn_is_counted_once_for_that_instance_only(self) -> None:
        async def case(bench: Bench) -> None:
            guilty = await bench.started("guilty", activities=0)
            for name in ("a", "b", "c"):
                await bench.started(name, activities=0)
            for _ in range(5):  # in batches, and by several janitors
                check(applied(await bench.one(_lose(ANNA, guilty.number, limit=1))))
            losses = {each.id: each.losses for each in await _claim_haunted(bench, BERT)}
            check(losses == {"guilty": 1, "a": 0, "b": 0, "c": 0})

        self.on_bench(case)

    def test_G12_a_worker_that_has_the_instance_no_more_or_lives_accuses_nobody(self) -> None:
        async def case(bench: Bench) -> None:
            elsewhere = await bench.started("a", owner=BERT, activities=0)
            alive = MarkWorkerLost(key=BERT, at_deadline=True, limit=EVERYTHING, culprit=elsewhere.number)
            check(not applied(await bench.one(alive)), "its lease was still running")
            check(applied(await bench.one(_lose(ANNA, elsewhere.number))))
            check(applied(await bench.one(_lose(BERT, None))))
            check([each.losses for each in await _claim_haunted(bench, WorkerKey("carl"))] == [0])

        self.on_bench(case)

    def test_G12_losses_in_a_row_are_counted_and_a_turn_starts_the_count_anew(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            for number in range(MAX_LOST_OWNERS):
                (record,) = await _claim_haunted(bench, WorkerKey(f"owner{number}"))
                check(record.losses == number)
                check(not await _claim_haunted(bench, BERT), "it is taken")
                check(applied(await bench.one(_lose(WorkerKey(f"owner{number}"), record.number))))
            (record,) = await _claim_haunted(bench, ANNA)
            check(record.losses == MAX_LOST_OWNERS)
            check(applied(await bench.one(turn(record))))
            check(applied(await bench.one(_lose(ANNA, record.number))))
            check([each.losses for each in await _claim_haunted(bench, BERT)] == [1])

        self.on_bench(case)

    def test_G12_what_took_its_owners_down_waits_for_another_build_and_starts_anew_there(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            for number in range(MAX_LOST_OWNERS):
                (record,) = await _claim_haunted(bench, WorkerKey(f"owner{number}"))
                check(applied(await bench.one(_lose(WorkerKey(f"owner{number}"), record.number))))
            (record,) = await _claim_haunted(bench, ANNA)
            block = Block(number=record.number, owner=ANNA, fence=record.fence, reason="it kills", build="old")
            check(applied(await bench.one(block)))
            check((await bench.instance("a")).blocked == "it kills")
            check(not await _claim_haunted(bench, BERT))
            check(not await _claim_haunted(bench, BERT, blocked=True), "a restart must not lose another worker to it")
            check(not await _claim_haunted(bench, BERT, blocked=True, build="old"))
            (record,) = await _claim_haunted(bench, BERT, blocked=True, build="new")
            check(record.losses == 0)

        self.on_bench(case)

    def test_G12_a_loss_that_nobody_can_explain_is_counted_once_for_everything_that_the_owner_had(self) -> None:
        async def case(bench: Bench) -> None:
            for name in ("a", "b", "c"):
                await bench.started(name, activities=0)
            elsewhere = await bench.started("d", owner=BERT, activities=0)
            for _ in range(5):  # in batches, and by several janitors
                check(applied(await bench.one(_lose_unexplained(ANNA, limit=1))))
            check({each.id: each.losses for each in await _claim_haunted(bench, CARL)} == {"a": 1, "b": 1, "c": 1})
            check(applied(await bench.one(_lose(BERT, None))))
            check([(each.number, each.losses) for each in await _claim_haunted(bench, CARL)] == [(elsewhere.number, 0)])

        self.on_bench(case)

    def test_G12_what_two_owners_were_lost_with_is_claimed_one_at_a_time(self) -> None:
        async def case(bench: Bench) -> None:
            await _under_suspicion(bench, "a", "b", "c")
            await bench.one(start("innocent"))
            (first, *others) = sorted(await _claim_haunted(bench, CARL), key=lambda each: -each.losses)
            check(first.losses == SUSPECT_AFTER)
            check([each.id for each in others] == ["innocent"], "only one of them, and whoever is not under suspicion")
            check(not await _claim_haunted(bench, CARL), "no other before this one is cleared")
            (second,) = await _claim_haunted(bench, DORA)
            check(
                (second.losses, second.number != first.number) == (SUSPECT_AFTER, True), "another owner tries another"
            )
            check(applied(await bench.one(turn(first))))
            (third,) = await _claim_haunted(bench, CARL)
            check({first.id, second.id, third.id} == {"a", "b", "c"})
            check(not await _claim_haunted(bench, DORA))

        self.on_bench(case)

    def test_G12_a_suspect_counts_within_the_limit_of_a_claim(self) -> None:
        async def case(bench: Bench) -> None:
            await _under_suspicion(bench, "a")
            await bench.one(start("innocent"))
            check([each.id for each in await _claim_haunted(bench, CARL, limit=1)] == ["a"])
            check([each.id for each in await _claim_haunted(bench, CARL, limit=1)] == ["innocent"])

        self.on_bench(case)

    def test_G12_the_next_loss_is_counted_for_the_one_that_was_tried_alone_and_for_no_other(self) -> None:
        async def case(bench: Bench) -> None:
            await _under_suspicion(bench, "a", "b")
            (tried,) = await _claim_haunted(bench, CARL)
            check(applied(await bench.one(_lose_unexplained(CARL))))
            found = [*await _claim_haunted(bench, DORA), *await _claim_haunted(bench, WorkerKey("emil"))]
            losses = {each.id: each.losses for each in found}
            check(losses == {"a": SUSPECT_AFTER, "b": SUSPECT_AFTER} | {tried.id: MAX_LOST_OWNERS})

        self.on_bench(case)

    def test_G12_a_suspect_that_was_let_go_of_is_tried_again_when_it_has_something_to_do(self) -> None:
        async def case(bench: Bench) -> None:
            await _under_suspicion(bench, "a", "b")
            (tried,) = await _claim_haunted(bench, CARL)
            check(applied(await bench.one(Release(number=tried.number, owner=CARL, fence=tried.fence))))
            (other,) = await _claim_haunted(bench, CARL)
            check(other.id != tried.id)
            check(applied(await bench.one(turn(other))))
            check(not await _claim_haunted(bench, CARL), "it has nothing to do")
            check(applied(await bench.one(_lose_unexplained(CARL))))
            await bench.one(Deliver(id=tried.id, event=CancelRequested(time_ms=0)))
            losses = {each.id: each.losses for each in await _claim_haunted(bench, DORA)}
            check(losses == {tried.id: SUSPECT_AFTER, other.id: 1}, "who does not have it is not lost with it")

        self.on_bench(case)


async def _under_suspicion(bench: Bench, *names: str) -> None:
    """Instances that two owners in a row were lost with, and nobody knows why."""
    for name in names:
        await bench.started(name, activities=0)
    for number in range(SUSPECT_AFTER):
        check(applied(await bench.one(_lose_unexplained(ANNA if number == 0 else WorkerKey(f"lost{number}")))))
        if number + 1 < SUSPECT_AFTER:
            check(len(await _claim_haunted(bench, WorkerKey(f"lost{number + 1}"))) == len(names))


def _lose_unexplained(key: WorkerKey, *, limit: int = EVERYTHING) -> MarkWorkerLost:
    return MarkWorkerLost(key=key, at_deadline=False, limit=limit, unexplained=True)


def _lose(key: WorkerKey, culprit: InstanceNumber | None, *, limit: int = EVERYTHING) -> MarkWorkerLost:
    return MarkWorkerLost(key=key, at_deadline=False, limit=limit, culprit=culprit)


async def _claim_haunted(
    bench: Bench, owner: WorkerKey, *, blocked: bool = False, build: str = "", limit: int = EVERYTHING
) -> list[InstanceRecord]:
    """Everything there is to claim, by a worker that is registered if it is not."""
    if owner not in bench.tokens:
        bench.beat(owner)
    claim = ClaimInstances(owner=owner, workflows=("flow",), limit=limit, blocked=blocked, build=build)
    outcome = await bench.one(claim)
    return outcome.instances if isinstance(outcome, ClaimedInstances) else []
