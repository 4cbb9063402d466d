"""Checks the attempts of one execution against its history and its inbox (A8, L14, G13)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec

from holdfast.audit.histories import HistoryReading, shortened
from holdfast.audit.payloads import Payloads
from holdfast.audit.problems import Finding, Rule
from holdfast.core import history as ev
from holdfast.core.activity_options import decode_options
from holdfast.core.history import HistoryEvent
from holdfast.core.ledger import LedgerReading, read_ledger
from holdfast.core.lifecycle import ATTEMPT_FINAL, AttemptState, disagreement
from holdfast.errors import LedgerError
from holdfast.storage.relational.raw_tables import RawAttempt

_A = AttemptState
STATES: Final = frozenset(_A)
MOST_REMEMBERED: Final = 4_096
"""Ledgers in the cache."""
OPEN = frozenset({_A.REQUESTED, _A.READY, _A.QUEUED, _A.PREPARING, _A.RUNNING})
"""The attempt waits, is claimed or runs, and was not cancelled."""
HELD = frozenset({_A.QUEUED, _A.PREPARING, _A.RUNNING, _A.CANCELLED_RUNNING})
"""A worker holds the attempt."""
ENDED = {
    ev.ActivityCompleted: frozenset({_A.COMPLETED}),
    ev.ActivityFailed: frozenset({_A.FAILED, _A.TIMED_OUT, _A.CANCELLED}),
}
"""The states of an attempt that can have led to an outcome."""

AttemptAnswer = ev.ActivityCompleted | ev.ActivityFailed


@dataclass(frozen=True, slots=True)
class Pending:
    """The responses of attempts in the inbox of an instance."""

    answers: Sequence[AttemptAnswer] = ()
    answered: frozenset[int] = frozenset()
    """The activities of these answers."""
    answers_of: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """The number of answers by activity and attempt."""
    values_of: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """The number of streamed values by activity and attempt."""


NOTHING_PENDS: Final = Pending()


def pending_of(inbox: Sequence[HistoryEvent]) -> Pending:
    """The responses in an inbox."""
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
) -> Iterator[Finding]:
    """Checks the attempts of one execution."""
    grouped: dict[int, list[RawAttempt]] = {}
    for attempt in attempts:
        grouped.setdefault(attempt.activity, []).append(attempt)
        if attempt.state in STATES:
            yield from _check_one(attempt, pending)
        else:
            yield Rule.ROWS_READABLE, f"{shown(attempt)} has the unknown state {attempt.state!r}"
    for activity, tries in grouped.items():
        yield from _check_series(activity, tries, reading)
        if reading.is_complete and activity not in reading.abandoned:
            yield from _check_exits(activity, tries, reading, is_open=is_open)
    for activity, name in reading.scheduled.items():
        if activity not in grouped:
            yield Rule.ATTEMPTS_COMPLETE, f"activity {activity} ({name}) was scheduled and has no attempt"
    for outcome in (*reading.outcomes.values(), *pending.answers):
        yield from _check_outcome(outcome, grouped.get(outcome.activity, []), payloads)
    if is_open and reading.is_complete:
        for activity, tries in grouped.items():
            yield from _check_progress(activity, tries[-1], reading, pending)


def _check_one(attempt: RawAttempt, pending: Pending) -> Iterator[Finding]:
    """A8: the ledger, state, owner and end of one attempt agree."""
    state = attempt.state
    unapplied = 0
    if pending is not NOTHING_PENDS:
        which = (attempt.activity, attempt.attempt)
        unapplied = pending.values_of.get(which, 0)
        if _counts_responses(state, attempt.ledger):  # else it timed out or never began: no response entered leg 2
            unapplied += pending.answers_of.get(which, 0)
    if why := _disagreement(state, attempt.ledger, attempt.owner is not None, unapplied, is_external(attempt)):
        yield Rule.LEDGER_AGREES, f"{shown(attempt)}: {why}"
    if attempt.cancel_requested_at_ms is not None and not _can_be_cancelled(state, attempt.ledger):
        yield Rule.LEDGER_AGREES, f"{shown(attempt)} is {state}, and has a request to cancel it while it ran"
    if (state in ATTEMPT_FINAL) != (attempt.closed_at_ms is not None):
        when = "has no time of its end" if attempt.closed_at_ms is None else "has a time of its end"
        yield Rule.LEDGER_AGREES, f"{shown(attempt)} is {state} and {when}"


@lru_cache(MOST_REMEMBERED)
def _disagreement(state: str, ledger: int, is_owned: bool, unapplied: int, external: bool) -> str | None:
    """`disagreement`, cached because most attempts of a store have one of few ledgers."""
    return disagreement(state, ledger, owned=is_owned, unapplied=unapplied, external=external)


def is_external(attempt: RawAttempt) -> bool:
    """Whether an executor that is not a worker has the attempt (C4)."""
    return b'"external"' in attempt.options and _has_executor(attempt.options)


@lru_cache(MOST_REMEMBERED)
def _has_executor(options: bytes) -> bool:
    try:
        return decode_options(options).external is not None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _can_be_cancelled(state: str, ledger: int) -> bool:
    """Whether the attempt may have a request to cancel it from outside: it was RUNNING then."""
    digits = _read(ledger)
    is_after = state == _A.CANCELLED_RUNNING or state in ATTEMPT_FINAL
    return is_after and (digits is None or digits.leg1_concluded)


@lru_cache(MOST_REMEMBERED)
def _read(ledger: int) -> LedgerReading | None:
    """The digits of a ledger; None for a number that is not a ledger, which `disagreement` reports."""
    try:
        return read_ledger(ledger)
    except LedgerError:
        return None


def _counts_responses(state: str, ledger: int) -> bool:
    digits = _read(ledger)
    return digits is None or (state not in (_A.TIMED_OUT, _A.CANCELLED) and digits.leg1_concluded)


def _check_series(activity: int, tries: list[RawAttempt], reading: HistoryReading) -> Iterator[Finding]:
    """The attempts of an activity are numbered from 1, and all but the last ended without a result."""
    name = reading.scheduled.get(activity)
    if name is None and reading.is_complete:
        yield Rule.ATTEMPTS_COMPLETE, f"{shown(tries[0])} belongs to an activity that was never scheduled"
    if any(attempt.attempt != expected for expected, attempt in enumerate(tries, start=1)):
        numbers = shortened([attempt.attempt for attempt in tries])
        yield Rule.ATTEMPTS_COMPLETE, f"activity {activity} has the attempts {numbers}"
    for attempt in tries:
        if name is not None and attempt.name != name:
            text = f"{shown(attempt)} is called {attempt.name!r}, and the history has {name!r}"
            yield Rule.ATTEMPTS_COMPLETE, text
    for attempt in tries[:-1]:
        if attempt.state not in (_A.FAILED, _A.TIMED_OUT):
            yield Rule.ATTEMPTS_COMPLETE, f"{shown(attempt)} is {attempt.state}, and another attempt follows it"


def _check_exits(
    activity: int, tries: list[RawAttempt], reading: HistoryReading, *, is_open: bool
) -> Iterator[Finding]:
    """L5, L6, L13: responses that left leg 2 are in the history, except those that the end of the instance dropped."""
    digits = [_read(attempt.ledger) for attempt in tries]
    if None in digits:
        return  # reported by `_check_one`
    exits = sum(each.responses_exited for each in digits if each is not None)
    outcome = reading.outcomes.get(activity)
    last = next((attempt for attempt in tries if outcome is not None and attempt.attempt == outcome.attempt), None)
    applied = reading.yielded.get(activity, 0)
    if last is not None and _counts_responses(last.state, last.ledger):
        applied += 1  # an attempt that timed out or never began has no response
    if exits < applied or (exits > applied and (is_open or outcome is not None)):
        text = f"{exits} responses of activity {activity} left leg 2, and the history has {applied}"
        yield Rule.LEDGER_AGREES, text


def _check_outcome(outcome: AttemptAnswer, tries: list[RawAttempt], payloads: Payloads) -> Iterator[Finding]:
    """The outcome of an activity is that of its last attempt."""
    if not tries:
        return
    what = f"the outcome of activity {outcome.activity}"
    attempt = next((each for each in tries if each.attempt == outcome.attempt), None)
    if attempt is None:
        yield Rule.REAL_RESULT, f"{what} is that of attempt {outcome.attempt}, which is not there"
    elif attempt.state not in ENDED[type(outcome)]:
        kind = "a result" if isinstance(outcome, ev.ActivityCompleted) else "a failure"
        yield Rule.REAL_RESULT, f"{what} is {kind}, but {shown(attempt)} is {attempt.state}"
    elif attempt is not tries[-1]:
        yield Rule.REAL_RESULT, f"{what} is that of {shown(attempt)}, and another attempt follows it"
    elif isinstance(outcome, ev.ActivityFailed) and attempt.failure is not None:
        recorded = payloads.data(outcome.failure)
        if recorded is not None and not _same_json(recorded, attempt.failure):
            yield Rule.REAL_RESULT, f"{what} is another failure than that of {shown(attempt)}"


def _check_progress(activity: int, last: RawAttempt, reading: HistoryReading, pending: Pending) -> Iterator[Finding]:
    """An activity that an open workflow awaits has an open attempt, or its answer is in the inbox."""
    if activity not in reading.scheduled:
        return
    answered = activity in reading.outcomes or activity in pending.answered
    if answered or activity in reading.abandoned:
        if last.state in OPEN:
            why = "has its outcome" if answered else "is not awaited any more"
            yield Rule.ATTEMPTS_COMPLETE, f"{shown(last)} is {last.state}, but the activity {why}"
    elif last.state not in OPEN and not (
        last.state == _A.CANCELLED_RUNNING and last.cancel_requested_at_ms is not None
    ):
        text = f"{shown(last)} is {last.state}, but its answer is neither in the history nor in the inbox"
        yield Rule.ATTEMPTS_COMPLETE, text


def _same_json(one: bytes, other: bytes) -> bool:
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def shown(attempt: RawAttempt) -> str:
    """An attempt in words."""
    dimension = f" in dimension {attempt.dimension}" if attempt.dimension else ""
    return f"attempt {attempt.attempt} of activity {attempt.activity}{dimension}"
