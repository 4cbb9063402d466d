"""Apply inserts into the tables of the open contract (C2, C3).

The time of an insert is the store's own (W9), because expiry compares it with deadlines. The columns of the engine stay
at their defaults: a later transaction of a worker writes them.
"""

from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.storage.members.outcomes import Applied, Outcome
from holdfast.storage.records import InstanceNumber
from holdfast.storage.relational.transaction import Transaction


def apply_insert_request(transaction: Transaction, request: InsertRequest) -> Outcome:
    """Insert a request, unless its id is taken: then it is the same request."""
    changed = transaction.update(
        transaction.sql.insert_request,
        request.request_id,
        request.kind,
        request.workflow,
        request.instance_id,
        request.event_name,
        request.input,
        request.policy,
        request.start_at_ms,
        request.deadline_after_ms,
        request.manual,
        request.source,
        transaction.now_ms,
    )
    return Applied(changed=changed)


def apply_insert_report(transaction: Transaction, report: InsertReport) -> Outcome:
    """Insert a report, unless its id is taken: then it is the same report."""
    changed = transaction.update(
        transaction.sql.insert_report,
        report.event_id,
        report.activity_exec_id,
        report.claim,
        report.transition,
        report.sequence,
        report.payload,
        report.error,
        report.source,
        report.sent_at,
        transaction.now_ms,
    )
    return Applied(changed=changed)


def insert_trace(transaction: Transaction, trace: InsertRequest, number: InstanceNumber) -> None:
    """C3: insert the trace of a start that this transaction has applied. No worker sees the row in the state NEW."""
    apply_insert_request(transaction, trace)
    transaction.update(transaction.sql.mark_trace, trace.request_id, number, transaction.now_ms)
