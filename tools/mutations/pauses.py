"""Mutants of pauses (R20-R27)."""

from typing import Final

from tools.mutations.mutant import in_python, in_sql

PAUSES: Final = "tests/scenarios/test_pause.py"
EXHAUSTED: Final = "tests/scenarios/test_pause_exhausted.py"

PAUSING: Final = (
    in_sql("a pause leaves the fence", "R20", "pause_instance", "fence = fence + 1, owner = NULL, ", ""),
    in_sql("a paused instance stays claimable", "R20", "pause_instance", ", claimable_at_ms = NULL", ""),
    in_python(
        "a pause leaves the attempts that wait",
        "R21",
        "storage/relational/apply/withholding",
        "    transaction.execute(transaction.sql.withhold_attempts, number)\n",
        "",
    ),
    in_python(
        "a retry of a paused instance can be claimed",
        "R21",
        "storage/relational/apply/attempts",
        "is_withheld = state is InstanceState.PAUSED or retry.exhausted is not None",
        "is_withheld = retry.exhausted is not None",
    ),
    in_python(
        "a released attempt of a paused instance can be claimed",
        "R21",
        "storage/relational/apply/attempts",
        "        available_at_ms = withheld_ms(available_at_ms)\n",
        "",
    ),
    in_sql(
        "deadlines of attempts go on during a pause",
        "R22",
        "restore_attempts",
        "expires_at_ms - 1152921504606846976 + ?3 - ?2",
        "expires_at_ms - 1152921504606846976",
    ),
    in_sql(
        "a pause takes from the time for all attempts",
        "R22",
        "restore_attempts",
        "scheduled_at_ms = scheduled_at_ms + ?3 - ?2",
        "scheduled_at_ms = scheduled_at_ms",
    ),
    in_python(
        "a resume makes no attempt available",
        "R22",
        "storage/relational/apply/withholding",
        "transaction.execute(transaction.sql.restore_attempts, paused.number, since_ms, transaction.now_ms)",
        "pass",
    ),
    in_python(
        "a cancel leaves the attempts withheld",
        "R23",
        "storage/relational/apply/instance_endings",
        "        restore_attempts(transaction, found)\n",
        "",
    ),
    in_python(
        "an instance that has not begun returns as running",
        "R23",
        "storage/relational/apply/pauses",
        "InstanceEvent.RESUME if found.has_begun else InstanceEvent.RESUME_REQUESTED",
        "InstanceEvent.RESUME",
    ),
    in_python(
        "a deadline ends a paused instance",
        "R25",
        "core/deadlines",
        "        _I.PAUSED: _D.HOLD,\n",
        "        _I.PAUSED: _D.END,\n",
    ),
    in_python(
        "a resume forgets the deadline that has passed",
        "R25",
        "storage/relational/apply/pauses",
        "at_ms <= transaction.now_ms",
        "at_ms < 0",
    ),
    in_python(
        "the cancel of a late deadline comes behind the messages",
        "R25",
        "runtime/turns/live_instance",
        "next(later, len(self.queue))",
        "len(self.queue)",
        PAUSES,
    ),
    in_python(
        "used up retries fail the activity",
        "R26",
        "storage/attempt_endings",
        "if options.pauses and decision.is_exhausted:",
        "if False:",
    ),
    in_python(
        "a failure that is never retried pauses the instance",
        "R26",
        "storage/attempt_endings",
        "if options.pauses and decision.is_exhausted:",
        "if options.pauses:",
        EXHAUSTED,
    ),
    in_python(
        "an instance that was asked to cancel is paused",
        "R26",
        "storage/relational/apply/attempts",
        "and state is not InstanceState.PAUSED and not may_pause(state)",
        "and False",
    ),
    in_python(
        "a failure is not let through",
        "R27",
        "storage/relational/apply/pauses",
        "        answer_exhausted(transaction, number)\n",
        "        pass\n",
    ),
    in_python(
        "a stale instance answers queries",
        "R20",
        "runtime/queries",
        "            await self._evict_if_stale(self._local, number, known)\n",
        "",
        PAUSES,
    ),
)
