"""The deadline of one instance: it will be acted upon, and was not before its time."""

from collections.abc import Iterable

from holdfast.audit.problems import Finding, Rule
from holdfast.core import events as ev
from holdfast.storage.relational.audit import RawInstance


def check_deadline(row: RawInstance, expiries: Iterable[ev.DeadlinePassed | ev.CancelRequested]) -> list[Finding]:
    """`expiries`: what the deadline did, in the history and in the inbox."""
    findings: list[Finding] = []
    at_ms, expires_ms = row.deadline_at_ms, row.expires_at_ms
    if (at_ms is None) != (expires_ms is None) or (at_ms is not None and row.grace_ms is None):
        text = f"its deadline is {at_ms}, its grace {row.grace_ms}, and it is due at {expires_ms}"
        findings.append((Rule.DEADLINE_KEPT, text))
    elif at_ms is not None and expires_ms is not None and not row.created_at_ms < at_ms <= expires_ms:
        text = f"it was made at {row.created_at_ms}, its deadline is {at_ms}, and it is due at {expires_ms}"
        findings.append((Rule.DEADLINE_KEPT, text))
    for event in expiries:
        if at_ms is None:
            findings.append((Rule.DEADLINE_KEPT, "its deadline has passed, and it has none"))
        elif event.time_ms < at_ms:
            text = f"its deadline was acted upon {at_ms - event.time_ms} ms before it came"
            findings.append((Rule.DEADLINE_KEPT, text))
    return findings
