"""Checks the answers of the engine to rows of clients: requests and reports (C2, C3, L10).

Only the columns that the engine writes are checked. The columns of clients may hold anything.
"""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from holdfast.audit.problems import Finding, Rule
from holdfast.core.activity_events import ReportState
from holdfast.core.leases import WorkerState
from holdfast.storage.records import RequestState
from holdfast.storage.relational.raw_tables import (
    RawReport,
    RawRequest,
    RawStranded,
    RawTables,
    RawWorker,
    Unreadable,
)

PATIENCE_MS: Final = 60_000
"""The time that a live worker has for the reports of an attempt that has ended."""
_REQUEST_STATES: Final = frozenset(RequestState)
_REPORT_STATES: Final = frozenset(ReportState)
_OPEN: Final = frozenset({ReportState.NEW, ReportState.WAITING})
_names: Final = msgspec.json.Decoder(list[str])


def check_contract_rows(tables: RawTables, workers: Collection[RawWorker]) -> Iterator[Finding | Unreadable]:
    """Checks the tables `requests` and `activity_events`."""
    for request in tables.requests():
        if isinstance(request, Unreadable):
            yield request
        else:
            yield from _check_request(request)
    for report in tables.reports():
        if isinstance(report, Unreadable):
            yield report
        else:
            yield _report_finding(report)
    living = [worker for worker in workers if worker.state == WorkerState.ACTIVE]
    for stranded in tables.stranded():
        if isinstance(stranded, Unreadable):
            yield stranded
        elif any(_had_time(worker, stranded) for worker in living):
            text = f"report {stranded.row} waits, and its attempt has ended or was released"
            yield Rule.ROWS_HANDLED, text


def _check_request(request: RawRequest) -> Iterator[Finding]:
    state = request.state
    what = f"request {request.row}"
    if state not in _REQUEST_STATES:
        yield Rule.ROWS_READABLE, f"{what} has the unknown state {state!r}"
        return
    if bool(request.is_handled) == (state == RequestState.NEW):
        yield Rule.ROWS_HANDLED, f"{what} is {state} and has {_time(has_one=bool(request.is_handled))}"
    if bool(request.has_refusal) != (state == RequestState.REFUSED):
        yield Rule.ROWS_HANDLED, f"{what} is {state} and has {'a' if request.has_refusal else 'no'} refusal"
    if state == RequestState.ACCEPTED and request.instance_number is None:
        yield Rule.ROWS_HANDLED, f"{what} is ACCEPTED and names no instance"
    if request.instance_number is not None and not request.instances:
        yield Rule.ROWS_BELONG, f"{what} belongs to instance number {request.instance_number}, which does not exist"


def _report_finding(report: RawReport) -> Finding:
    state = report.state
    what = f"report {report.row}"
    if state not in _REPORT_STATES:
        return Rule.ROWS_READABLE, f"{what} has the unknown state {state!r}"
    if bool(report.is_handled) == (state in _OPEN):
        return Rule.ROWS_HANDLED, f"{what} is {state} and has {_time(has_one=bool(report.is_handled))}"
    return Rule.ROWS_HANDLED, f"{what} is {state} and has {'a' if report.has_refusal else 'no'} refusal"


def _time(*, has_one: bool) -> str:
    return "a time of its handling" if has_one else "no time of its handling"


def _had_time(worker: RawWorker, stranded: RawStranded) -> bool:
    """Whether a worker that has the activity was live for a minute since the report had nothing to wait for."""
    since_ms = max(worker.registered_at_ms, stranded.ended_at_ms)
    return worker.heard_at_ms - since_ms > PATIENCE_MS and _has(worker, stranded.name)


def _has(worker: RawWorker, name: str | None) -> bool:
    if name is None or worker.activities is None:
        return True
    try:
        return name in _names.decode(worker.activities)
    except (msgspec.DecodeError, RecursionError):
        return True
