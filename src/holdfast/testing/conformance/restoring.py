"""Rules of a restore (R2, R3): fences, the counter of numbers, worker keys and exec ids have new values after it.

They apply to stores with the capability `RESTORE`; for other stores they are skipped.
"""

from collections.abc import Awaitable, Callable
from typing import cast
from unittest import SkipTest

from holdfast.compose import capabilities_of
from holdfast.core.activity_events import CheckedReport, ReportKind
from holdfast.core.activity_options import ActivityOptions, ExternalOptions
from holdfast.core.leases import Renewed, WorkerKey
from holdfast.core.lifecycle import AttemptState
from holdfast.storage.contract import RESTORE, OpenContractStore, RestorableStore
from holdfast.storage.members.contract_rows import InsertReport
from holdfast.storage.members.instances import ClaimInstances, Terminate
from holdfast.storage.members.outcomes import ClaimedInstances, Rejected, RestoredInstances
from holdfast.storage.members.restoring import NUMBERS_LIFTED, LiftNumbers, RestoreInstances
from holdfast.storage.members.row_handling import HandleReports
from holdfast.storage.members.workers import MarkWorkerLost
from holdfast.storage.records import InstanceNumber, InstanceRecord, OfferRecord, RestoreCounts
from holdfast.testing.conformance.bench import (
    ANNA,
    BERT,
    Bench,
    applied,
    check,
    closing,
    completion,
    first_turn,
    new_attempt,
    start,
    turn,
)
from holdfast.testing.conformance.contract_rows import ContractRowRules

FIRST = InstanceNumber(0)
OPTIONS = ActivityOptions(
    queue="gpu",
    start_to_close_ms=60_000,
    external=ExternalOptions(claim_timeout_ms=500),
    max_claims=2,
    rerun_after_loss=True,
)


async def end_keys(bench: Bench) -> None:
    """End the keys of both workers, as the first step of a restore."""
    for key in (ANNA, BERT):
        check(applied(await bench.one(MarkWorkerLost(key=key, at_deadline=False, limit=99, is_clean=True))))


async def restore(bench: Bench, after: InstanceNumber = FIRST, limit: int = 99) -> RestoredInstances:
    outcome = await bench.one(RestoreInstances(after=after, limit=limit))
    check(isinstance(outcome, RestoredInstances), f"the restore was not applied: {outcome}")
    return cast("RestoredInstances", outcome)


async def offered(bench: Bench, store: OpenContractStore, instance_id: str) -> tuple[InstanceRecord, OfferRecord]:
    """An instance that waits for one external attempt, and its offer."""
    record = await bench.started(instance_id, activities=0)
    attempt = new_attempt(0, options=OPTIONS, queue="gpu", name="train", is_external=True)
    check(applied(await bench.one(turn(record, attempts=(attempt,)))))
    [offer] = [each for each in await store.open_activities(limit=9) if each.attempt.instance_id == instance_id]
    return record, offer


async def insert(bench: Bench, exec_id: str, kind: ReportKind, claim: str = "one") -> None:
    member = InsertReport(event_id=f"{exec_id}-{kind}", activity_exec_id=exec_id, transition=kind, claim=claim)
    check(applied(await bench.one(member)))


async def handle(bench: Bench, store: OpenContractStore, exec_id: str) -> list[str]:
    """Handle the reports under an exec id as a worker does. Returns their states."""
    offer = await store.read_offer(exec_id)
    rows = await store.reports_of(exec_id, limit=9, largest=999)
    reports = tuple(
        CheckedReport(row=row.row, event_id=row.event_id, kind=ReportKind(row.transition), claim=row.claim)
        for row in rows
    )
    await bench.one(HandleReports(exec_id=exec_id, key=None if offer is None else offer.attempt.key, reports=reports))
    answers = [await store.read_report(row.event_id) for row in rows]
    return [answer.state for answer in answers if answer is not None]


class RestoreRules(ContractRowRules):
    """What a restore changes, and what it leaves."""

    def on_restorable(self, case: Callable[[Bench, RestorableStore], Awaitable[None]]) -> None:
        """As `on_bench`, for a store that can be restored."""

        async def capable(bench: Bench) -> None:
            if RESTORE not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {RESTORE!r}")
            await case(bench, cast("RestorableStore", bench.store))

        self.on_bench(capable)

    def test_R2_a_restore_is_rejected_while_a_worker_is_active(self) -> None:
        async def case(bench: Bench, _: RestorableStore) -> None:
            before = await bench.started("a")
            members = (RestoreInstances(after=FIRST, limit=9), LiftNumbers())
            check(all(isinstance(each, Rejected) for each in await bench.commit(*members)))
            check(await bench.instance("a") == before, "a rejected member changes nothing")
            await bench.started("b")
            check((await bench.instance("b")).number < NUMBERS_LIFTED)
            forced = (RestoreInstances(after=FIRST, limit=9, is_forced=True), LiftNumbers(is_forced=True))
            check(not any(isinstance(each, Rejected) for each in await bench.commit(*forced)))
            check((await bench.instance("a")).fence == before.fence + NUMBERS_LIFTED)

        self.on_restorable(case)

    def test_R2_the_numbers_of_the_lost_time_do_not_return(self) -> None:
        async def case(bench: Bench, _: RestorableStore) -> None:
            await end_keys(bench)
            check(applied(await bench.one(LiftNumbers())))
            await bench.one(start("a"))
            first = (await bench.instance("a")).number
            check(first > NUMBERS_LIFTED, "a store that never had an instance has lost some, too")
            check(applied(await bench.one(LiftNumbers())))
            await bench.one(start("b"))
            check((await bench.instance("b")).number > first + NUMBERS_LIFTED)
            check((await bench.instance("a")).number == first)

        self.on_restorable(case)

    def test_R2_the_fences_of_open_instances_are_raised_in_batches_and_again_without_harm(self) -> None:
        async def case(bench: Bench, store: RestorableStore) -> None:
            records = [await bench.started(f"a{number}") for number in range(5)]
            check(applied(await bench.one(closing(records[1], completions=(completion(records[1]),)))))
            await end_keys(bench)
            check(await store.count_restored() == RestoreCounts(instances=4, external_attempts=0))
            first = await restore(bench, limit=2)
            check((first.fences, first.last) == (2, records[2].number))
            second = await restore(bench, cast("InstanceNumber", first.last), limit=2)
            check((second.fences, second.last) == (2, records[4].number))
            last = await restore(bench, cast("InstanceNumber", second.last), limit=2)
            check((last.fences, last.last) == (0, None))
            fences = [(await bench.instance(each.id)).fence - each.fence for each in records]
            check(fences == [NUMBERS_LIFTED, 0, NUMBERS_LIFTED, NUMBERS_LIFTED, NUMBERS_LIFTED])
            await restore(bench)
            check((await bench.instance("a0")).fence == records[0].fence + 2 * NUMBERS_LIFTED)

        self.on_restorable(case)

    def test_R2_a_worker_of_the_lost_time_changes_nothing_and_another_continues(self) -> None:
        async def case(bench: Bench, store: RestorableStore) -> None:
            stale = await bench.started("a")
            await end_keys(bench)
            await restore(bench)
            stale_members = (turn(stale), completion(stale))
            check(all(isinstance(each, Rejected) for each in await bench.commit(*stale_members)))
            bench.tokens.clear()
            check(not isinstance(bench.beat(ANNA), Renewed), "an ended key is never revived (W5)")
            carl = WorkerKey("carl")
            bench.beat(carl)
            claimed = await bench.one(ClaimInstances(owner=carl, workflows=("flow",), limit=9))
            check(isinstance(claimed, ClaimedInstances) and [each.id for each in claimed.instances] == ["a"])
            record = await bench.instance("a")
            check(record.fence == stale.fence + NUMBERS_LIFTED + 1)
            check(record.losses == 0, "a restore is no fault of the code (G12)")
            check(applied(await bench.one(turn(record, events=turn(stale).events))))
            [ended, following] = await store.read_attempts(record.number, 1)
            check((ended.state, following.state, following.losses) == ("TIMED_OUT", "READY", 0))

        self.on_restorable(case)

    def test_R3_the_attempts_that_run_are_listed_page_by_page(self) -> None:
        async def case(bench: Bench, store: RestorableStore) -> None:
            record = await bench.started("a", activities=2)
            await bench.one(start("b", first=first_turn(BERT)))
            await bench.one(turn(record, attempts=(new_attempt(5),)))
            await bench.one(Terminate(id=(await bench.instance("b")).id))
            page = await store.running_attempts(after=None, limit=2)
            check(
                [(each.instance_id, each.key.activity, each.owner) for each in page] == [("a", 0, ANNA), ("a", 1, ANNA)]
            )
            [rest] = await store.running_attempts(after=page[-1].key, limit=2)
            check((rest.instance_id, rest.workflow, rest.state) == ("b", "flow", "CANCELLED_RUNNING"))
            await end_keys(bench)
            check(await store.running_attempts(after=None, limit=9) == [])

        self.on_restorable(case)

    def test_R2_a_ready_external_attempt_has_a_new_exec_id(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            _, old = await offered(bench, store, "a")
            await end_keys(bench)
            check((await restore(bench)).external_attempts == 1)
            [offer] = await store.open_activities(limit=9)
            check(offer.exec_id != old.exec_id and offer.entry == 1)
            check(await store.read_offer(old.exec_id) is None)
            await insert(bench, old.exec_id, ReportKind.RUNNING)
            check(await handle(bench, store, old.exec_id) == ["REFUSED"])
            await insert(bench, offer.exec_id, ReportKind.RUNNING)
            check(await handle(bench, store, offer.exec_id) == ["APPLIED"])

        self.on_contract(case)

    def test_R2_an_external_attempt_that_ran_is_offered_again_without_its_claim(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            record, old = await offered(bench, store, "a")
            await insert(bench, old.exec_id, ReportKind.RUNNING)
            check(await handle(bench, store, old.exec_id) == ["APPLIED"])
            await end_keys(bench)
            check((await restore(bench)).external_attempts == 1)
            ended, following = await bench.store.read_attempts(record.number, 1)
            check((ended.state, following.state, following.losses) == ("TIMED_OUT", "READY", 0))
            [offer] = await store.open_activities(limit=9)
            check((offer.attempt.key.attempt, offer.entry) == (2, 1))
            await insert(bench, old.exec_id, ReportKind.COMPLETED)
            check(await handle(bench, store, old.exec_id) == ["REFUSED"])
            await insert(bench, offer.exec_id, ReportKind.RUNNING, claim="two")
            check(await handle(bench, store, offer.exec_id) == ["APPLIED"])

        self.on_contract(case)

    def test_R2_a_claim_that_did_not_run_yet_is_released(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            _, old = await offered(bench, store, "a")
            await insert(bench, old.exec_id, ReportKind.QUEUED)
            check(await handle(bench, store, old.exec_id) == ["APPLIED"])
            await end_keys(bench)
            await restore(bench)
            [offer] = await store.open_activities(limit=9)
            check((offer.entry, offer.attempt.state) == (2, AttemptState.READY))
            check(offer.exec_id != old.exec_id)

        self.on_contract(case)

    def test_R3_reports_that_were_not_handled_before_the_backup_count(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            record, old = await offered(bench, store, "a")
            await insert(bench, old.exec_id, ReportKind.RUNNING)
            check(await handle(bench, store, old.exec_id) == ["APPLIED"])
            await insert(bench, old.exec_id, ReportKind.COMPLETED)
            await end_keys(bench)
            await restore(bench)
            [running] = await bench.store.read_attempts(record.number, 1)
            check(running.state == "RUNNING", "its reports decide about it first (C10)")
            renamed = await store.current_offer(running.key)
            check(renamed is not None and renamed != old.exec_id)
            check(await store.reports_of(old.exec_id, limit=9, largest=999) == [])
            check(await handle(bench, store, str(renamed)) == ["APPLIED"])
            check((await bench.store.read_attempts(record.number, 1))[0].state == "COMPLETED")

        self.on_contract(case)

    def test_R2_an_external_attempt_of_a_closed_instance_that_was_asked_to_stop_ends(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            record, old = await offered(bench, store, "a")
            await insert(bench, old.exec_id, ReportKind.RUNNING)
            check(await handle(bench, store, old.exec_id) == ["APPLIED"])
            await bench.one(Terminate(id=record.id))
            await end_keys(bench)
            outcome = await restore(bench)
            check((outcome.fences, outcome.external_attempts) == (0, 1))
            check([each.state for each in await bench.store.read_attempts(record.number, 1)] == ["CANCELLED"])

        self.on_contract(case)
