"""The reads of a store with the tables of the open contract (C2-C4): requests, answers to reports, and offers."""

import json
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from holdfast.core.activity_events import MOST_WAITING, ReportState
from holdfast.payloads.limits import KIBIBYTE, MEBIBYTE
from holdfast.storage.contract import CODE_CHECKS, COUNTS, OPEN_CONTRACT, PAUSE, RESTORE
from holdfast.storage.large_payloads import reference_of
from holdfast.storage.records import (
    AttemptKey,
    InstanceNumber,
    NoteRow,
    OfferRecord,
    ReportAnswer,
    ReportRow,
    RequestRecord,
    RequestRow,
    RowPage,
)
from holdfast.storage.relational.reads import RelationalReads
from holdfast.storage.relational.rows import attempt_of, report_of, request_of
from holdfast.storage.relational.transaction import Row

RowT = TypeVar("RowT")

LONGEST_ERROR: Final = 100_000
"""Characters of the error of a report that are read. Its message is cut anyway."""
LONGEST_CLAIM_BYTES: Final = 1_024
SMALL_BYTES: Final = 8 * KIBIBYTE
"""Values up to this size are read with their page. Larger ones are read one by one."""
MOST_LARGE_BYTES: Final = 4 * MEBIBYTE
"""The larger values of one page together, but for the last one: they are in memory, checked and committed at once."""
MOST_WORKFLOWS: Final = 1_000
"""Names of workflows that are counted: a client may write any."""
_OFFER_COLUMNS: Final = len(("exec_id", "entry", "withdrawn_at_ms"))
_MANUAL: Final = RequestRecord.__struct_fields__.index("manual")
_ABOUT_INSTANCES: Final = frozenset({"event", "cancel"})
_KIND: Final = 2
_EXEC_ID: Final = 2
_INSTANCE_ID: Final = 4
_INPUT: Final = 6
_PAYLOAD: Final = 7
_ERROR: Final = 9
_STATE: Final = 18
"""Places of columns in the statements; the size of a value is behind it."""


class _Page(Generic[RowT]):
    """A page of rows while it is read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: list[RowT] = []
        self._passed = self._others = self._large_bytes = 0
        self._last_row: int | None = None
        self._is_cut = False

    def takes(self, size_bytes: int) -> bool:
        """Whether the page takes a value of this size, which is counted. If not, the page ends before its row."""
        self._is_cut |= self._large_bytes >= MOST_LARGE_BYTES
        self._large_bytes += size_bytes
        return not self._is_cut

    def add(self, row: Row, found: Sequence[RowT], *, is_mine: bool = True) -> None:
        """The rows that one row of the statement stands for; none if another worker has to handle it."""
        self._passed += 1
        self._others += not is_mine
        self._found.extend(found)
        self._last_row = row[0]

    def end(self) -> RowPage[RowT]:
        return RowPage(
            rows=self._found,
            others=self._others,
            last_row=self._last_row,
            has_more=self._is_cut or self._passed >= self._limit,
            has_unread=any(isinstance(row, ReportRow) and row.is_unread for row in self._found),
        )


class OpenContractReads(RelationalReads):
    """Reads of committed data, with those of the open contract."""

    capabilities: frozenset[str] = frozenset({OPEN_CONTRACT, PAUSE, RESTORE, COUNTS, CODE_CHECKS})

    async def has_new_rows(self) -> bool:
        [(found,)] = await self._read(self.sql.has_new_rows)
        return bool(found)

    async def new_requests(
        self, workflows: Sequence[str], *, limit: int, largest: int, after: int = 0
    ) -> RowPage[RequestRow]:
        given = json.dumps(workflows), min(largest, SMALL_BYTES), limit, after
        page: _Page[RequestRow] = _Page(limit)
        rows = await self._read(self.sql.new_requests, *given)
        behind_starts = await self._behind_starts(rows, workflows)
        for row in rows:
            if not row[-1] or row[0] in behind_starts:
                page.add(row, [], is_mine=False)
            elif not _is_large(row, _INPUT, largest):
                page.add(row, [request_of(row)])
            elif not page.takes(row[_INPUT + 1]):
                break
            else:
                values = await self._read(self.sql.read_input, row[0])
                page.add(row, [request_of(_with(row, _INPUT, value)) for (value,) in values])
        return page.end()

    async def _behind_starts(self, rows: Sequence[Row], workflows: Sequence[str]) -> set[int]:
        """The events and cancels among these rows whose instance does not exist because its start is NEW.

        The start was inserted before them, and only another worker can handle it. They are left to that worker.
        """
        targets = {
            row[0]: _text(row[_INSTANCE_ID])
            for row in rows
            if row[_INSTANCE_ID] is not None and _text(row[_KIND]) in _ABOUT_INSTANCES
        }
        if not targets:
            return set()
        ids = json.dumps(sorted(set(targets.values())))
        found = await self._read(self.sql.pending_starts, ids, json.dumps(workflows))
        starts = {_text(instance_id): row for instance_id, row in found}
        return {row for row, target in targets.items() if starts.get(target, row) < row}

    async def new_reports(
        self, names: Sequence[str], *, limit: int, largest: int, after: int = 0
    ) -> RowPage[ReportRow]:
        given = json.dumps(names), min(largest, SMALL_BYTES), LONGEST_CLAIM_BYTES, limit, after
        page: _Page[ReportRow] = _Page(limit)
        with_others: set[object] = set()
        for row in await self._read(self.sql.new_reports, *given):
            if not row[-1] or row[_EXEC_ID] in with_others:
                page.add(row, [], is_mine=bool(row[-1]))
            elif row[-2]:  # rows of the same attempt wait
                if not page.takes(0):
                    break
                with_others.add(row[_EXEC_ID])
                exec_id = report_of(row).exec_id
                page.add(row, await self._reports_of(exec_id, limit + MOST_WAITING, largest, page))
            elif (found := await self._with_values(row, largest, page)) is not None:
                page.add(row, [found])
            else:
                break
        return page.end()

    async def reports_of(self, exec_id: str, *, limit: int, largest: int) -> list[ReportRow]:
        return await self._reports_of(exec_id, limit, largest, _Page(limit))

    async def _reports_of(self, exec_id: str, limit: int, largest: int, page: "_Page[ReportRow]") -> list[ReportRow]:
        """The values of NEW rows first: one of them is always read, so that each commit handles some row."""
        rows = await self._read(self.sql.reports_of, exec_id, min(largest, SMALL_BYTES), LONGEST_CLAIM_BYTES, limit)
        found: list[ReportRow] = []
        for row in sorted(rows, key=lambda row: (row[_STATE] != ReportState.NEW, row[0])):
            read = await self._with_values(row, largest, page)
            found.append(msgspec.structs.replace(_without_values(row), is_unread=True) if read is None else read)
        return sorted(found, key=lambda report: report.row)

    async def _with_values(self, row: Row, largest: int, page: "_Page[ReportRow]") -> ReportRow | None:
        """A report with its values; None if the page takes no more large ones."""
        is_large = [_is_large(row, place, largest) for place in (_PAYLOAD, _ERROR)]
        if not any(is_large):
            return report_of(row)
        if not page.takes((row[_PAYLOAD + 1] or 0) + min(row[_ERROR + 1] or 0, LONGEST_ERROR)):
            return None
        for payload, error in await self._read(self.sql.read_values, row[0], LONGEST_ERROR):
            for place, value, is_read in zip((_PAYLOAD, _ERROR), (payload, error), is_large, strict=True):
                row = _with(row, place, value) if is_read else row
        return report_of(row)

    async def current_offer(self, key: AttemptKey) -> str | None:
        rows = await self._read(self.sql.current_offer, *key.primary_key)
        return rows[0][0] if rows else None

    async def has_new_report(self, exec_id: str) -> bool:
        return bool(await self._read(self.sql.has_new_report, exec_id))

    async def stranded_offers(self, limit: int) -> list[str]:
        return [exec_id for (exec_id,) in await self._read(self.sql.stranded_offers, limit)]

    async def read_request(self, request_id: str) -> RequestRecord | None:
        rows = await self._read(self.sql.read_request, request_id)
        return _request_of(rows[0]) if rows else None

    async def list_requests(self, *, before: int, limit: int, state: str | None = None) -> list[RequestRecord]:
        return [_request_of(row) for row in await self._read(self.sql.list_requests, before, state, limit)]

    async def count_new_requests(self) -> dict[str, int]:
        rows = await self._read(self.sql.count_new_requests, MOST_WORKFLOWS)
        return {_text(workflow): count for workflow, count in rows}

    async def read_report(self, event_id: str) -> ReportAnswer | None:
        rows = await self._read(self.sql.read_report, event_id)
        for state, refusal, cancel_requested, handled_at_ms in rows:
            return ReportAnswer(
                state=state, refusal=refusal, cancel_requested=bool(cancel_requested), handled_at_ms=handled_at_ms
            )
        return None

    async def read_offer(self, exec_id: str) -> OfferRecord | None:
        rows = await self._read(self.sql.read_offer, exec_id)
        return await self._offer_of(rows[0]) if rows else None

    async def open_activities(
        self, *, limit: int, queues: Sequence[str] | None = None, names: Sequence[str] | None = None
    ) -> list[OfferRecord]:
        rows = await self._read(
            self.sql.open_offers,
            self.now_ms(),
            None if queues is None else json.dumps(queues),
            None if names is None else json.dumps(names),
            limit,
        )
        return [await self._offer_of(row) for row in rows]

    async def count_open_activities(self) -> dict[str, int]:
        return dict(await self._read(self.sql.count_open_offers, self.now_ms()))

    async def read_notes(self, number: InstanceNumber, execution: int, *, limit: int) -> list[NoteRow]:
        rows = await self._read(self.sql.read_notes, number, execution, limit)
        return [
            NoteRow(
                key=AttemptKey(*key), payload=payload, source=source, sent_at=sent_at, inserted_at_ms=inserted_at_ms
            )
            for *key, payload, source, sent_at, inserted_at_ms in reversed(rows)
        ]

    async def newest_flow(self, name: str) -> bytes | None:
        rows = await self._read(self.sql.newest_flow, name)
        return bytes(rows[0][0]) if rows else None

    async def _offer_of(self, row: Row) -> OfferRecord:
        """An offer whose input is in place: an executor cannot read the table of large payloads."""
        exec_id, entry, withdrawn_at_ms = row[:_OFFER_COLUMNS]
        attempt = attempt_of(row[_OFFER_COLUMNS:])
        reference = reference_of(attempt.input)
        if reference:
            payloads = await self.read_payloads(attempt.key.number, [reference])
            attempt = msgspec.structs.replace(attempt, input=payloads.get(reference, attempt.input))
        return OfferRecord(exec_id=exec_id, entry=entry, withdrawn_at_ms=withdrawn_at_ms, attempt=attempt)


def _is_large(row: Row, place: int, largest: int) -> bool:
    """Whether a value was not read with its page, and is not refused by its size."""
    return row[place] is None and row[place + 1] is not None and row[place + 1] <= largest


def _with(row: Row, place: int, value: object) -> Row:
    return (*row[:place], value, *row[place + 1 :])


def _without_values(row: Row) -> ReportRow:
    for place in (_PAYLOAD, _ERROR):
        row = _with(_with(row, place, None), place + 1, None)
    return report_of(row)


def _request_of(row: Row) -> RequestRecord:
    values: list[Any] = [_text(value) if isinstance(value, bytes) else value for value in row]
    values[_MANUAL] = bool(row[_MANUAL])  # 0 or 1 in SQLite
    return RequestRecord(*values)


def _text(value: str | bytes) -> str:
    """A text of a client, which may be no UTF-8 in SQLite."""
    return value if isinstance(value, str) else value.decode(errors="replace")
