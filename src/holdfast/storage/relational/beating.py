"""What a heartbeat changes: the worker is registered, or its lease is renewed, or nothing (W1-W5)."""

from holdfast.core.liveness import Heartbeat, HeartbeatReply, Renewed, WorkerKey, WorkerRecord, WorkerState, heartbeat
from holdfast.storage.contract import Registration
from holdfast.storage.relational.rows import worker_of
from holdfast.storage.relational.transaction import Transaction


def apply_beat(transaction: Transaction, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
    """Judge a heartbeat by the worker's row, and record what follows."""
    sql = transaction.sql
    rows = transaction.rows(sql.read_worker, beat.key)
    record: WorkerRecord | None = None
    if rows:
        row = worker_of(rows[0])
        record = WorkerRecord(WorkerKey(row.key), WorkerState(row.state), row.token, row.deadline_ms)
    _, reply = heartbeat(record, beat, now_ms=transaction.now_ms)
    if isinstance(reply, Renewed):
        lease = (reply.token, reply.deadline_ms, reply.lease_ms)
        if record is None:
            about = (registration.host, registration.queues, registration.build)
            code = (registration.workflows, registration.activities, registration.abandoned)
            now_ms = transaction.now_ms
            transaction.change(sql.register_worker, beat.key, *lease, *about, now_ms, registration.slots, *code)
        else:
            transaction.change(sql.renew_lease, *lease, registration.abandoned, beat.key, record.token)
    return reply
