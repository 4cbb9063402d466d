"""Rules of launchers (C4, L2, L8, A2, A5, W6): external attempts are QUEUED in the name of a worker, with a claim.

They apply to stores with the capability `OPEN_CONTRACT`; for other stores they are skipped.
"""

from typing import Any

import msgspec

from holdfast.core.activity_options import ActivityOptions, ExternalOptions
from holdfast.core.leases import WorkerKey
from holdfast.core.ledger import SEED, enter_leg1
from holdfast.core.lifecycle import AttemptEvent, AttemptState
from holdfast.storage.attempt_endings import transition
from holdfast.storage.contract import OpenContractStore
from holdfast.storage.members.attempts import ClaimAttempts, OpenNextAttempt
from holdfast.storage.members.contract_rows import InsertReport
from holdfast.storage.members.outcomes import Applied, ClaimedAttempts, QueuedAttempts, Rejected
from holdfast.storage.members.row_handling import QueueAttempts
from holdfast.storage.members.workers import MarkWorkerLost, ReleaseUnknown
from holdfast.storage.records import AttemptRecord, InstanceRecord, NewAttempt, OfferRecord, OwnedAttempt
from holdfast.testing.conformance.bench import ANNA, BERT, Bench, applied, check, new_attempt, turn
from holdfast.testing.conformance.contract_rows import ContractRowRules

ENTERED = enter_leg1(SEED)[0]
RERUN = enter_leg1(ENTERED)[0]
OPTIONS = ActivityOptions(
    queue="gpu", start_to_close_ms=60_000, external=ExternalOptions(claim_timeout_ms=500), max_claims=2
)


def external(activity: int, options: ActivityOptions = OPTIONS, **more: Any) -> NewAttempt:
    """A READY attempt that is offered to executors."""
    fields: dict[str, Any] = {"queue": "gpu", "name": "train", "is_external": True}
    return new_attempt(activity, options=options, **(fields | more))


def queue(*claims: str, owner: WorkerKey = ANNA, **more: Any) -> QueueAttempts:
    fields: dict[str, Any] = {"queue": "gpu", "names": ("train",), "claims": claims}
    return QueueAttempts(owner=owner, **(fields | more))


async def queued(bench: Bench, member: QueueAttempts) -> list[OfferRecord]:
    outcome = await bench.one(member)
    return outcome.offers if isinstance(outcome, QueuedAttempts) else []


class LaunchRules(ContractRowRules):
    """Claims of launchers, and their release."""

    async def _rows(self, bench: Bench, record: InstanceRecord) -> list[AttemptRecord]:
        return await bench.store.read_attempts(record.number, 1)

    def test_L2_a_launcher_claims_external_attempts_once_in_the_order_they_became_available(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            record = await bench.started("a", activities=0)
            now_ms = bench.clock.now_ms
            ready = tuple(external(number, available_at_ms=now_ms - number) for number in range(3))
            check(applied(await bench.one(turn(record, attempts=ready))))
            offered = {offer.attempt.key: offer.exec_id for offer in await store.open_activities(limit=9)}
            first = await queued(bench, queue("one", "two"))
            second = await queued(bench, queue("three", "four", owner=BERT))
            check([offer.attempt.key.activity for offer in (*first, *second)] == [2, 1, 0])
            for offer, owner in zip((*first, *second), (ANNA, ANNA, BERT), strict=True):
                attempt = offer.attempt
                check(offer.exec_id == offered[attempt.key] and offer.is_current and offer.entry == 1)
                check((attempt.state, attempt.ledger, attempt.owner) == ("QUEUED", ENTERED, owner))
                check((attempt.started_at_ms, attempt.heartbeat_at_ms) == (None, now_ms))
                check(attempt.expires_at_ms == now_ms + 500, "the claim timeout begins with QUEUED")
                check((attempt.instance_id, attempt.workflow) == ("a", "flow"))
                check(await store.read_offer(offer.exec_id) == offer)
            check(await store.open_activities(limit=9) == [])
            bench.clock.now_ms += 500
            check(len(await bench.store.expired_attempts(9)) == 3)

        self.on_contract(case)

    def test_C4_a_launcher_claims_only_what_is_external_available_and_its_own(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            record = await bench.started("a", activities=0)
            later_ms = bench.clock.now_ms + 50
            ready = (
                external(0, available_at_ms=later_ms),
                external(1, name="draw"),
                external(2, queue="cpu"),
                new_attempt(3, name="train", queue="gpu"),
            )
            check(applied(await bench.one(turn(record, attempts=ready))))
            check(await bench.one(queue("one", "two", "three")) == QueuedAttempts(offers=[]))
            check([str(each.state) for each in await self._rows(bench, record)] == ["READY"] * 4)
            claim = ClaimAttempts(owner=ANNA, queues=("gpu", "cpu"), names=("train", "draw"), limit=9)
            taken = await bench.one(claim)
            check(isinstance(taken, ClaimedAttempts) and [each.key.activity for each in taken.attempts] == [3])
            bench.clock.now_ms = later_ms
            check([offer.attempt.key.activity for offer in await queued(bench, queue("one"))] == [0])
            check(len(await store.open_activities(limit=9)) == 2)

        self.on_contract(case)

    def test_W6_a_lost_launcher_releases_its_claim_under_a_new_id_until_no_entry_is_left(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            record = await bench.started("a", owner=BERT, activities=0)
            check(applied(await bench.one(turn(record, owner=BERT, attempts=(external(0),)))))
            [old] = await queued(bench, queue("one"))
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=9))))
            [offer] = await store.open_activities(limit=9)
            check((offer.entry, offer.attempt.ledger, offer.attempt.owner) == (2, ENTERED, None))
            check(offer.exec_id != old.exec_id)
            stale = await store.read_offer(old.exec_id)
            check(stale is not None and not stale.is_current)
            [again] = await queued(bench, queue("two", owner=BERT))
            check((again.exec_id, again.attempt.ledger) == (offer.exec_id, RERUN))
            owned = OwnedAttempt(key=again.attempt.key, state=AttemptState.QUEUED, ledger=RERUN)
            check(applied(await bench.one(ReleaseUnknown(owner=BERT, attempts=(owned,)))))
            check((await self._rows(bench, record))[0].state == "FAILED", "there is no third entry (L8)")
            check(await store.open_activities(limit=9) == [])

        self.on_contract(case)

    def test_A5_a_claim_with_a_report_that_was_not_handled_is_not_released(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            del store
            record = await bench.started("a", owner=BERT, activities=0)
            check(applied(await bench.one(turn(record, owner=BERT, attempts=(external(0), external(1))))))
            reported, silent = await queued(bench, queue("one", "two"))
            report = InsertReport(event_id="e", activity_exec_id=reported.exec_id, transition="RUNNING", claim="one")
            check(applied(await bench.one(report)))
            lost = MarkWorkerLost(key=ANNA, at_deadline=False, limit=9)
            check(await bench.one(lost) == Applied(changed=1))
            check(await bench.one(lost) == Applied(changed=0))
            states = {each.key: str(each.state) for each in await self._rows(bench, record)}
            check(states == {reported.attempt.key: "QUEUED", silent.attempt.key: "READY"})

        self.on_contract(case)

    def test_A2_a_launch_that_failed_ends_the_attempt_from_queued_and_offers_the_next(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            record = await bench.started("a", activities=0)
            check(applied(await bench.one(turn(record, attempts=(external(0),)))))
            [offer] = await queued(bench, queue("one"))
            failed = OpenNextAttempt(
                ended=transition(offer.attempt, AttemptEvent.FAIL, failure=b"{}"),
                next=external(0, attempt=2, failures=1),
            )
            for wrong in (
                msgspec.structs.replace(failed.ended, owner=BERT),
                msgspec.structs.replace(failed.ended, from_ledger=RERUN),
            ):
                check(isinstance(await bench.one(msgspec.structs.replace(failed, ended=wrong)), Rejected))
            check(applied(await bench.one(failed)))
            rows = await self._rows(bench, record)
            check([(str(each.state), each.ledger) for each in rows] == [("FAILED", ENTERED), ("READY", SEED)])
            [following] = await store.open_activities(limit=9)
            check(following.exec_id != offer.exec_id and following.attempt.key.attempt == 2)

        self.on_contract(case)

    def test_W7_a_worker_that_is_not_active_claims_nothing_for_its_launchers(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            record = await bench.started("a", activities=0)
            check(applied(await bench.one(turn(record, attempts=(external(0),)))))
            check(applied(await bench.one(MarkWorkerLost(key=ANNA, at_deadline=False, limit=9))))
            check(isinstance(await bench.one(queue("one")), Rejected))
            check(len(await store.open_activities(limit=9)) == 1)

        self.on_contract(case)
