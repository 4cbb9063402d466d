"""Mutants of the rows that clients insert, of the offers that executors see, and of programs that they run."""

from typing import Final

from tools.mutations.mutant import in_python, in_sql

ROWS: Final = "tests/unit/cli/test_start.py"
COMMANDS: Final = "tests/workers/test_shell.py"
STEADY: Final = "tests/unit/cli/test_steady_reports.py"
PROGRAMS: Final = "tests/unit/cli/test_program.py"

SHELL: Final = (
    in_sql(
        "a repeated request replaces the first one",
        "C2",
        "insert_request",
        "DO NOTHING",
        "DO UPDATE SET workflow = excluded.workflow",
    ),
    in_sql(
        "a repeated report is inserted again",
        "C2",
        "insert_report",
        "DO NOTHING",
        "DO UPDATE SET transition = excluded.transition",
    ),
    in_python(
        "a request is inserted at another time than the store's",
        "C2",
        "storage/relational/apply/contract_inserts",
        "        request.source,\n        transaction.now_ms,\n",
        "        request.source,\n        0,\n",
    ),
    in_sql("a trace is left for a worker to start", "C3", "mark_trace", "SET state = 'TRACE'", "SET state = 'NEW'"),
    in_python(
        "a start is traced only if it is new",
        "C3",
        "storage/relational/apply/instances",
        "start.trace is not None and isinstance(outcome, StartedInstance):",
        "start.trace is not None and isinstance(outcome, StartedInstance) and outcome.created:",
    ),
    in_sql(
        "an offer is open after it was withdrawn",
        "A2",
        "open_offers",
        " AND offers.withdrawn_at_ms IS NULL",
        "",
    ),
    in_sql("an offer is open after it was claimed", "A2", "open_offers", "attempts.state = 'READY' AND ", ""),
    in_sql("an offer is open before it is available", "C4", "open_offers", "attempts.available_at_ms <= ?1", "?1 > 0"),
    in_python(
        "an offer is current after its attempt has ended",
        "A7",
        "storage/records",
        "self.withdrawn_at_ms is None and self.attempt.closed_at_ms is None",
        "self.withdrawn_at_ms is None",
    ),
    in_python(
        "the large input of an offer is a reference",
        "C4",
        "storage/relational/contract_reads",
        "        if reference:\n",
        "        if reference and exec_id is None:\n",
    ),
    in_python(
        "another request under the same id is taken for the same",
        "C2",
        "client/requests",
        "if not is_new and (difference",
        "if is_new and (difference",
        ROWS,
    ),
    in_python(
        "a program that failed has a result",
        "C4",
        "cli/program",
        "        if code != 0:\n",
        "        if code > 255:\n",
        PROGRAMS,
    ),
    in_python(
        "the last line without an end is no response",
        "L4",
        "cli/program",
        "await self._take_line(bytes(self._output))",
        "await self._take_line(b'')",
        PROGRAMS,
    ),
    in_python(
        "a program that ignores SIGTERM runs on",
        "A6",
        "cli/program",
        "        self._signal(signal.SIGKILL)\n\n    def _signal",
        "\n    def _signal",
        PROGRAMS,
    ),
    in_python(
        "a report under another claim is refused like any other",
        "A2",
        "cli/activity",
        "answer.refusal.endswith(OTHER_CLAIM)",
        "answer.refusal == OTHER_CLAIM",
        f"{COMMANDS}::test_A2_of_two_claimants_one_has_the_activity",
    ),
    in_python(
        "a claim does not wait",
        "C4",
        "cli/activity",
        "ends_at = loop.time() + wait_seconds",
        "ends_at = loop.time()",
        f"{COMMANDS}::test_C4_a_claim_waits_until_an_activity_is_open",
    ),
    in_python(
        "an activity that waits for an executor is stuck",
        "C4",
        "client/views/obstacles",
        "for attempt in waiting if is_external(attempt)]",
        "for attempt in waiting if is_external(attempt) and not live]",
        "tests/scenarios/test_execution_details.py",
    ),
    in_python(
        "a report is lost with an outage of the store",
        "A5",
        "cli/steady_reports",
        "if self._is_over() or loop.time()",
        "if loop.time() or loop.time()",
        STEADY,
    ),
    in_python(
        "a report that is repeated has another id",
        "C2",
        "cli/steady_reports",
        "event_id=event_id or self._new_id()",
        "event_id=event_id",
        STEADY,
    ),
    in_python(
        "a command that has to end waits for the store",
        "A5",
        "cli/steady_reports",
        "if self._is_over() or loop.time()",
        "if loop.time()",
        STEADY,
    ),
    in_python(
        "an earlier execution waits for something",
        "G4",
        "cli/show",
        "if not waits and self._report.execution.is_newest:",
        "if not waits:",
        "tests/unit/cli/test_show_executions.py",
    ),
)
