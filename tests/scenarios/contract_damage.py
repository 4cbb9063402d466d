"""What offers and rows of clients can suffer: a rule, the instance that is blamed, and the statement of the damage."""

from holdfast.audit.problems import Rule

OF = "(SELECT number FROM instances WHERE id = 'ID')"


def of(instance: str, statement: str) -> str:
    """A statement about one instance."""
    return statement.replace("OF", OF.replace("ID", instance))


COPIED = """INSERT INTO offers (exec_id, number, execution, activity, attempt, entry, name)
    SELECT exec_id || '+', number, execution, activity, attempt, entry + 1, name FROM offers WHERE number = OF"""
ELSEWHERE = """INSERT INTO offers (exec_id, number, execution, activity, attempt, entry, name)
    SELECT exec_id || '+', number, execution, 9, attempt, 1, name FROM offers WHERE number = OF"""
OWNED = "UPDATE attempts SET owner = (SELECT max(key) FROM workers) WHERE number = OF"
CANCELLED = "UPDATE attempts SET cancel_requested_at_ms = 1 WHERE number = OF"
CONTRACT_DAMAGE = [
    # rule, instance, statement
    *(
        (Rule.OFFERS_AGREE, phase, of(phase, "DELETE FROM offers WHERE number = OF"))
        for phase in ("ready", "queued", "preparing", "running", "stopping", "released")
    ),
    *(
        (Rule.OFFERS_AGREE, phase, of(phase, "UPDATE offers SET withdrawn_at_ms = 1 WHERE number = OF"))
        for phase in ("ready", "queued", "preparing", "running", "stopping", "released")
    ),
    (Rule.OFFERS_AGREE, "retried", of("retried", "DELETE FROM offers WHERE number = OF AND attempt = 1")),
    *((Rule.OFFERS_AGREE, phase, of(phase, COPIED)) for phase in ("ready", "running", "done")),
    (Rule.OFFERS_AGREE, "ready", of("ready", ELSEWHERE)),
    (Rule.OFFERS_AGREE, "done", of("done", ELSEWHERE)),
    (Rule.OFFERS_AGREE, "ready", of("ready", "UPDATE offers SET claim = 'x' WHERE number = OF")),
    (
        Rule.OFFERS_AGREE,
        "released",
        of("released", "UPDATE offers SET claim = 'x' WHERE number = OF AND withdrawn_at_ms IS NULL"),
    ),
    (
        Rule.OFFERS_AGREE,
        "released",
        of("released", "UPDATE offers SET entry = 2 WHERE number = OF AND withdrawn_at_ms IS NOT NULL"),
    ),
    (Rule.OFFERS_AGREE, "ready", of("ready", "UPDATE offers SET entry = 2 WHERE number = OF")),
    (Rule.OFFERS_AGREE, "running", of("running", "UPDATE offers SET entry = 2 WHERE number = OF")),
    (Rule.OFFERS_AGREE, "ready", of("ready", "UPDATE offers SET name = 'other' WHERE number = OF")),
    (Rule.ROWS_READABLE, "running", of("running", "UPDATE offers SET sequences = '{' WHERE number = OF")),
    (Rule.ROWS_BELONG, "", of("done", "UPDATE offers SET number = 999 WHERE number = OF")),
    *(
        (Rule.LEDGER_AGREES, phase, of(phase, OWNED))
        for phase in ("ready", "preparing", "running", "stopping", "released")
    ),
    *(
        (Rule.LEDGER_AGREES, phase, of(phase, CANCELLED))
        for phase in ("ready", "queued", "preparing", "running", "released")
    ),
    (Rule.ROWS_HANDLED, "", "UPDATE requests SET handled_at_ms = NULL WHERE request_id = 'r-done'"),
    (Rule.ROWS_HANDLED, "", "UPDATE requests SET refusal = 'no' WHERE request_id = 'r-done'"),
    (Rule.ROWS_HANDLED, "", "UPDATE requests SET instance_number = NULL WHERE request_id = 'r-done'"),
    (Rule.ROWS_BELONG, "", "UPDATE requests SET instance_number = 999 WHERE request_id = 'r-done'"),
    (Rule.ROWS_HANDLED, "", "UPDATE requests SET refusal = NULL WHERE request_id = 'r-refused'"),
    (Rule.ROWS_HANDLED, "", "UPDATE requests SET handled_at_ms = 1 WHERE request_id = 'r-unserved'"),
    (Rule.ROWS_READABLE, "", "UPDATE requests SET state = 'GONE' WHERE request_id = 'r-done'"),
    (Rule.ROWS_READABLE, "", "UPDATE activity_events SET state = 'GONE' WHERE transition = 'HEARTBEAT'"),
    (Rule.ROWS_HANDLED, "", "UPDATE activity_events SET handled_at_ms = NULL WHERE transition = 'HEARTBEAT'"),
    (Rule.ROWS_HANDLED, "", "UPDATE activity_events SET state = 'REFUSED' WHERE transition = 'HEARTBEAT'"),
    (Rule.ROWS_HANDLED, "", "UPDATE activity_events SET refusal = 'no' WHERE transition = 'HEARTBEAT'"),
    (Rule.ROWS_HANDLED, "", "UPDATE activity_events SET handled_at_ms = 1 WHERE state = 'WAITING'"),
]
LIVE = "UPDATE workers SET state = 'ACTIVE', registered_at_ms = 1, deadline_ms = 9000000000000, lease_ms = 1"
STRANDED = """UPDATE activity_events SET activity_exec_id = (SELECT exec_id FROM offers WHERE number = OF
    ORDER BY entry LIMIT 1) WHERE state = 'WAITING'"""
STRANDINGS = [
    of("done", STRANDED),
    of("released", STRANDED),
    STRANDED.replace("OF", "-1").replace("(SEL", "coalesce((SEL").replace("LIMIT 1)", "LIMIT 1), 'gone')"),
]
"""A report that waits is moved to an attempt that has ended, to one that was released, and to no attempt."""
