"""Rules of rows with large values (C6): a page of them is bounded, and each row is still handled in its order.

They apply to stores with the capability `OPEN_CONTRACT`; for other stores they are skipped.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from holdfast.core.activity_events import TOO_EARLY
from holdfast.core.activity_options import StreamOptions
from holdfast.core.history import ActivityYielded
from holdfast.payloads.limits import MEBIBYTE
from holdfast.storage.contract import OpenContractStore
from holdfast.storage.members.contract_rows import InsertRequest
from holdfast.storage.members.outcomes import HandledRows
from holdfast.storage.records import RowPage
from holdfast.testing.conformance.activity_events import HEARTBEAT_MS, Executor, ReportRules
from holdfast.testing.conformance.bench import Bench, applied, check

RowT = TypeVar("RowT")
LARGEST: Final = 32 * MEBIBYTE
ROWS: Final = 6
MOST_AT_ONCE: Final = 3
"""Of values of 3 MiB: a page takes 4 MiB and the value that goes beyond them."""


def large(number: int) -> str:
    """A JSON string of 3 MiB that begins with a number."""
    return f'"{number}{"x" * 3 * MEBIBYTE}"'


async def pages_of(read: Callable[[int], Awaitable[RowPage[RowT]]]) -> list[RowPage[RowT]]:
    """Every page, each behind the last row of the one before."""
    pages = [await read(0)]
    while pages[-1].has_more:
        pages.append(await read(pages[-1].last_row or 0))
    check(all(len(page.rows) <= MOST_AT_ONCE for page in pages), "a page ends early")
    return pages


class LargeExecutor(Executor):
    """An executor whose reports have large payloads."""

    async def handle_all(self) -> int:
        """Handle rows until none is NEW. Returns the number of commits."""
        commits = 0
        while await self.store.has_new_report(self.exec_id):
            rows = await self.store.reports_of(self.exec_id, limit=99, largest=LARGEST)
            check(sum(row.payload is not None for row in rows) <= MOST_AT_ONCE, "the others are unread")
            check(all(row.is_unread == (row.payload is None) for row in rows if row.transition != "RUNNING"))
            check(isinstance(await self.bench.one(await self.member(rows)), HandledRows), "each commit handles a row")
            commits += 1
        return commits


class LargeRowRules(ReportRules):
    """C6."""

    def test_C6_a_page_of_large_requests_ends_early(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            for number in range(ROWS):
                request = InsertRequest(request_id=f"r{number}", workflow="flow", input=large(number))
                check(applied(await bench.one(request)))
            check(applied(await bench.one(InsertRequest(request_id="other", workflow="other", input=large(0)))))
            pages = await pages_of(lambda after: store.new_requests(["flow"], limit=99, largest=LARGEST, after=after))
            rows = [row for page in pages for row in page.rows]
            check([row.request_id for row in rows] == [f"r{number}" for number in range(ROWS)])
            check(all(row.fault is None and len(row.input) > 3 * MEBIBYTE for row in rows))
            check(pages[-1].others == 1, "the input of another worker's request is not read")

        self.on_offers(case)

    def test_C6_a_page_of_large_reports_ends_early(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await Executor.of(bench, store)
            ids = [await executor.insert("NOTE", payload=large(number)) for number in range(ROWS)]
            pages = await pages_of(lambda after: store.new_reports(["step"], limit=99, largest=LARGEST, after=after))
            rows = [row for page in pages for row in page.rows]
            check([row.event_id for row in rows] == ids)
            check(all(len(row.payload or b"") > 3 * MEBIBYTE and not row.is_unread for row in rows))

        self.on_offers(case)

    def test_L10_large_responses_that_wait_are_delivered_in_their_order(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await LargeExecutor.of(bench, store, stream=StreamOptions())
            ids = [await executor.insert("RESPONSE", payload=large(number)) for number in range(ROWS)]
            await executor.handle_all()
            check([await executor.answer(each) for each in ids] == [("WAITING", TOO_EARLY)] * ROWS)
            await executor.insert("RUNNING")
            page = await store.new_reports(["step"], limit=99, largest=LARGEST)
            check(page.has_unread and len(page.rows) == ROWS + 1)
            check(await executor.handle_all() > 1)
            check([await executor.answer(each) for each in ids] == [("APPLIED", None)] * ROWS)
            yielded = [event for event in await executor.inbox() if isinstance(event, ActivityYielded)]
            values = [value.reference for event in yielded for value in (event.value, *event.more)]
            stored = await store.read_payloads(executor.record.number, values)
            check([stored[value][1:2] for value in values] == [str(number).encode() for number in range(ROWS)])
            check((await executor.attempt()).ledger == 889_000_000_000_000 + ROWS * 10**6)

        self.on_offers(case)

    def test_C10_a_deadline_waits_for_large_rows_that_were_not_read(self) -> None:
        async def case(bench: Bench, store: OpenContractStore) -> None:
            executor = await LargeExecutor.of(bench, store)
            check((await executor.report("RUNNING"))[0] == "APPLIED")
            ids = [await executor.insert("HEARTBEAT", payload=large(number)) for number in range(ROWS - 1)]
            ids.append(await executor.insert("COMPLETED", payload=large(0)))
            bench.clock.now_ms += 2 * HEARTBEAT_MS
            check(await executor.handle_all() > 1)
            check([await executor.answer(each) for each in ids] == [("APPLIED", None)] * ROWS)
            check((await executor.attempt()).state == "COMPLETED")

        self.on_offers(case)
