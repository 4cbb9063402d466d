"""Mutants of the audit of offers and rows of clients, and of guards that the simulation of executors relies on."""

from typing import Final

from tools.mutations.mutant import in_python, in_sql

VERIFY: Final = "tests/contract/test_verify_contract.py"
SIMULATION: Final = "tests/simulation/test_contract_simulation.py::test_C2_every_row_is_handled_once_in_simulated_runs"
IDLE: Final = "tests/simulation/test_contract_simulation.py::test_C2_idle_workers_do_not_poll_without_a_pause"
TWICE: Final = "tests/scenarios/test_contract_duplicates.py"
REPORTS: Final = "tests/unit/core/test_activity_events.py"
LIFECYCLE: Final = "tests/unit/core/test_lifecycle.py"

CONTRACT: Final = (
    in_python("two current offers are sound", "L7", "audit/offers", "len(current) > 1:", "len(current) > 2:", VERIFY),
    in_python(
        "an open attempt without a current offer is sound",
        "C4",
        "audit/offers",
        "attempt.state not in ATTEMPT_FINAL:",
        "not attempt.state:",
        VERIFY,
    ),
    in_python(
        "an external attempt that was never offered is sound",
        "C4",
        "audit/offers",
        "if not offers and is_open:",
        "if not offers and is_open and not attempt.state:",
        VERIFY,
    ),
    in_python(
        "the offer of a READY attempt may be claimed",
        "A2",
        "audit/offers",
        "offer.claim is not None:",
        'offer.claim == "":',
        VERIFY,
    ),
    in_python(
        "an offer may be for any entry", "L7", "audit/offers", "offer.entry != expected:", "offer.entry < 1:", VERIFY
    ),
    in_python(
        "an offer without an attempt is sound",
        "C4",
        "audit/offers",
        "for activity, dimension, number in found:",
        "for activity, dimension, number in {}:",
        VERIFY,
    ),
    in_python(
        "an external attempt that is prepared may have an owner",
        "A8",
        "core/lifecycle",
        "owned and state is not _A.QUEUED else None",
        "owned and state is _A.READY else None",
        LIFECYCLE,
    ),
    in_python(
        "any attempt may have a request to cancel it",
        "A8",
        "audit/attempts",
        "return is_after and (",
        "return (",
        VERIFY,
    ),
    in_python(
        "a worker has no time for reports that wait for nothing",
        "L10",
        "audit/contract_rows",
        "since_ms > PATIENCE_MS",
        "since_ms > 0",
        VERIFY,
    ),
    in_python(
        "a worker without the activity is to refuse its reports",
        "L10",
        "audit/contract_rows",
        "return name in _names.decode(worker.activities)",
        "return name is not None",
        VERIFY,
    ),
    in_sql(
        "a request that was accepted needs no instance",
        "C2",
        "audit_requests",
        "    OR (state = 'ACCEPTED' AND instance_number IS NULL)\n",
        "",
        VERIFY,
    ),
    in_sql(
        "a report that was handled needs no time",
        "C2",
        "audit_events",
        "    OR (state IN ('NEW', 'WAITING')) <> (handled_at_ms IS NULL)\n",
        "",
        VERIFY,
    ),
    in_sql("a request is handled by two workers", "C2", "lock_request", " AND state = 'NEW'", "", SIMULATION, TWICE),
    in_sql(
        "a report is handled although it was handled before",
        "C2",
        "open_reports",
        "?1 AND state = 'NEW'",
        "?1 AND state IN ('NEW', 'APPLIED')",
        SIMULATION,
        TWICE,
    ),
    in_sql(
        "a repeated insert of a report is another report",
        "C2",
        "insert_report",
        "ON CONFLICT (event_id) DO NOTHING",
        "ON CONFLICT (event_id) DO UPDATE SET transition = excluded.transition",
        SIMULATION,
        TWICE,
    ),
    in_python(
        "a note is kept twice after the end",
        "A7",
        "core/activity_events",
        "1 <= report.sequence <= attempt.handled_sequence",
        "report.sequence < 0",
        REPORTS,
    ),
    in_python(
        "a worker polls for rows without a pause",
        "C2",
        "runtime/duties/contract_rows",
        "self._signal.wait_within(POLL_SECONDS)",
        "self._signal.wait_within(POLL_SECONDS / 2_000)",
        IDLE,
    ),
    in_python(
        "a worker does not see the rows of its own process",
        "C2",
        "client/requests",
        "calls.session.rows_inserted(None)",
        "pass",
        TWICE,
    ),
)
