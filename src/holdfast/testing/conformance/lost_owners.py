"""Instances whose code takes their owners down: how that is counted, and how it ends (G12)."""

from holdfast.core.gates import MAX_LOST_OWNERS
from holdfast.core.liveness import WorkerKey
from holdfast.storage.contract import Block, ClaimedInstances, ClaimInstances, InstanceNumber, InstanceRecord, Lose
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, Rules, applied, check, start, turn

EVERYTHING = 1_000


class LostOwnerRules(Rules):
    """G12: the last words of lost owners."""

    def test_G12_an_owner_lost_in_the_middle_of_a_turn_is_counted_once_for_that_instance_only(self) -> None:
        async def case(bench: Bench) -> None:
            guilty = await bench.started("guilty", activities=0)
            for name in ("a", "b", "c"):
                await bench.started(name, activities=0)
            for _ in range(5):  # in batches, and by several janitors
                check(applied(await bench.one(_lose(ANNA, guilty.number, limit=1))))
            losses = {each.id: each.losses for each in await _claim(bench, BERT)}
            check(losses == {"guilty": 1, "a": 0, "b": 0, "c": 0})

        self.on_bench(case)

    def test_G12_a_worker_that_has_the_instance_no_more_or_lives_accuses_nobody(self) -> None:
        async def case(bench: Bench) -> None:
            elsewhere = await bench.started("a", owner=BERT, activities=0)
            alive = Lose(key=BERT, at_deadline=True, limit=EVERYTHING, culprit=elsewhere.number)
            check(not applied(await bench.one(alive)), "its lease was still running")
            check(applied(await bench.one(_lose(ANNA, elsewhere.number))))
            check(applied(await bench.one(_lose(BERT, None))))
            check([each.losses for each in await _claim(bench, WorkerKey("carl"))] == [0])

        self.on_bench(case)

    def test_G12_losses_in_a_row_are_counted_and_a_turn_starts_the_count_anew(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            for number in range(MAX_LOST_OWNERS):
                (record,) = await _claim(bench, WorkerKey(f"owner{number}"))
                check(record.losses == number)
                check(applied(await bench.one(_lose(WorkerKey(f"owner{number}"), record.number))))
            (record,) = await _claim(bench, ANNA)
            check(record.losses == MAX_LOST_OWNERS)
            check(applied(await bench.one(turn(record))))
            check(applied(await bench.one(_lose(ANNA, record.number))))
            check([each.losses for each in await _claim(bench, BERT)] == [1])

        self.on_bench(case)

    def test_G12_what_took_its_owners_down_waits_for_another_build_and_starts_anew_there(self) -> None:
        async def case(bench: Bench) -> None:
            await bench.one(start("a"))
            for number in range(MAX_LOST_OWNERS):
                (record,) = await _claim(bench, WorkerKey(f"owner{number}"))
                check(applied(await bench.one(_lose(WorkerKey(f"owner{number}"), record.number))))
            (record,) = await _claim(bench, ANNA)
            block = Block(number=record.number, owner=ANNA, fence=record.fence, reason="it kills", build="old")
            check(applied(await bench.one(block)))
            check((await bench.instance("a")).blocked == "it kills")
            check(not await _claim(bench, BERT))
            check(not await _claim(bench, BERT, blocked=True), "a restart must not lose another worker to it")
            check(not await _claim(bench, BERT, blocked=True, build="old"))
            (record,) = await _claim(bench, BERT, blocked=True, build="new")
            check(record.losses == 0)

        self.on_bench(case)


def _lose(key: WorkerKey, culprit: InstanceNumber | None, *, limit: int = EVERYTHING) -> Lose:
    return Lose(key=key, at_deadline=False, limit=limit, culprit=culprit)


async def _claim(bench: Bench, owner: WorkerKey, *, blocked: bool = False, build: str = "") -> list[InstanceRecord]:
    """Everything there is to claim, by a worker that is registered if it is not."""
    if owner not in bench.tokens:
        bench.beat(owner)
    claim = ClaimInstances(owner=owner, workflows=("flow",), limit=EVERYTHING, blocked=blocked, build=build)
    outcome = await bench.one(claim)
    return outcome.instances if isinstance(outcome, ClaimedInstances) else []
