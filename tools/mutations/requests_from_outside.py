"""Mutants of requests of clients: one activity that is cancelled, a blocked instance that is retried, a later start."""

from typing import Final

from tools.mutations.mutant import in_python, in_sql

CANCELS: Final = "tests/scenarios/test_cancel_activity.py"
DETAILS: Final = "tests/scenarios/test_execution_details.py"
LATER: Final = "tests/scenarios/test_later_starts.py"

FROM_OUTSIDE: Final = (
    in_python(
        "the answer of a cancelled activity is never sent",
        "A1",
        "storage/attempt_endings",
        "attempt.state is not AttemptState.CANCELLED_RUNNING or attempt.cancel_requested_at_ms is not None",
        "attempt.state is not AttemptState.CANCELLED_RUNNING",
    ),
    in_python(
        "a workflow gets the answer of an activity that it cancelled itself",
        "A1",
        "storage/attempt_endings",
        "attempt.state is not AttemptState.CANCELLED_RUNNING or attempt.cancel_requested_at_ms is not None",
        "True",
    ),
    in_python(
        "a failure after the cancel is retried",
        "A1",
        "storage/relational/apply/attempts",
        "if end_as_cancelled(transaction, retry.ended, by_owner=retry.by_owner):",
        "if retry.ended.to_state is AttemptState.COMPLETED:",
    ),
    in_python(
        "a turn applies a failure that was committed after the cancel",
        "A1",
        "storage/relational/apply/attempts",
        "_cancel_requested_for(transaction, completion) is not None:",
        "completion.values == -1:",
    ),
    in_python(
        "a rejected turn loses the end of a cancelled activity",
        "A1",
        "storage/relational/apply/turns",
        "attempts.end_as_cancelled(transaction, completion, by_owner=completion.by_owner)",
        "pass",
    ),
    in_python(
        "an activity of an ended execution is cancelled",
        "G4",
        "storage/relational/apply/attempts",
        "gate[0][0] not in INSTANCE_FINAL and gate[0][1] == member.execution",
        "True",
    ),
    in_python(
        "the loss of the worker of a cancelled activity is not answered",
        "W6",
        "storage/relational/apply/workers",
        "attempts.apply_completion(transaction, end_by_cancel(attempt, event, now_ms=transaction.now_ms))",
        "attempts.close_by_completion(transaction, end_by_cancel(attempt, event, now_ms=0), attempt.ledger)",
    ),
    in_python(
        "a heartbeat does not tell that the workflow waits",
        "A6",
        "storage/relational/apply/attempts",
        "CANCEL_REQUESTED if cancel_requested_at_ms is None else CANCEL_AWAITED",
        "CANCEL_REQUESTED",
    ),
    in_python(
        "the worker of this process does not stop a cancelled body",
        "A6",
        "runtime/worker",
        "self.attempts.cancel_attempt(key, is_awaited=True)",
        "pass",
        CANCELS,
    ),
    in_python(
        "a closed call is cancelled",
        "A1",
        "client/activity_names",
        "if not calls[place - 1].recorded.is_open:",
        "if not calls:",
        CANCELS,
    ),
    in_sql("a retry leaves the builds that blocked it", "G12", "retry_blocked", "blocked_by = NULL, ", ""),
    in_sql("a retried instance is not claimable", "G12", "retry_blocked", ", claimable_at_ms = 0", ""),
    in_python(
        "an update starts an instance before its time",
        "G15",
        "storage/relational/apply/messages",
        "wakes=found.may_begin(transaction.now_ms),",
        "wakes=True,",
    ),
    in_python(
        "a later start is claimable at once",
        "G15",
        "storage/relational/apply/instances",
        "None if first else start.start_at_ms or 0,\n        first.stamp_ms",
        "None if first else 0,\n        first.stamp_ms",
    ),
    in_python(
        "a later start runs its first turn at once",
        "G15",
        "client/embedded_worker",
        "            and start.start_at_ms is None\n",
        "",
        LATER,
    ),
    in_python(
        "the code of a later start begins at the time of the request",
        "G15",
        "runtime/turns/turn_builder",
        "if start.start_at_ms is not None and start.start_at_ms > started.time_ms:",
        "if not start.workflow:",
        LATER,
    ),
    in_sql(
        "the deadline of a later start counts from the request",
        "G15",
        "set_deadline",
        "deadline_at_ms = CASE WHEN start_at_ms > created_at_ms THEN",
        "deadline_at_ms = CASE WHEN 0 THEN",
    ),
    in_sql("a note that was refused is shown", "A7", "read_notes", "AND activity_events.state = 'APPLIED'", ""),
    in_sql("notes of all executions are shown", "A7", "read_notes", "AND offers.execution = ?", "AND ? > 0"),
    in_python(
        "an earlier execution is shown with the input of the newest",
        "G4",
        "client/views/report",
        "if not execution.is_newest and isinstance(started, Started):",
        "if isinstance(started, str):",
        DETAILS,
    ),
    in_python(
        "the composite of code leaves out its children",
        "K6",
        "client/views/report",
        "return key, await read_code_composite(store, record, execution.recorded)",
        "return key, key",
        DETAILS,
    ),
    in_python(
        "a flow that was started by name has no key before its first turn",
        "K1",
        "client/views/report",
        "stored = await _first_key(store, record)",
        "pass",
        DETAILS,
    ),
)
