"""The executions of one instance before its last (G4): each ended by continue-as-new, with one successor."""

from collections.abc import Sequence

from holdfast.audit.attempts import OPEN, check_attempts, shown
from holdfast.audit.histories import Finding, check_payloads, data_of, read_history
from holdfast.audit.problems import Rule
from holdfast.core import events as ev
from holdfast.storage.relational.audit import RawAttempt, RawTurn


def check_earlier(
    last: int, turns: Sequence[RawTurn], attempts: Sequence[RawAttempt], payloads: dict[str, bytes]
) -> list[Finding]:
    """Every execution before `last`: complete, ended, nothing of it waits, and the next began with what it gave."""
    findings: list[Finding] = []
    given: bytes | None = None
    for execution in range(1, last + 1):
        reading = read_history([turn for turn in turns if turn.execution == execution], execution)
        if given is not None and reading.started is not None and data_of(reading.started.input, payloads) != given:
            text = f"execution {execution} was not started with what the one before it gave"
            findings.append((Rule.ONE_SUCCESSOR, text))
        if execution == last:
            break  # the last one is checked with the row of its instance
        findings += reading.findings
        findings += check_payloads(reading, payloads)
        given = None
        if isinstance(reading.terminal, ev.ContinuedAsNew):
            given = data_of(reading.terminal.input, payloads)
        elif reading.is_complete:
            findings.append(
                (Rule.ONE_SUCCESSOR, f"execution {execution} has a successor, and was not continued as new")
            )
        own = [attempt for attempt in attempts if attempt.execution == execution]
        findings += check_attempts(own, reading, [], payloads, is_open=False)
        findings += [
            (Rule.NOTHING_PENDING, f"execution {execution} has ended, and {shown(attempt)} is {attempt.state}")
            for attempt in own
            if attempt.state in OPEN
        ]
    return findings
