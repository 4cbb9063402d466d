"""Rules of reports about external attempts (C2, C4, A1, A2, A5-A7, L4, L8, L10): `HandleReports`.

They apply to stores with the capability `OPEN_CONTRACT`; for other stores they are skipped.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Self, cast
from unittest import SkipTest

import msgspec

from holdfast.compose import capabilities_of
from holdfast.core.activity_events import MOST_WAITING, TOO_EARLY, CheckedReport, ReportKind
from holdfast.core.activity_options import (
    SILENCE_AFTER_CANCEL_MS,
    ActivityOptions,
    ExternalOptions,
    RetryPolicy,
    StreamOptions,
)
from holdfast.core.history import (
    ActivityCompleted,
    ActivityFailed,
    ActivityYielded,
    HistoryEvent,
    Started,
    decode_event,
)
from holdfast.core.ledger import RESPONSE_ENTRY, RESPONSE_EXIT
from holdfast.core.lifecycle import AttemptState
from holdfast.core.streams import MAX_YIELDS
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.contract import OPEN_CONTRACT, OpenContractStore
from holdfast.storage.members.contract_rows import InsertReport
from holdfast.storage.members.instances import Terminate
from holdfast.storage.members.outcomes import HandledRows, Outcome, Rejected
from holdfast.storage.members.row_handling import HandleReports
from holdfast.storage.members.turns import NextExecution
from holdfast.storage.records import AttemptRecord, InstanceRecord, ReportRow
from holdfast.testing.conformance.bench import (
    ANNA,
    RUNNING_LEDGER,
    Bench,
    Rules,
    applied,
    check,
    closing,
    first_turn,
    new_attempt,
    start,
    turn,
)

CLAIM_TIMEOUT_MS: Final = 1_000
HEARTBEAT_MS: Final = 5_000
LARGEST: Final = 1_000_000
NO_RETRY: Final = RetryPolicy(attempts=1)
_encode = msgspec.json.Encoder().encode


def external(**more: Any) -> ActivityOptions:
    """Options of an external activity that is not retried."""
    fields: dict[str, Any] = {"heartbeat_ms": HEARTBEAT_MS, "retry": NO_RETRY}
    return ActivityOptions(external=ExternalOptions(CLAIM_TIMEOUT_MS), **(fields | more))


class Executor:
    """An executor of the first activity of one instance, and a worker that handles its reports."""

    def __init__(self, bench: Bench, store: OpenContractStore, record: InstanceRecord, exec_id: str) -> None:
        self.bench = bench
        self.store = store
        self.record = record
        self.exec_id = exec_id
        self._reports = 0

    @classmethod
    async def of(
        cls,
        bench: Bench,
        store: OpenContractStore,
        name: str = "a",
        fields: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,
    ) -> Self:
        """An executor that sees a READY attempt, or one with other fields."""
        outcome = await bench.one(start(name, first=first_turn(ANNA, activities=0)))
        check(not isinstance(outcome, Rejected))
        record = await bench.instance(name)
        offered = new_attempt(0, options=external(**options), is_external=True, **fields)
        check(applied(await bench.one(turn(record, attempts=(offered,)))))
        executor = cls(bench, store, await bench.instance(name), "")
        await executor.look()
        return executor

    async def look(self) -> None:
        """Take the exec id under which the newest attempt is offered."""
        exec_id = await self.store.current_offer((await self.attempt()).key)
        check(exec_id is not None and len(exec_id) == 32 and exec_id != self.exec_id, "128 random bits")
        self.exec_id = exec_id or ""

    async def attempt(self) -> AttemptRecord:
        return (await self.bench.store.read_attempts(self.record.number, self.record.execution))[-1]

    async def state(self) -> tuple[str, int]:
        """The state of the newest attempt, and its first three digits."""
        attempt = await self.attempt()
        return attempt.state, attempt.ledger // 10**12

    async def insert(self, transition: str, exec_id: str = "", **columns: Any) -> str:
        """Insert a report; returns its id."""
        self._reports += 1
        event_id = f"{self.record.id}-{self._reports}"
        row = InsertReport(
            event_id=event_id, activity_exec_id=exec_id or self.exec_id, transition=transition, **columns
        )
        check(applied(await self.bench.one(row)))
        return event_id

    async def insert_many(self, transition: str, sequences: Sequence[int], **columns: Any) -> None:
        members: list[InsertReport] = []
        for sequence in sequences:
            self._reports += 1
            event_id = f"{self.record.id}-{self._reports}"
            members.append(
                InsertReport(
                    event_id=event_id,
                    activity_exec_id=self.exec_id,
                    transition=transition,
                    sequence=sequence or None,
                    **columns,
                )
            )
        await self.bench.commit(*members)

    async def rows(self, exec_id: str = "") -> list[ReportRow]:
        return await self.store.reports_of(exec_id or self.exec_id, limit=9_000, largest=LARGEST)

    async def member(self, rows: Sequence[ReportRow] | None = None, exec_id: str = "") -> HandleReports:
        """The member that a worker makes of the rows."""
        found = await self.rows(exec_id) if rows is None else rows
        return HandleReports(
            exec_id=exec_id or self.exec_id,
            key=(await self.attempt()).key if not found else found[0].key,
            reports=tuple(checked(row) for row in found),
        )

    async def handle(self, exec_id: str = "") -> Outcome:
        return await self.bench.one(await self.member(exec_id=exec_id))

    async def report(self, transition: str, exec_id: str = "", **columns: Any) -> tuple[str, str | None]:
        """Insert a report and handle it. Returns its new state and its refusal."""
        event_id = await self.insert(transition, exec_id, **columns)
        await self.handle(exec_id)
        return await self.answer(event_id)

    async def answer(self, event_id: str) -> tuple[str, str | None]:
        found = await self.store.read_report(event_id)
        check(found is not None)
        return ("", None) if found is None else (found.state, found.refusal)

    async def inbox(self) -> list[HistoryEvent]:
        found = (await self.bench.store.load(self.record.number, self.record.execution)).inbox
        return [decode_event(row.event) for row in found]

    async def failures(self) -> list[str]:
        """The types of the failures that the workflow gets."""
        events = [event for event in await self.inbox() if isinstance(event, ActivityFailed)]
        return [msgspec.json.decode(event.failure.data, type=RecordedFailure).type for event in events]


def checked(row: ReportRow) -> CheckedReport:
    """A row as a worker checks it, for an activity that takes any value."""
    kind = ReportKind(row.transition)
    failure = RecordedFailure(type="shop.Declined", message="no") if kind is ReportKind.FAILED else None
    return CheckedReport(
        row=row.row,
        kind=kind,
        claim=row.claim,
        sequence=row.sequence,
        value=row.payload or b"null",
        failure=None if failure is None else _encode(failure),
        error_types=() if failure is None else (failure.type,),
        inserted_at_ms=row.inserted_at_ms,
        fault=row.fault,
        event_id=row.event_id,
        is_unread=row.is_unread,
    )


class ReportRules(Rules):
    """C2, C4, A1, A2, A5, A6, A7, L2, L4, L8, L10, L12."""

    def on_offers(self, case: Callable[[Bench, OpenContractStore], Awaitable[None]]) -> None:
        """As `on_bench`, for a store that has the tables of the open contract."""

        async def capable(bench: Bench) -> None:
            if OPEN_CONTRACT not in capabilities_of(bench.store):
                raise SkipTest(f"the store does not declare {OPEN_CONTRACT!r}")
            await case(bench, cast("OpenContractStore", bench.store))

        self.on_bench(capable)

    def test_L2_the_first_claim_wins_and_every_step_has_its_digits(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            check(await executor.state() == ("READY", 999))
            check([(row.ready, row.running) for row in await store.queues()] == [(1, 0)])
            check(await executor.report("QUEUED", claim="c") == ("APPLIED", None))
            check(await executor.state() == ("QUEUED", 899))
            state, refusal = await executor.report("QUEUED", claim="d")
            check(state == "REFUSED" and "another claim" in (refusal or ""))
            state, refusal = await executor.report("RUNNING")
            check(state == "REFUSED" and "under a claim" in (refusal or ""))
            check(await executor.report("PREPARING", claim="c") == ("APPLIED", None))
            check(await executor.state() == ("PREPARING", 899))
            check(await executor.report("RUNNING", claim="c") == ("APPLIED", None))
            check(await executor.state() == ("RUNNING", 889))
            check([(row.ready, row.running) for row in await store.queues()] == [(0, 1)])
            check(await executor.report("COMPLETED", claim="c", payload='{"a":1}') == ("APPLIED", None))
            check(await store.queues() == [])
            attempt = await executor.attempt()
            check((attempt.state, attempt.ledger) == ("COMPLETED", 889_000_001_000_000))
            [event] = await executor.inbox()
            check(isinstance(event, ActivityCompleted) and bytes(event.result.data) == b'{"a":1}')
            state, refusal = await executor.report("COMPLETED", claim="c", payload="2")
            check(state == "REFUSED" and "first result stands" in (refusal or ""))
            check(len(await executor.inbox()) == 1)

        self.on_offers(case)

    def test_C9_a_claim_without_a_string_leaves_claims_ignored(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            check(await executor.report("RUNNING") == ("APPLIED", None))
            check(await executor.report("HEARTBEAT", claim="x") == ("APPLIED", None))
            check(await executor.report("COMPLETED", claim="y", payload="1") == ("APPLIED", None))

        self.on_offers(case)

    def test_C7_rows_are_handled_once_by_two_workers(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            another = self.make_another(bench.clock)
            if another is None:
                raise SkipTest("only one store object can have the data")
            await another.open()
            try:
                executor = await Executor.of(bench, store, stream=StreamOptions())
                for transition in ("RUNNING", "RESPONSE", "HEARTBEAT", "NOTE"):
                    await executor.insert(transition, payload="1")
                member = await executor.member()
                check(isinstance(await bench.one(member), HandledRows))
                other = Bench(another, bench.clock, first_id=10**6)
                check(isinstance(await other.one(member), Rejected), "its rows were handled")
                events = await executor.inbox()
                check(len(events) == 1 and isinstance(events[0], ActivityYielded))
                check((await executor.attempt()).ledger == 889_000_001_000_000)
            finally:
                await another.close()

        self.on_offers(case)

    def test_C2_a_member_of_rows_that_others_handled_in_part_applies_the_rest(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store, stream=StreamOptions())
            for transition in ("RUNNING", "RESPONSE", "RESPONSE"):
                await executor.insert(transition, payload="1")
            rows = await executor.rows()
            whole = await executor.member(rows)
            check(isinstance(await bench.one(await executor.member(rows[:2])), HandledRows))
            outcome = await bench.one(whole)
            check(isinstance(outcome, HandledRows) and [one.row for one in outcome.reports] == [rows[2].row])
            check((await executor.attempt()).ledger == 889_000_002_000_000)

        self.on_offers(case)

    def test_C6_an_unknown_exec_id_is_refused(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            event_id = await executor.insert("RUNNING", "0" * 32)
            page = await store.new_reports(["step"], limit=9, largest=LARGEST)
            [row] = page.rows
            check(row.key is None and row.name is None)
            await bench.one(HandleReports(exec_id="0" * 32, key=None, reports=(checked(row),)))
            state, refusal = await executor.answer(event_id)
            check(state == "REFUSED" and "no activity was offered" in (refusal or ""))
            check(await executor.state() == ("READY", 999))

        self.on_offers(case)

    def test_L10_early_results_wait_for_running_and_are_handled_in_their_order(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store, stream=StreamOptions())
            first = await executor.insert("RESPONSE", claim="c", payload="1")
            await executor.handle()
            check(await executor.answer(first) == ("WAITING", TOO_EARLY))
            stale = await executor.insert("COMPLETED", claim="stale")
            check((await executor.report("QUEUED", claim="c"))[0] == "APPLIED")
            check((await executor.answer(stale))[0] == "REFUSED", "another claimant has it")
            check(await executor.report("RESPONSE", claim="c", payload="2") == ("WAITING", TOO_EARLY))
            check(await executor.report("FAILED", claim="c") == ("WAITING", TOO_EARLY), "it is behind a response")
            check(await executor.report("HEARTBEAT", claim="c") == ("APPLIED", None), "which holds back results only")
            check(await executor.inbox() == [])
            check((await executor.report("RUNNING", claim="c"))[0] == "APPLIED")
            check((await executor.answer(first)) == ("APPLIED", None))
            events = await executor.inbox()
            check([type(event) for event in events] == [ActivityYielded, ActivityFailed], "one message of two values")
            check(isinstance(events[0], ActivityYielded) and len(events[0].numbers) == 2)
            check((await executor.state()) == ("FAILED", 889))

        self.on_offers(case)

    def test_L10_a_failure_before_running_that_nothing_holds_back_is_applied(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            for state in ("QUEUED", "PREPARING"):
                executor = await Executor.of(bench, store, state)
                check((await executor.report(state))[0] == "APPLIED")
                check((await executor.report("FAILED")) == ("APPLIED", None))
                check(await executor.state() == ("FAILED", 899))
                check(await executor.failures() == ["shop.Declined"])

        self.on_offers(case)

    def test_L10_waiting_rows_are_refused_when_the_attempt_ends_or_is_released(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            for ending in ("RELEASE", "CANCEL", "deadline"):
                executor = await Executor.of(bench, store, ending)
                check((await executor.report("QUEUED", claim="c"))[0] == "APPLIED")
                early = await executor.insert("COMPLETED", claim="c", payload="1")
                gap = await executor.insert("NOTE", sequence=7, claim="c")
                await executor.handle()
                check((await executor.answer(early))[0] == (await executor.answer(gap))[0] == "WAITING")
                if ending == "deadline":
                    bench.clock.now_ms += CLAIM_TIMEOUT_MS
                    check(isinstance(await executor.handle(), HandledRows))
                else:
                    check((await executor.report(ending, claim="c"))[0] == "APPLIED")
                check((await executor.answer(early))[0] == "REFUSED")
                check((await executor.answer(gap))[0] == "APPLIED", "a note is kept, whatever its sequence")
                check(await store.stranded_offers(9) == [])

        self.on_offers(case)

    def test_L10_rows_of_an_attempt_that_others_ended_are_stranded_and_refused(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            early = await executor.insert("COMPLETED", payload="1")
            await executor.handle()
            check(await store.stranded_offers(9) == [])
            await bench.one(Terminate(id=executor.record.id))
            check(await store.stranded_offers(9) == [executor.exec_id])
            await executor.handle()
            state, refusal = await executor.answer(early)
            check(state == "REFUSED" and "CANCELLED" in (refusal or ""))
            check(await store.stranded_offers(9) == [])

        self.on_offers(case)

    def test_L10_the_1001st_waiting_row_is_refused(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            check((await executor.report("QUEUED", claim="c", sequence=1))[0] == "APPLIED")
            await executor.insert_many("HEARTBEAT", range(3, 3 + MOST_WAITING), claim="c")
            await executor.handle()
            check(len(await executor.rows()) == MOST_WAITING)
            last = 3 + MOST_WAITING
            state, refusal = await executor.report("HEARTBEAT", sequence=last, claim="c")
            check(state == "REFUSED" and "1,000 rows" in (refusal or ""))
            again = await executor.insert("HEARTBEAT", sequence=last + 1, claim="c")  # refused in the commit of 2
            second = await executor.insert("RUNNING", sequence=2, claim="c")
            await executor.handle()
            check((await executor.answer(again))[0] == "REFUSED")
            check((await executor.answer(second)) == ("APPLIED", None))
            check(await executor.rows() == [], "everything that waited for it was handled")
            check((await executor.report("COMPLETED", sequence=last + 2, claim="c")) == ("APPLIED", None))

        self.on_offers(case)

    def test_L10_rows_that_another_worker_let_wait_count(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            await executor.insert_many("COMPLETED", [0] * MOST_WAITING, payload="1")
            waiting = await executor.member()
            late = await executor.insert("COMPLETED", payload="2")
            behind = (await executor.rows())[-1]
            check(isinstance(await bench.one(waiting), HandledRows))
            await bench.one(await executor.member([behind]))
            check((await executor.answer(late))[0] == "REFUSED", "its worker did not read the rows that wait")

        self.on_offers(case)

    def test_C8_sequences_are_handled_in_order_whatever_the_order_of_the_inserts(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store, stream=StreamOptions())
            reports = [("QUEUED", 1), ("RUNNING", 2), ("RESPONSE", 3), ("RESPONSE", 4), ("COMPLETED", 5)]
            for transition, sequence in reversed(reports):
                payload = str(sequence) if transition == "RESPONSE" else None
                await executor.insert(transition, sequence=sequence, claim="c", payload=payload)
            await executor.handle()
            values, done = await executor.inbox()
            check(isinstance(values, ActivityYielded) and isinstance(done, ActivityCompleted))
            if isinstance(values, ActivityYielded):
                check([bytes(value.data) for value in (values.value, *values.more)] == [b"3", b"4"])
            check(await executor.rows() == [])

        self.on_offers(case)

    def test_C8_a_claimant_that_lost_numbers_its_notes_and_cancels(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            for is_handled_twice in (True, False):
                executor = await Executor.of(bench, store, f"it {is_handled_twice}")
                check((await executor.report("RUNNING", claim="a"))[0] == "APPLIED")
                cancel = await executor.insert("CANCEL", claim="b", sequence=2)
                if is_handled_twice:
                    await executor.handle()
                check((await executor.report("QUEUED", claim="b", sequence=1))[0] == "REFUSED")
                check((await executor.answer(cancel))[0] == "APPLIED")
                check((await executor.report("NOTE", claim="b", sequence=3))[0] == "APPLIED")

        self.on_offers(case)

    def test_C8_a_second_event_with_a_handled_sequence_is_a_duplicate(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store, stream=StreamOptions())
            for sequence, transition in enumerate(("RUNNING", "RESPONSE"), 1):
                check((await executor.report(transition, sequence=sequence))[0] == "APPLIED")
            check((await executor.report("RESPONSE", sequence=2))[0] == "DUPLICATE")
            check((await executor.report("RESPONSE", sequence=1, claim="other"))[0] == "APPLIED", "another series")
            waits = [await executor.insert("RESPONSE", sequence=4) for _ in range(2)]
            await executor.handle()
            check((await executor.report("STOPPED", sequence=3))[0] == "REFUSED", "a refused number counts as handled")
            check([(await executor.answer(one))[0] for one in waits] == ["APPLIED", "DUPLICATE"])
            check((await executor.report("RESPONSE", sequence=0))[0] == "REFUSED")
            check((await executor.attempt()).ledger == 889_000_003_000_000)

        self.on_offers(case)

    def test_C2_many_rows_in_reverse_order_take_linear_time(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            await executor.insert_many("HEARTBEAT", range(MOST_WAITING, 1, -1))
            await executor.insert_many("RUNNING", [1])
            check(isinstance(await executor.handle(), HandledRows))
            check(await executor.rows() == [])
            check((await executor.attempt()).state is AttemptState.RUNNING)

        self.on_offers(case)

    def test_C10_A5_reports_are_handled_before_the_deadline_that_passed_behind_them(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            await executor.insert("RUNNING")
            for _ in range(10):
                bench.clock.now_ms += HEARTBEAT_MS - 1
                await executor.insert("HEARTBEAT")
            last_ms = bench.clock.now_ms
            bench.clock.now_ms += 3_600_000
            rows = await executor.rows()
            outcome = await bench.one(await executor.member(rows[:-1]))
            check(isinstance(outcome, HandledRows) and len(outcome.reports) == len(rows) - 1)
            check((await executor.state()) == ("RUNNING", 889), "a row is NEW: the deadline is left to the next commit")
            check(isinstance(await executor.handle(), HandledRows))
            attempt = await executor.attempt()
            check((attempt.state, attempt.heartbeat_at_ms) == (AttemptState.TIMED_OUT, last_ms))
            check(await executor.failures() == ["holdfast.errors.ActivityTimedOut"])

        self.on_offers(case)

    def test_A5_a_result_from_before_the_deadline_stands_and_one_from_after_it_does_not(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            for late_ms, expected in ((0, "COMPLETED"), (1, "TIMED_OUT")):
                executor = await Executor.of(bench, store, expected)
                check((await executor.report("RUNNING"))[0] == "APPLIED")
                bench.clock.now_ms += HEARTBEAT_MS + late_ms
                result = await executor.insert("COMPLETED", payload="1")
                bench.clock.now_ms += 3_600_000
                await executor.handle()
                check((await executor.attempt()).state == expected)
                check((await executor.answer(result))[0] == ("REFUSED" if late_ms else "APPLIED"))

        self.on_offers(case)

    def test_C10_A5_a_worker_without_the_activity_leaves_an_attempt_that_has_new_rows(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            check((await executor.report("RUNNING"))[0] == "APPLIED")
            bench.clock.now_ms += 1_000
            beat = await executor.insert("HEARTBEAT")
            bench.clock.now_ms += HEARTBEAT_MS - 1_000
            empty = HandleReports(exec_id=executor.exec_id, key=(await executor.attempt()).key)
            check(isinstance(await bench.one(empty), Rejected))
            check(await executor.state() == ("RUNNING", 889))
            await executor.handle()
            check((await executor.answer(beat))[0] == "APPLIED")
            check(isinstance(await bench.one(empty), Rejected), "no row is left, and the deadline has moved")
            bench.clock.now_ms += HEARTBEAT_MS
            check(isinstance(await bench.one(empty), HandledRows))
            check((await executor.state())[0] == "TIMED_OUT")

        self.on_offers(case)

    def test_L7_L8_a_release_offers_the_attempt_again_and_the_last_one_ends_it(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store, max_claims=3)
            seen: list[str] = []
            for entry, release in enumerate(("RELEASE", "timeout", "RELEASE"), 1):
                seen.append(executor.exec_id)
                check((await executor.report("QUEUED", claim="c"))[0] == "APPLIED")
                check(await executor.state() == ("QUEUED", 999 - 100 * entry), "each entry is a rerun")
                bench.clock.now_ms += CLAIM_TIMEOUT_MS
                if release == "timeout":
                    check(isinstance(outcome := await executor.handle(), HandledRows))
                    check(isinstance(outcome, HandledRows) and outcome.offered == ("default",))
                else:
                    check((await executor.report("RELEASE", claim="c"))[0] == "APPLIED")
                if entry < 3:
                    check((await executor.state())[0] == "READY")
                    await executor.look()
                    old = seen[-1]
                    state, refusal = await executor.report("RUNNING", old, claim="c")
                    check(state == "REFUSED" and "was released" in (refusal or ""))
                    check((await executor.report("NOTE", old))[0] == "APPLIED")
            check((await executor.state())[0] == "FAILED")
            check(await executor.failures() == ["holdfast.errors.ClaimsExhausted"])
            check(await store.current_offer((await executor.attempt()).key) is None, "it is not offered again")
            check(await store.open_activities(limit=9) == [])

        self.on_offers(case)

    def test_A5_claim_time_begins_again_at_each_step_and_with_each_heartbeat(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            for transition in ("QUEUED", "HEARTBEAT", "PREPARING", "HEARTBEAT"):
                check((await executor.report(transition))[0] == "APPLIED")
                check((await executor.attempt()).expires_at_ms == bench.clock.now_ms + CLAIM_TIMEOUT_MS)
                bench.clock.now_ms += CLAIM_TIMEOUT_MS - 1
                check(isinstance(await executor.handle(), Rejected))
            bench.clock.now_ms += 1
            check(isinstance(await executor.handle(), HandledRows))
            check(await executor.state() == ("READY", 899))

        self.on_offers(case)

    def test_C10_W9_a_row_from_a_clock_that_was_set_back_counts_from_the_offer(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store, fields={"available_at_ms": bench.clock.now_ms})
            offered_ms = bench.clock.now_ms
            for transition in ("RUNNING", "HEARTBEAT"):
                await executor.insert(transition)
                rows = [msgspec.structs.replace(row, inserted_at_ms=1) for row in await executor.rows()]
                check(isinstance(await bench.one(await executor.member(rows)), HandledRows))
                attempt = await executor.attempt()
                check((attempt.state, attempt.started_at_ms) == (AttemptState.RUNNING, offered_ms))
                check(attempt.expires_at_ms == offered_ms + HEARTBEAT_MS)

        self.on_offers(case)

    def test_A6_a_cancel_is_told_to_heartbeats_and_ends_with_stopped(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            check((await executor.report("RUNNING", claim="c"))[0] == "APPLIED")
            before = await executor.insert("HEARTBEAT", claim="c")
            await executor.handle()
            check((await executor.report("STOPPED", claim="c"))[0] == "REFUSED", "no cancel was requested")
            check((await executor.report("CANCEL")) == ("APPLIED", None), "it needs no claim")
            check(await executor.state() == ("CANCELLED_RUNNING", 889))
            after = await executor.insert("HEARTBEAT", claim="c")
            await executor.handle()
            answers = [await store.read_report(one) for one in (before, after)]
            check([one is not None and one.cancel_requested for one in answers] == [False, True])
            check((await executor.report("RESPONSE", claim="c"))[0] == "REFUSED")
            check((await executor.report("STOPPED", claim="c")) == ("APPLIED", None))
            check(await executor.state() == ("CANCELLED", 889))
            check(await executor.failures() == ["holdfast.errors.ActivityCancelled"])
            check((await executor.report("NOTE")) == ("APPLIED", None), "A7")

        self.on_offers(case)

    def test_A6_silence_after_a_cancel_counts_as_stopped_and_a_result_is_delivered(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            limits: list[tuple[dict[str, Any], int, str]] = [
                ({}, HEARTBEAT_MS, "CANCELLED"),
                ({"heartbeat_ms": None, "start_to_close_ms": 10**7}, SILENCE_AFTER_CANCEL_MS, "CANCELLED"),
                ({"start_to_close_ms": 1_000 + HEARTBEAT_MS - 1}, HEARTBEAT_MS - 1, "TIMED_OUT"),
            ]
            for number, (options, silence_ms, end) in enumerate(limits):
                executor = await Executor.of(bench, store, f"a{number}", **options)
                check((await executor.report("RUNNING"))[0] == "APPLIED")
                bench.clock.now_ms += 1_000
                check((await executor.report("CANCEL"))[0] == "APPLIED")
                bench.clock.now_ms += silence_ms - 1
                check(isinstance(await executor.handle(), Rejected))
                bench.clock.now_ms += 1
                check(isinstance(await executor.handle(), HandledRows))
                check((await executor.state())[0] == end)
                check(await executor.failures() == ["holdfast.errors.ActivityCancelled"])
            executor = await Executor.of(bench, store)
            for transition in ("RUNNING", "CANCEL", "COMPLETED"):
                check((await executor.report(transition, payload="1"))[0] == "APPLIED")
            check([type(event) for event in await executor.inbox()] == [ActivityCompleted])

        self.on_offers(case)

    def test_A1_a_cancel_before_it_runs_ends_it_at_once(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            for state in ("READY", "QUEUED", "PREPARING"):
                executor = await Executor.of(bench, store, state)
                if state != "READY":
                    check((await executor.report(state, claim="c"))[0] == "APPLIED")
                check((await executor.report("CANCEL")) == ("APPLIED", None))
                check((await executor.state())[0] == "CANCELLED")
                check(await executor.failures() == ["holdfast.errors.ActivityCancelled"])

        self.on_offers(case)

    def test_A1_a_failure_opens_the_next_attempt_under_another_exec_id(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            policy = RetryPolicy(attempts=2, initial_ms=500, jitter=False)
            executor = await Executor.of(bench, store, retry=policy)
            first = executor.exec_id
            check((await executor.report("RUNNING", claim="c"))[0] == "APPLIED")
            check((await executor.report("FAILED", claim="c"))[0] == "APPLIED")
            await executor.look()
            check((await executor.attempt()).key.attempt == 2)
            state, refusal = await executor.report("QUEUED", claim="d")
            check(state == "REFUSED" and "available in 500 ms" in (refusal or ""))
            bench.clock.now_ms += 500
            check((await executor.report("QUEUED", claim="d"))[0] == "APPLIED")
            late = await executor.insert("COMPLETED", first, claim="c", payload="1")
            rows = await executor.rows(first)
            check(rows[0].key is not None and rows[0].key.attempt == 1)
            await bench.one(await executor.member(rows, first))
            check((await executor.answer(late))[0] == "REFUSED")
            check((await executor.report("FAILED", claim="d"))[0] == "APPLIED")
            check(await executor.failures() == ["shop.Declined"])

        self.on_offers(case)

    def test_L12_an_attempt_takes_a_bounded_number_of_responses(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            applied_ones = MAX_YIELDS - 2
            ledger = RUNNING_LEDGER + applied_ones * (RESPONSE_ENTRY + RESPONSE_EXIT)
            fields = {"state": AttemptState.RUNNING, "ledger": ledger}
            executor = await Executor.of(bench, store, fields=fields, stream=StreamOptions())
            ids = [await executor.insert("RESPONSE", payload="1") for _ in range(3)]
            await executor.handle()
            answers = [await executor.answer(one) for one in ids]
            check([state for state, _ in answers] == ["APPLIED", "APPLIED", "REFUSED"])
            check("L12" in (answers[-1][1] or ""))
            check((await executor.attempt()).ledger == ledger + 2 * RESPONSE_ENTRY)
            check((await executor.report("RESPONSE", payload="1"))[0] == "REFUSED")
            check((await executor.report("COMPLETED")) == ("APPLIED", None), "the end has its room")

        self.on_offers(case)

    def test_G4_reports_about_an_execution_that_ended_change_nothing_for_its_instance(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            following = NextExecution(input=b"{}", started=start("b").started)
            for name in ("closed", "continued", "abandoned"):
                executor = await Executor.of(bench, store, name, stream=StreamOptions())
                check((await executor.report("RUNNING"))[0] == "APPLIED")
                record = await bench.instance(name)
                leaving = {
                    "closed": closing(record),
                    "continued": turn(record, next=following),
                    "abandoned": turn(record, abandoned=(0,)),
                }
                check(applied(await bench.one(leaving[name])))
                check((await executor.state())[0] == "CANCELLED_RUNNING")
                check((await executor.report("RESPONSE", payload="1"))[0] == "REFUSED")
                check((await executor.report("HEARTBEAT")) == ("APPLIED", None))
                if name == "abandoned":
                    check((await executor.report("COMPLETED"))[0] == "APPLIED")
                    check((await executor.state())[0] == "COMPLETED")
                else:
                    bench.clock.now_ms += HEARTBEAT_MS
                    check(isinstance(await executor.handle(), HandledRows))
                    check((await executor.state())[0] == "CANCELLED")
                found = await bench.instance(name)
                inbox = (await bench.store.load(found.number, found.execution)).inbox
                check(all(isinstance(decode_event(row.event), Started) for row in inbox))

        self.on_offers(case)

    def test_A6_without_a_heartbeat_time_a_cancel_by_the_workflow_is_silent_after_a_minute(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store, heartbeat_ms=None, start_to_close_ms=3_600_000)
            check((await executor.report("RUNNING"))[0] == "APPLIED")
            bench.clock.now_ms += 100_000
            check(applied(await bench.one(turn(await bench.instance("a"), abandoned=(0,)))))
            check((await executor.attempt()).expires_at_ms == bench.clock.now_ms + SILENCE_AFTER_CANCEL_MS)
            bench.clock.now_ms += SILENCE_AFTER_CANCEL_MS - 1
            check(isinstance(await executor.handle(), Rejected))
            check((await executor.state())[0] == "CANCELLED_RUNNING")
            bench.clock.now_ms += 1
            check(isinstance(await executor.handle(), HandledRows))
            check((await executor.state())[0] == "CANCELLED")

        self.on_offers(case)
