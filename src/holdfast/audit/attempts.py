"""The attempts of one execution against its history and its inbox (A8, L14, G13)."""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from holdfast.audit.histories import Finding, HistoryReading, data_of
from holdfast.audit.problems import Rule
from holdfast.core import events as ev
from holdfast.core.ledger import read
from holdfast.core.lifecycle import ATTEMPT_FINAL, AttemptState, disagreement
from holdfast.errors import LedgerError
from holdfast.storage.relational.audit import RawAttempt

_A = AttemptState
OPEN = frozenset({_A.REQUESTED, _A.READY, _A.QUEUED, _A.PREPARING, _A.RUNNING})
"""Waits, is claimed or runs, and nobody has cancelled it."""
HELD = frozenset({_A.QUEUED, _A.PREPARING, _A.RUNNING, _A.CANCELLED_RUNNING})
"""Some worker has it."""
ENDED = {ev.ActivityCompleted: frozenset({_A.COMPLETED}), ev.ActivityFailed: frozenset({_A.FAILED, _A.TIMED_OUT})}
"""The states of an attempt that can be behind an outcome."""

Answer = ev.ActivityCompleted | ev.ActivityFailed


def check_attempts(
    attempts: Sequence[RawAttempt],
    reading: HistoryReading,
    waiting: Sequence[Answer],
    payloads: dict[str, bytes],
    *,
    is_open: bool,
    yielded: Sequence[ev.ActivityYielded] = (),
) -> list[Finding]:
    """Everything about the attempts of one execution. `waiting`: the answers in the inbox; `yielded`: the values."""
    findings: list[Finding] = []
    known = [attempt for attempt in attempts if attempt.state in set(_A)]
    findings += [
        (Rule.ROWS_READABLE, f"{shown(attempt)} has the state {attempt.state!r}, which is none")
        for attempt in attempts
        if attempt not in known
    ]
    for attempt in known:
        findings += _check_one(attempt, waiting, yielded)
    grouped = {activity: list(group) for activity, group in groupby(attempts, lambda attempt: attempt.activity)}
    for activity, tries in grouped.items():
        findings += _check_series(activity, tries, reading)
        if reading.is_complete and activity not in reading.abandoned:
            findings += _check_exits(activity, tries, reading, is_open=is_open)
    for activity, name in reading.scheduled.items():
        if activity not in grouped:
            text = f"activity {activity} ({name}) was scheduled and has no attempt"
            findings.append((Rule.ATTEMPTS_COMPLETE, text))
    for outcome in (*reading.outcomes.values(), *waiting):
        findings += _check_outcome(outcome, grouped.get(outcome.activity, []), payloads)
    for activity in grouped:
        findings += _check_progress(activity, grouped[activity][-1], reading, waiting, is_open=is_open)
    return findings


def _check_one(attempt: RawAttempt, waiting: Sequence[Answer], yielded: Sequence[ev.ActivityYielded]) -> list[Finding]:
    """A8, for one row."""
    findings: list[Finding] = []
    state = _A(attempt.state)
    unapplied = sum((answer.activity, answer.attempt) == (attempt.activity, attempt.attempt) for answer in waiting)
    if not _counts_responses(state, attempt.ledger):
        unapplied = 0  # its answer says that it timed out or never began; no response entered leg 2
    which = (attempt.activity, attempt.attempt)
    unapplied += sum(len(event.numbers) for event in yielded if (event.activity, event.attempt) == which)
    if why := disagreement(state, attempt.ledger, owned=attempt.owner is not None, unapplied=unapplied):
        findings.append((Rule.LEDGER_AGREES, f"{shown(attempt)}: {why}"))
    if (state in ATTEMPT_FINAL) != (attempt.closed_at_ms is not None):
        when = "has no time of its end" if attempt.closed_at_ms is None else "has a time of its end"
        findings.append((Rule.LEDGER_AGREES, f"{shown(attempt)} is {state} and {when}"))
    return findings


def _counts_responses(state: AttemptState, ledger: int) -> bool:
    try:
        return state is not _A.TIMED_OUT and read(ledger).leg1_concluded
    except LedgerError:
        return True


def _check_series(activity: int, tries: list[RawAttempt], reading: HistoryReading) -> list[Finding]:
    """Attempts 1 to n of one activity, all but the last ended without a result."""
    findings: list[Finding] = []
    name = reading.scheduled.get(activity)
    if name is None and reading.is_complete:
        findings.append((Rule.ATTEMPTS_COMPLETE, f"{shown(tries[0])} belongs to an activity that was never scheduled"))
    numbers = [attempt.attempt for attempt in tries]
    if numbers != list(range(1, len(tries) + 1)):
        text = f"activity {activity} has the attempts {', '.join(map(str, numbers))}"
        findings.append((Rule.ATTEMPTS_COMPLETE, text))
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
    """L5, L6, L13: what left leg 2 is in the history. A closing instance lets go of what it has not applied yet."""
    try:
        exits = sum(read(attempt.ledger).responses_exited for attempt in tries)
    except LedgerError:
        return []  # said elsewhere
    outcome = reading.outcomes.get(activity)
    last = next((attempt for attempt in tries if outcome is not None and attempt.attempt == outcome.attempt), None)
    applied = reading.yielded.get(activity, 0)
    if last is not None and last.state != _A.TIMED_OUT and read(last.ledger).leg1_concluded:
        applied += 1  # that it timed out, or was never begun, is no response of an attempt
    if exits < applied or (exits > applied and (is_open or outcome is not None)):
        text = f"{exits} responses of activity {activity} left leg 2, and the history has {applied}"
        return [(Rule.LEDGER_AGREES, text)]
    return []


def _check_outcome(outcome: Answer, tries: list[RawAttempt], payloads: dict[str, bytes]) -> list[Finding]:
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
        recorded = data_of(outcome.failure, payloads)
        if recorded is not None and attempt.failure is not None and not _same_json(recorded, attempt.failure):
            return [(Rule.REAL_RESULT, f"{what} is another failure than that of {shown(attempt)}")]
    return []


def _check_progress(
    activity: int, last: RawAttempt, reading: HistoryReading, waiting: Sequence[Answer], *, is_open: bool
) -> list[Finding]:
    """What the workflow waits for will come: an attempt is under way, or its answer is in the inbox."""
    if not is_open or activity not in reading.scheduled or not reading.is_complete:
        return []
    answered = activity in reading.outcomes or any(answer.activity == activity for answer in waiting)
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
    except msgspec.DecodeError:
        return False


def shown(attempt: RawAttempt) -> str:
    """An attempt, for people."""
    dimension = f" in dimension {attempt.dimension}" if attempt.dimension else ""
    return f"attempt {attempt.attempt} of activity {attempt.activity}{dimension}"
