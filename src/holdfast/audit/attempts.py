"""The attempts of one execution against its history and its inbox (A8, L14, G13)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec

from holdfast.audit.histories import HistoryReading, shortened
from holdfast.audit.payloads import Payloads
from holdfast.audit.problems import Finding, Rule
from holdfast.core import history as ev
from holdfast.core.history import HistoryEvent
from holdfast.core.ledger import LedgerReading, read_ledger
from holdfast.core.lifecycle import ATTEMPT_FINAL, AttemptState, disagreement
from holdfast.errors import LedgerError
from holdfast.storage.relational.raw_tables import RawAttempt

_A = AttemptState
STATES: Final = frozenset(_A)
MOST_REMEMBERED: Final = 4_096
"""Ledgers whose reading is remembered."""
OPEN = frozenset({_A.REQUESTED, _A.READY, _A.QUEUED, _A.PREPARING, _A.RUNNING})
"""Waits, is claimed or runs, and was not cancelled."""
HELD = frozenset({_A.QUEUED, _A.PREPARING, _A.RUNNING, _A.CANCELLED_RUNNING})
"""Some worker has it."""
ENDED = {ev.ActivityCompleted: frozenset({_A.COMPLETED}), ev.ActivityFailed: frozenset({_A.FAILED, _A.TIMED_OUT})}
"""The states of an attempt that can be behind an outcome."""

AttemptAnswer = ev.ActivityCompleted | ev.ActivityFailed


@dataclass(frozen=True, slots=True)
class Pending:
    """What waits in the inbox of an instance for its attempts."""

    answers: Sequence[AttemptAnswer] = ()
    answered: frozenset[int] = frozenset()
    """The activities of these answers."""
    answers_of: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """How many there are, by activity and attempt."""
    values_of: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """How many values of streams, by activity and attempt."""


NOTHING_PENDS: Final = Pending()


def pending_of(inbox: Sequence[HistoryEvent]) -> Pending:
    """The answers and values in an inbox."""
    if not inbox:
        return NOTHING_PENDS
    answers = [event for event in inbox if isinstance(event, AttemptAnswer)]
    answers_of = Counter((event.activity, event.attempt) for event in answers)
    values_of: Counter[tuple[int, int]] = Counter()
    for event in inbox:
        if isinstance(event, ev.ActivityYielded):
            values_of[event.activity, event.attempt] += len(event.numbers)
    return Pending(answers, frozenset(event.activity for event in answers), answers_of, values_of)


def check_attempts(
    attempts: Sequence[RawAttempt],
    reading: HistoryReading,
    pending: Pending,
    payloads: Payloads,
    *,
    is_open: bool,
) -> list[Finding]:
    """Everything about the attempts of one execution."""
    findings: list[Finding] = []
    grouped: dict[int, list[RawAttempt]] = {}
    for attempt in attempts:
        grouped.setdefault(attempt.activity, []).append(attempt)
        if attempt.state in STATES:
            findings += _check_one(attempt, pending)
        else:
            findings.append((Rule.ROWS_READABLE, f"{shown(attempt)} has the state {attempt.state!r}, which is none"))
    for activity, tries in grouped.items():
        findings += _check_series(activity, tries, reading)
        if reading.is_complete and activity not in reading.abandoned:
            findings += _check_exits(activity, tries, reading, is_open=is_open)
    for activity, name in reading.scheduled.items():
        if activity not in grouped:
            text = f"activity {activity} ({name}) was scheduled and has no attempt"
            findings.append((Rule.ATTEMPTS_COMPLETE, text))
    for outcome in (*reading.outcomes.values(), *pending.answers):
        findings += _check_outcome(outcome, grouped.get(outcome.activity, []), payloads)
    if is_open and reading.is_complete:
        for activity, tries in grouped.items():
            findings += _check_progress(activity, tries[-1], reading, pending)
    return findings


def _check_one(attempt: RawAttempt, pending: Pending) -> list[Finding]:
    """A8, for one row."""
    findings: list[Finding] = []
    state = attempt.state
    unapplied = 0
    if pending is not NOTHING_PENDS:
        which = (attempt.activity, attempt.attempt)
        unapplied = pending.values_of.get(which, 0)
        if _counts_responses(state, attempt.ledger):  # else it timed out or never began: no response entered leg 2
            unapplied += pending.answers_of.get(which, 0)
    if why := _disagreement(state, attempt.ledger, attempt.owner is not None, unapplied):
        findings.append((Rule.LEDGER_AGREES, f"{shown(attempt)}: {why}"))
    if (state in ATTEMPT_FINAL) != (attempt.closed_at_ms is not None):
        when = "has no time of its end" if attempt.closed_at_ms is None else "has a time of its end"
        findings.append((Rule.LEDGER_AGREES, f"{shown(attempt)} is {state} and {when}"))
    return findings


@lru_cache(MOST_REMEMBERED)
def _disagreement(state: str, ledger: int, is_owned: bool, unapplied: int) -> str | None:
    """Most attempts of a store have one of few ledgers."""
    return disagreement(state, ledger, owned=is_owned, unapplied=unapplied)


@lru_cache(MOST_REMEMBERED)
def _read(ledger: int) -> LedgerReading | None:
    """The digits; None if this is no ledger, which `disagreement` reports."""
    try:
        return read_ledger(ledger)
    except LedgerError:
        return None


def _counts_responses(state: str, ledger: int) -> bool:
    digits = _read(ledger)
    return digits is None or (state != _A.TIMED_OUT and digits.leg1_concluded)


def _check_series(activity: int, tries: list[RawAttempt], reading: HistoryReading) -> list[Finding]:
    """Attempts 1 to n of one activity, all but the last ended without a result."""
    findings: list[Finding] = []
    name = reading.scheduled.get(activity)
    if name is None and reading.is_complete:
        findings.append((Rule.ATTEMPTS_COMPLETE, f"{shown(tries[0])} belongs to an activity that was never scheduled"))
    if any(attempt.attempt != expected for expected, attempt in enumerate(tries, start=1)):
        numbers = shortened([attempt.attempt for attempt in tries])
        findings.append((Rule.ATTEMPTS_COMPLETE, f"activity {activity} has the attempts {numbers}"))
    for attempt in tries:
        if name is not None and attempt.name != name:
            text = f"{shown(attempt)} is called {attempt.name!r}, and the history says {name!r}"
            findings.append((Rule.ATTEMPTS_COMPLETE, text))
    findings += [
        (Rule.ATTEMPTS_COMPLETE, f"{shown(attempt)} is {attempt.state}, and another attempt follows it")
        for attempt in tries[:-1]
        if attempt.state not in (_A.FAILED, _A.TIMED_OUT)
    ]
    return findings


def _check_exits(activity: int, tries: list[RawAttempt], reading: HistoryReading, *, is_open: bool) -> list[Finding]:
    """L5, L6, L13: what left leg 2 is in the history. A closing instance drops what it has not applied yet."""
    digits = [_read(attempt.ledger) for attempt in tries]
    if None in digits:
        return []  # reported by `_check_one`
    exits = sum(each.responses_exited for each in digits if each is not None)
    outcome = reading.outcomes.get(activity)
    last = next((attempt for attempt in tries if outcome is not None and attempt.attempt == outcome.attempt), None)
    applied = reading.yielded.get(activity, 0)
    if last is not None and _counts_responses(last.state, last.ledger):
        applied += 1  # that it timed out, or was never begun, is no response of an attempt
    if exits < applied or (exits > applied and (is_open or outcome is not None)):
        text = f"{exits} responses of activity {activity} left leg 2, and the history has {applied}"
        return [(Rule.LEDGER_AGREES, text)]
    return []


def _check_outcome(outcome: AttemptAnswer, tries: list[RawAttempt], payloads: Payloads) -> list[Finding]:
    """The outcome is that of the last attempt, which ended in that way."""
    if not tries:
        return []
    what = f"the outcome of activity {outcome.activity}"
    attempt = next((each for each in tries if each.attempt == outcome.attempt), None)
    if attempt is None:
        return [(Rule.REAL_RESULT, f"{what} is that of attempt {outcome.attempt}, which is not there")]
    if attempt.state not in ENDED[type(outcome)]:
        kind = "a result" if isinstance(outcome, ev.ActivityCompleted) else "a failure"
        return [(Rule.REAL_RESULT, f"{what} is {kind}, but {shown(attempt)} is {attempt.state}")]
    if attempt is not tries[-1]:
        return [(Rule.REAL_RESULT, f"{what} is that of {shown(attempt)}, and another attempt follows it")]
    if isinstance(outcome, ev.ActivityFailed):
        recorded = None if attempt.failure is None else payloads.data(outcome.failure)
        if recorded is not None and attempt.failure is not None and not _same_json(recorded, attempt.failure):
            return [(Rule.REAL_RESULT, f"{what} is another failure than that of {shown(attempt)}")]
    return []


def _check_progress(activity: int, last: RawAttempt, reading: HistoryReading, pending: Pending) -> list[Finding]:
    """What an open workflow waits for will come: an attempt is under way, or its answer is in the inbox."""
    if activity not in reading.scheduled:
        return []
    answered = activity in reading.outcomes or activity in pending.answered
    if answered or activity in reading.abandoned:
        if last.state in OPEN:
            why = "has its outcome" if answered else "is not waited for any more"
            return [(Rule.ATTEMPTS_COMPLETE, f"{shown(last)} is {last.state}, but the activity {why}")]
        return []
    if last.state not in OPEN:
        text = f"{shown(last)} is {last.state}, but its answer is neither in the history nor in the inbox"
        return [(Rule.ATTEMPTS_COMPLETE, text)]
    return []


def _same_json(one: bytes, other: bytes) -> bool:
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def shown(attempt: RawAttempt) -> str:
    """An attempt, for people."""
    dimension = f" in dimension {attempt.dimension}" if attempt.dimension else ""
    return f"attempt {attempt.attempt} of activity {attempt.activity}{dimension}"
