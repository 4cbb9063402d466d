"""The executions of one instance (G4): each before the last ended by continue-as-new, with one successor."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.audit.attempts import NOTHING_PENDS, OPEN, check_attempts, shown
from holdfast.audit.histories import HistoryReading
from holdfast.audit.payloads import Payloads
from holdfast.audit.problems import Finding, Rule
from holdfast.core import events as ev
from holdfast.core.events import Payload
from holdfast.storage.relational.audit import RawAttempt, RawChild, RawTurn


@dataclass(frozen=True, slots=True)
class Execution:
    """The rows of one execution of one instance."""

    number: int
    turns: Sequence[RawTurn] = ()
    attempts: Sequence[RawAttempt] = ()
    children: Sequence[RawChild] = ()
    is_closing: bool = False
    """Its children are being closed."""


def check_earlier(execution: Execution, reading: HistoryReading, payloads: Payloads) -> list[Finding]:
    """An execution before the last: complete, continued as new, and nothing of it waits."""
    number = execution.number
    findings = [*reading.findings]
    if reading.has_references:
        findings += payloads.check_events(reading.events)
    if not isinstance(reading.terminal, ev.ContinuedAsNew) and reading.is_complete:
        findings.append((Rule.ONE_SUCCESSOR, f"execution {number} has a successor, and was not continued as new"))
    findings += check_attempts(execution.attempts, reading, NOTHING_PENDS, payloads, is_open=False)
    findings += [
        (Rule.NOTHING_PENDING, f"execution {number} has ended, and {shown(attempt)} is {attempt.state}")
        for attempt in execution.attempts
        if attempt.state in OPEN
    ]
    return findings


def check_succession(number: int, reading: HistoryReading, given: Payload | None, payloads: Payloads) -> list[Finding]:
    """`given`: what the execution before it continued as new with, where that is known."""
    if given is None or reading.started is None or payloads.are_same(reading.started.input, given):
        return []
    return [(Rule.ONE_SUCCESSOR, f"execution {number} was not started with what the one before it gave")]
