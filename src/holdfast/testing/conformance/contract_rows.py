"""Rules of the rows of the open contract (C2-C4): inserts under an id of the client, answers, offers, traces.

They apply to stores with the capability `OPEN_CONTRACT`; for other stores they are skipped.
"""

from collections.abc import Awaitable, Callable
from typing import cast
from unittest import SkipTest

import msgspec

from holdfast.compose import capabilities_of
from holdfast.core.activity_events import CheckedReport, ReportKind, ReportState
from holdfast.core.activity_options import ActivityOptions, ExternalOptions, RetryPolicy
from holdfast.core.lifecycle import AttemptState
from holdfast.payloads.limits import INLINE_LIMIT_BYTES
from holdfast.storage.contract import OPEN_CONTRACT, OpenContractStore
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.storage.members.instances import SaveFlow
from holdfast.storage.members.outcomes import Applied, Rejected, StartedInstance
from holdfast.storage.members.row_handling import HandleReports
from holdfast.storage.records import OfferRecord
from holdfast.testing.conformance.bench import (
    ANNA,
    FIRST_TIME_MS,
    Bench,
    Rules,
    check,
    first_turn,
    new_attempt,
    start,
    turn,
)

NEWEST = 2**62


def _new(outcome: object) -> bool:
    """Whether an insert made a row."""
    return isinstance(outcome, Applied) and outcome.changed == 1


def _known(outcome: object) -> bool:
    """Whether an insert found its row."""
    return isinstance(outcome, Applied) and outcome.changed == 0


class ContractRowRules(Rules):
    """Inserts and reads of requests and reports."""

    def on_contract(self, case: Callable[[Bench, OpenContractStore], Awaitable[None]]) -> None:
        """As `on_bench`, for a store that has the tables of the open contract."""

        async def capable(bench: Bench) -> None:
            if OPEN_CONTRACT not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {OPEN_CONTRACT!r}")
            await case(bench, cast("OpenContractStore", bench.store))

        self.on_bench(capable)

    def test_C2_a_repeated_insert_of_a_request_is_the_same_request(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            first = InsertRequest(
                request_id="r",
                workflow="flow",
                instance_id="i",
                input='{"a": 1}',
                policy="reuse",
                start_at_ms=5,
                deadline_after_ms=6,
                source="cron",
            )
            bench.clock.now_ms = FIRST_TIME_MS + 7
            check(_new(await bench.one(first)))
            bench.clock.now_ms += 1
            check(_known(await bench.one(InsertRequest(request_id="r", workflow="other"))))
            found = await store.read_request("r")
            check(found is not None)
            if found is None:
                return
            check((found.workflow, found.instance_id, found.input) == ("flow", "i", '{"a": 1}'))
            check((found.policy, found.start_at_ms, found.deadline_after_ms) == ("reuse", 5, 6))
            check((found.kind, found.source, found.manual) == ("start", "cron", False))
            check(found.inserted_at_ms == FIRST_TIME_MS + 7, "the time is the store's own")
            check((found.state, found.refusal, found.instance_number, found.handled_at_ms) == ("NEW", None, None, None))
            check(await store.read_request("R") is None)

        self.on_contract(case)

    def test_C2_any_text_is_stored_as_it_is(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            given = '{"not": JSON \u00e9\U0001f600' + "'\"%s$1?\\"
            check(_new(await bench.one(InsertRequest(request_id="r", kind="?", input=given))))
            found = await store.read_request("r")
            check(found is not None and (found.kind, found.input, found.workflow) == ("?", given, None))

        self.on_contract(case)

    def test_C2_requests_are_listed_newest_first_and_by_state(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            for name in ("c", "a", "b"):
                check(_new(await bench.one(InsertRequest(request_id=name, workflow="flow"))))
            listed = await store.list_requests(before=NEWEST, limit=2, state="NEW")
            check([row.request_id for row in listed] == ["b", "a"], "rows are in the order of their inserts")
            rest = await store.list_requests(before=listed[-1].row, limit=2)
            check([row.request_id for row in rest] == ["c"])
            check(await store.list_requests(before=NEWEST, limit=9, state="REFUSED") == [])
            await bench.one(InsertRequest(request_id="d", workflow="other", input="x" * 100_000))
            await bench.one(InsertRequest(request_id="e", kind="cancel", workflow="other"))
            await bench.one(InsertRequest(request_id="f", workflow="other", manual=True))
            check(await store.count_new_requests() == {"flow": 3, "other": 1})
            check(
                len((await store.list_requests(before=NEWEST, limit=3))[-1].input) < 10_000, "of a long text the start"
            )

        self.on_contract(case)

    def test_C2_a_repeated_insert_of_a_report_is_the_same_report(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            report = InsertReport(
                event_id="e",
                activity_exec_id="x",
                transition="COMPLETED",
                claim="c",
                sequence=2,
                payload="1",
                error="no",
                source="me",
                sent_at="noon",
            )
            check(_new(await bench.one(report)))
            check(_known(await bench.one(report)))
            answer = await store.read_report("e")
            check(answer is not None and (answer.state, answer.refusal) == ("NEW", None))
            check(answer is not None and (answer.cancel_requested, answer.handled_at_ms) == (False, None))
            check(await store.read_report("f") is None)

        self.on_contract(case)

    def test_C2_a_group_of_inserts_is_one_commit(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            outcomes = await bench.commit(
                InsertRequest(request_id="r"),
                InsertReport(event_id="e", activity_exec_id="x", transition="NOTE"),
                InsertRequest(request_id="r"),
            )
            check([_new(outcome) for outcome in outcomes] == [True, True, False])
            check(len(await store.list_requests(before=NEWEST, limit=9)) == 1)

        self.on_contract(case)

    def test_C3_a_traced_start_writes_its_request_in_the_same_commit(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            trace = InsertRequest(request_id="t", workflow="flow", instance_id="a", manual=True)
            for given in (None, first_turn(ANNA)):
                name = "a" if given is None else "b"
                traced = InsertRequest(request_id=name, workflow="flow", instance_id=name, manual=True)
                outcome = await bench.one(start(name, first=given, trace=traced))
                check(isinstance(outcome, StartedInstance) and outcome.created)
                found = await store.read_request(name)
                check(found is not None and (found.state, found.manual) == ("TRACE", True))
                check(found is not None and found.instance_number == (await bench.instance(name)).number)
                check(found is not None and found.handled_at_ms == FIRST_TIME_MS)
            again = await bench.one(start("a", trace=trace))
            check(isinstance(again, StartedInstance) and not again.created)
            check((found := await store.read_request("t")) is not None and found.state == "TRACE")

        self.on_contract(case)

    def test_C3_a_rejected_start_leaves_no_trace(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            await bench.one(start("a"))
            trace = InsertRequest(request_id="t", workflow="flow", instance_id="a", manual=True)
            outcome = await bench.one(start("a", given=b'{"other": 1}', trace=trace))
            check(isinstance(outcome, Rejected))
            check(await store.read_request("t") is None)

        self.on_contract(case)

    def test_C4_an_unknown_offer_is_none_and_no_offer_is_open(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            await bench.started("a")
            check(await store.read_offer("x") is None)
            check(await store.open_activities(limit=9) == [])
            check(await store.open_activities(limit=9, queues=["default"], names=["step"]) == [])

        self.on_contract(case)

    def test_A7_notes_are_read_with_their_attempt_and_their_number_is_bounded(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            record = await bench.started("a", activities=0)
            options = ActivityOptions(external=ExternalOptions(), start_to_close_ms=60_000)
            await bench.one(turn(record, attempts=(new_attempt(0, options=options, is_external=True),)))
            (offer,) = await store.open_activities(limit=9)
            for number in range(3):
                report = InsertReport(
                    event_id=f"n{number}",
                    activity_exec_id=offer.exec_id,
                    transition="NOTE",
                    payload=str(number),
                    source="me",
                    sent_at="noon",
                )
                check(_new(await bench.one(report)))
            check(await store.read_notes(record.number, 1, limit=9) == [], "a note counts once it is applied")
            rows = await store.reports_of(offer.exec_id, limit=9, largest=1_000)
            checked = tuple(CheckedReport(row=row.row, kind=ReportKind.NOTE) for row in rows)
            await bench.one(HandleReports(exec_id=offer.exec_id, key=offer.attempt.key, reports=checked))
            notes = await store.read_notes(record.number, 1, limit=2)
            check([(note.key, note.payload) for note in notes] == [(offer.attempt.key, "1"), (offer.attempt.key, "2")])
            check((notes[0].source, notes[0].sent_at) == ("me", "noon"))
            check(notes[0].inserted_at_ms == bench.clock.now_ms)
            check(await store.read_notes(record.number, 2, limit=9) == [], "of this execution only")

        self.on_contract(case)

    def test_K1_the_flow_that_was_saved_last_under_a_name_is_found(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            check(await store.newest_flow("talk") is None)
            for digest in ("b", "a", "b"):
                flow = SaveFlow(hash=digest, name="talk", version="", definition=digest.encode())
                check(isinstance(await bench.one(flow), Applied))
                bench.clock.now_ms += 1
            check(await store.newest_flow("talk") == b"a", "saving a version again changes nothing")
            check(await store.newest_flow("Talk") is None)

        self.on_contract(case)

    def test_C4_offers_of_ready_attempts_are_open_when_they_are_available(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            await offered(bench)
            check([offer.attempt.name for offer in await store.open_activities(limit=9)] == ["step", "other"])
            check([offer.attempt.name for offer in await store.open_activities(limit=1)] == ["step"])
            for queues, names, found in (
                (["default"], None, ["step"]),
                (["gpu", "default"], None, ["step", "other"]),
                (None, ["other", "no"], ["other"]),
                (["default"], ["other"], []),
                ([], None, []),
            ):
                offers = await store.open_activities(limit=9, queues=queues, names=names)
                check([offer.attempt.name for offer in offers] == found)
            check(await store.count_open_activities() == {"default": 1, "gpu": 1})
            bench.clock.now_ms += 1_000
            later = await store.open_activities(limit=9)
            check([offer.attempt.name for offer in later] == ["step", "other", "later"])
            check((later[0].attempt.instance_id, later[0].attempt.workflow) == ("a", "flow"))
            check((later[0].entry, later[0].is_current) == (1, True))
            check(await store.read_offer(later[0].exec_id) == later[0])
            check(len({offer.exec_id for offer in later}) == 3)

        self.on_contract(case)

    def test_C4_a_large_input_of_an_offer_is_in_place(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            large = b'{"a":"%b"}' % (b"x" * 2 * INLINE_LIMIT_BYTES)
            await offered(bench, given=large)
            (found,) = await store.open_activities(limit=9, names=["step"])
            check(found.attempt.input == large)

        self.on_contract(case)

    def test_A2_a_claimed_offer_is_not_open_and_a_released_one_is_not_current(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            await offered(bench)
            (first,) = await store.open_activities(limit=9, names=["step"])
            await reported(bench, store, first, ReportKind.QUEUED)
            check(await store.open_activities(limit=9, names=["step"]) == [])
            check(await store.count_open_activities() == {"gpu": 1})
            claimed = await store.read_offer(first.exec_id)
            check(claimed is not None and (claimed.attempt.state, claimed.is_current) == (AttemptState.QUEUED, True))
            await reported(bench, store, first, ReportKind.RELEASE)
            released = await store.read_offer(first.exec_id)
            check(released is not None and not released.is_current)
            (second,) = await store.open_activities(limit=9, names=["step"])
            check((second.exec_id != first.exec_id, second.entry) == (True, 2))
            await reported(bench, store, second, ReportKind.RUNNING)
            await reported(bench, store, second, ReportKind.COMPLETED)
            ended = await store.read_offer(second.exec_id)
            check(ended is not None and not ended.is_current, "the attempt has ended")

        self.on_contract(case)


async def offered(bench: Bench, given: bytes = b"{}") -> None:
    """An instance whose first turn offers three attempts, one of them a second later."""
    options = ActivityOptions(heartbeat_ms=60_000, external=ExternalOptions(), retry=RetryPolicy(attempts=1))
    first = first_turn(ANNA, activities=0)
    attempts = (
        new_attempt(0, options=options, is_external=True, input=given, available_at_ms=FIRST_TIME_MS - 1),
        new_attempt(1, options=options, is_external=True, name="other", queue="gpu", available_at_ms=FIRST_TIME_MS),
        new_attempt(2, options=options, is_external=True, name="later", available_at_ms=FIRST_TIME_MS + 1_000),
    )
    outcome = await bench.one(start("a", first=msgspec.structs.replace(first, attempts=attempts)))
    check(isinstance(outcome, StartedInstance))


async def reported(bench: Bench, store: OpenContractStore, offer: OfferRecord, kind: ReportKind) -> None:
    """Insert a report about an offer and handle it, as a worker does."""
    name = f"{kind} of {offer.exec_id}"
    check(_new(await bench.one(InsertReport(event_id=name, activity_exec_id=offer.exec_id, transition=kind.value))))
    rows = await store.reports_of(offer.exec_id, limit=9, largest=1_000)
    reports = tuple(CheckedReport(row=row.row, kind=kind, inserted_at_ms=row.inserted_at_ms) for row in rows)
    await bench.one(HandleReports(exec_id=offer.exec_id, key=offer.attempt.key, reports=reports))
    answer = await store.read_report(name)
    check(answer is not None and answer.state == ReportState.APPLIED, f"{kind}: {answer}")
