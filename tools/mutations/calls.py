"""Mutants of calls: options per call, cancelled calls, retries of executions, verdicts on messages."""

from typing import Final

from tools.mutations.mutant import in_python

PER_CALL: Final = "tests/scenarios/test_options_per_call.py"
ON_CANCEL: Final = "tests/scenarios/test_on_cancel.py"
RETRIES: Final = "tests/scenarios/test_workflow_retries.py"
INFORMATION: Final = "tests/scenarios/test_information.py"

CALLS: Final = (
    in_python(
        "a call does not decide where its body runs",
        "A15",
        "runtime/attempts/running_attempt",
        "return activity.process if chosen is UNSET or activity.is_stand_in else chosen",
        "return activity.process",
        PER_CALL,
    ),
    in_python(
        "options of a call are not checked against its activity",
        "A15",
        "authoring/activity",
        "        check_options(self.fn, options, process=in_process)\n        return options",
        "        return options",
        PER_CALL,
    ),
    in_python(
        "a child replaces an instance above it",
        "G3",
        "storage/relational/apply/children",
        "case StartVerdict.REPLACE if not _is_above(transaction, existing.number, parent):",
        "case StartVerdict.REPLACE:",
        PER_CALL,
    ),
    in_python(
        "a child replaces an open instance with the policy reuse",
        "G3",
        "core/admission",
        "return StartVerdict.REPLACE if policy is IdPolicy.TERMINATE_EXISTING else StartVerdict.CONFLICT",
        "return StartVerdict.REPLACE",
        PER_CALL,
    ),
    in_python(
        "a cancelled call does not wait for its body",
        "A14",
        "replay/activities",
        "            if number in self._waits:",
        "            if number in self._waits and False:",
        ON_CANCEL,
    ),
    in_python(
        "an abandoned body is asked to stop",
        "A14",
        "runtime/attempts/runner",
        "if is_abandoned and requested_at_ms is None:",
        "if False:",
        ON_CANCEL,
    ),
    in_python(
        "a request from outside does not stop an abandoned body",
        "A14",
        "runtime/attempts/runner",
        "if is_abandoned and requested_at_ms is None:",
        "if is_abandoned:",
        ON_CANCEL,
    ),
    in_python(
        "a cancelled execution is retried",
        "G18",
        "replay/run",
        "if policy is None or self._cancel_reason is not None:",
        "if policy is None:",
        RETRIES,
    ),
    in_python(
        "a retried execution begins at once",
        "G18",
        "replay/run",
        "if started.begins_at_ms > started.time_ms:",
        "if False:",
        RETRIES,
    ),
    in_python(
        "a failed execution takes events that are for its retry",
        "G18",
        "replay/run",
        "find_continuation(error) is not None or self._retry_of(error) is not None",
        "find_continuation(error) is not None",
        RETRIES,
    ),
    in_python(
        "a late wait for a verdict does not send the message again",
        "G19",
        "replay/events",
        "        if not is_late:\n            sending.remove(sent)\n        sending.append(",
        "        if not is_late:\n            sending.remove(sent)\n            sending.append(",
        ON_CANCEL,
    ),
    in_python(
        "the details of the last heartbeat before a failure are lost",
        "A6",
        "runtime/attempts/runner",
        "        running.note_newest_details()\n",
        "",
        INFORMATION,
    ),
)
