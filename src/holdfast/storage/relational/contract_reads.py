"""The reads of a store with the tables of the open contract (C2-C4): requests, answers to reports, and offers."""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.core.activity_events import MOST_WAITING
from holdfast.storage.contract import OPEN_CONTRACT
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

LONGEST_ERROR: Final = 100_000
"""Characters of the error of a report that are read. Its message is cut anyway."""
MOST_WORKFLOWS: Final = 1_000
"""Names of workflows that are counted: a client may write any."""
_OFFER_COLUMNS: Final = len(("exec_id", "entry", "withdrawn_at_ms"))
_MANUAL: Final = RequestRecord.__struct_fields__.index("manual")


class OpenContractReads(RelationalReads):
    """Reads of committed data, with those of the open contract."""

    capabilities: frozenset[str] = frozenset({OPEN_CONTRACT})

    async def new_requests(
        self, workflows: Sequence[str], *, limit: int, largest: int, after: int = 0
    ) -> RowPage[RequestRow]:
        rows = await self._read(self.sql.new_requests, json.dumps(workflows), largest, limit, after)
        found = [request_of(row) for row in rows if row[-1]]
        return RowPage(rows=found, others=len(rows) - len(found), last_row=rows[-1][0] if rows else None)

    async def new_reports(
        self, names: Sequence[str], *, limit: int, largest: int, after: int = 0
    ) -> RowPage[ReportRow]:
        rows = await self._read(self.sql.new_reports, json.dumps(names), largest, LONGEST_ERROR, limit, after)
        found = [report_of(row) for row in rows if row[-1]]
        page = RowPage(rows=found, others=len(rows) - len(found), last_row=rows[-1][0] if rows else None)
        waiting = {
            report.exec_id for report, row in zip(found, (row for row in rows if row[-1]), strict=True) if row[-2]
        }
        for exec_id in waiting:
            others = await self.reports_of(exec_id, limit=limit + MOST_WAITING, largest=largest)
            found = [*(report for report in found if report.exec_id != exec_id), *others]
        return msgspec.structs.replace(page, rows=found)

    async def reports_of(self, exec_id: str, *, limit: int, largest: int) -> list[ReportRow]:
        rows = await self._read(self.sql.reports_of, exec_id, largest, LONGEST_ERROR, limit)
        return [report_of(row) for row in rows]

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


def _request_of(row: Row) -> RequestRecord:
    values: list[Any] = [_text(value) if isinstance(value, bytes) else value for value in row]
    values[_MANUAL] = bool(row[_MANUAL])  # 0 or 1 in SQLite
    return RequestRecord(*values)


def _text(value: str | bytes) -> str:
    """A text of a client, which may be no UTF-8 in SQLite."""
    return value if isinstance(value, str) else value.decode(errors="replace")
