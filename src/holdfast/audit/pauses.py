"""Checks the pause of one instance against its state and its attempts (R20, R21, R26)."""

from collections.abc import Iterator, Sequence

from holdfast.audit.attempts import shown
from holdfast.audit.problems import Finding, Rule
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.core.pauses import is_withheld
from holdfast.storage.relational.raw_tables import RawAttempt, RawInstance

BEFORE = (InstanceState.REQUESTED, InstanceState.RUNNING)
"""The states before a pause (A9)."""


def check_pause(row: RawInstance, attempts: Sequence[RawAttempt]) -> Iterator[Finding]:
    """Exactly a PAUSED instance has a time and a state to return to, and exactly its READY attempts are withheld."""
    is_paused = row.state == InstanceState.PAUSED
    if is_paused != (row.paused_at_ms is not None) or is_paused != (row.paused_from in BEFORE):
        since = f"paused at {row.paused_at_ms} in the state {row.paused_from}"
        yield Rule.PAUSE_HOLDS, f"it is {row.state}, and its row has: {since}"
    for attempt in attempts:
        if attempt.state != AttemptState.READY:
            continue
        withheld = is_withheld(attempt.available_at_ms)
        if is_paused and not withheld:
            yield Rule.PAUSE_HOLDS, f"it is PAUSED, and {shown(attempt)} can be claimed"
        elif withheld and not is_paused:
            yield Rule.PAUSE_HOLDS, f"it is {row.state}, and {shown(attempt)} is withheld for ever"
        elif attempt.failure is not None and not withheld:
            yield Rule.PAUSE_HOLDS, f"{shown(attempt)} is READY and has a failure"
