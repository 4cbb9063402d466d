"""Apply reports about external attempts: the rows of one attempt in their order, in one transaction (C2, C4).

Each row is judged by `core.activity_events.judge` by the state of the attempt after the rows before it. The changes of
the attempt are gathered and written once. A deadline that has passed is enforced behind the rows, and only if no
further NEW row of the attempt is there: expiry never overtakes a report (A5).
"""

import bisect
import heapq
import json
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from holdfast.core.activity_events import (
    EVENT_OF,
    MOST_WAITING,
    WITHOUT_CLAIM,
    CheckedReport,
    ExternalDeadline,
    OfferedAttempt,
    ReportKind,
    ReportState,
    ReportVerdict,
    external_deadline,
    is_early,
    judge,
)
from holdfast.core.activity_options import ActivityOptions, decode_options
from holdfast.core.checks import require
from holdfast.core.history import ActivityCompleted, ActivityYielded, Payload
from holdfast.core.ledger import Leg1Verdict, conclude_leg1, enter_leg1, enter_leg2, exit_leg2
from holdfast.core.lifecycle import ATTEMPT_FINAL, AttemptEvent, AttemptState, next_state
from holdfast.core.streams import enter_pending, room_for_yields, values_delivered
from holdfast.payloads.failures import RecordedFailure
from holdfast.storage.attempt_endings import end_by_cancel, end_by_failure, is_awaited, time_out
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.outcomes import HandledRows, Outcome, Rejected
from holdfast.storage.members.row_handling import HandledReport, HandleReports
from holdfast.storage.records import AttemptRecord
from holdfast.storage.relational.apply import attempts
from holdfast.storage.relational.apply.shared_writes import put_in_inbox
from holdfast.storage.relational.rows import attempt_of
from holdfast.storage.relational.transaction import Transaction

MOST_OPEN: Final = 4 * MOST_WAITING
"""Rows of one attempt that one transaction looks at."""
OFFER_COLUMNS: Final = len(("claim", "sequences", "withdrawn_at_ms"))
UNKNOWN: Final = "no activity was offered under this activity_exec_id"
TOO_MANY_WAIT: Final = f"{MOST_WAITING:,} rows of the attempt wait already"
NO_ROOM: Final = "an attempt takes no more responses (L12)"

_failure: Final = msgspec.json.Decoder(RecordedFailure)
_sequences: Final = msgspec.json.Decoder(dict[str, int])
_CLAIMS: Final = frozenset({ReportKind.QUEUED, ReportKind.PREPARING, ReportKind.RUNNING})


def apply_handle_reports(transaction: Transaction, member: HandleReports) -> Outcome:
    """Judge and apply the rows of one attempt, then its deadline. Rows that were handled before stay as they are."""
    rows = transaction.fetch(transaction.sql.lock_offer, member.exec_id) if member.key is not None else []
    if not rows:
        return _refuse_all(transaction, member.reports)
    attempt = attempt_of(rows[0][:-OFFER_COLUMNS])
    states: dict[int, str] = dict(transaction.fetch(transaction.sql.open_reports, member.exec_id, MOST_OPEN))
    fold = _ReportFold(transaction, member, attempt, rows[0][-OFFER_COLUMNS:])
    fold.handle([report for report in member.reports if report.row in states], states)
    unread = (states.keys() - {report.row for report in member.reports}) | fold.left
    if not fold.left and not any(states[row] == ReportState.NEW for row in unread):
        fold.enforce_deadline()
    fold.save()
    if fold.has_moved or fold.left:  # rows that wait and were not read by the sender of this member are judged again
        fold.reopen(row for row in unread if states[row] == ReportState.WAITING)
    handled = fold.write()
    if not handled and not fold.has_moved:
        return Rejected(reason="the rows were handled before, and no deadline has passed")
    return HandledRows(
        reports=handled,
        offered=(attempt.queue,) if fold.was_offered else (),
        wakes=fold.has_answered,
        attempts_ended=fold.ended_since(attempt),
    )


def _refuse_all(transaction: Transaction, reports: Sequence[CheckedReport]) -> Outcome:
    handled = tuple(HandledReport(row=report.row, state=ReportState.REFUSED, refusal=UNKNOWN) for report in reports)
    _write_states(transaction, handled)
    return HandledRows(reports=handled, wakes=False)


def _write_states(transaction: Transaction, handled: Sequence[HandledReport]) -> None:
    if handled:
        rows = [[one.row, one.state, one.refusal, int(one.cancel_requested)] for one in handled]
        transaction.update(transaction.sql.handle_reports, json.dumps(rows), transaction.now_ms)


def _needs_values(verdict: ReportVerdict, state: str) -> bool:
    """Whether a verdict depends on the values of the row. Those of a row that waits were checked before."""
    is_new = state == ReportState.NEW
    return verdict.state is ReportState.APPLIED or (verdict.state is ReportState.WAITING and is_new)


class _WaitingRows:
    """Rows that wait, since the attempt last changed: by their sequence, or for RUNNING."""

    def __init__(self) -> None:
        self._by_series: dict[str | None, list[tuple[int, int]]] = {}
        """Sequence and row of each series, as a heap."""
        self._first_early: int | None = None

    def add(self, report: CheckedReport, verdict: ReportVerdict, state: AttemptState) -> None:
        if is_early(state, verdict):
            self._first_early = min(report.row, self._first_early or report.row)
        elif report.sequence is not None:
            heapq.heappush(self._by_series.setdefault(report.claim, []), (report.sequence, report.row))

    def holds_back(self, row: int) -> bool:
        """Whether a row before this one waits for RUNNING (L10)."""
        return self._first_early is not None and self._first_early < row

    def next_place(self, claim: str | None, handled: int, pending: Sequence[CheckedReport], judged: int) -> int:
        """The place of a row whose turn has come, or of the first that was not judged."""
        series = self._by_series.get(claim)
        if not series or series[0][0] > handled + 1:
            return judged
        _, row = heapq.heappop(series)
        return bisect.bisect_left(pending, row, key=lambda report: report.row)


class _ReportFold:
    """The state of one attempt while its rows are handled."""

    def __init__(
        self, transaction: Transaction, member: HandleReports, attempt: AttemptRecord, offered: tuple[object, ...]
    ) -> None:
        claim, sequences, withdrawn_at_ms = offered
        self._transaction = transaction
        self._member = member
        self._options: ActivityOptions = decode_options(attempt.options)
        self._attempt = attempt
        self._stored = attempt
        """The attempt as it is in the store, without the changes that are gathered."""
        self._claim = None if claim is None else str(claim)
        self._sequences = {} if sequences is None else _sequences.decode(str(sequences))
        self._is_withdrawn = withdrawn_at_ms is not None
        self._is_changed = self._is_offer_changed = False
        self._responses: list[bytes] = []
        self._refused: dict[str | None, set[int]] = {}
        """The sequences of each claim that were refused out of turn."""
        self._have_read_refused: set[str | None] = set()
        self._handled: list[HandledReport] = []
        self.has_moved = False
        """Whether the attempt has changed its state, or a sequence has advanced."""
        self.has_answered = False
        """Whether a message was put into the inbox of the instance."""
        self.was_offered = False
        """Whether the attempt, or the one after it, was offered to executors."""
        self.left: set[int] = set()
        """Rows that are left to a later member: one whose values were not read, and those behind it."""

    # ------------------------------------------------------------ rows

    def handle(self, reports: list[CheckedReport], states: dict[int, str]) -> None:
        """Handle the rows in their order. After a change of the attempt, rows that wait are judged again.

        A row that a sequence lets go on is judged at once, so that the time is linear in the rows.
        """
        pending = list(reports)
        read = {report.row for report in reports}
        wait_elsewhere = sum(state == ReportState.WAITING and row not in read for row, state in states.items())
        waiting: dict[int, ReportVerdict] = {}
        queue = _WaitingRows()
        place = judged = 0  # the rows before `judged` wait
        while place < len(pending):
            report = pending[place]
            verdict = self._judge(report, holds_back=queue.holds_back(report.row))
            if report.is_unread and _needs_values(verdict, states[report.row]):
                self.left = {report.row, *(each.row for each in pending[judged:])}
                break
            if verdict.state is ReportState.WAITING:
                is_new = report.row not in waiting and states[report.row] == ReportState.NEW
                if is_new and len(waiting) + wait_elsewhere >= MOST_WAITING:
                    verdict = ReportVerdict(ReportState.REFUSED, TOO_MANY_WAIT)
                else:
                    waiting[report.row] = verdict
                    queue.add(report, verdict, self._attempt.state)
                    judged = max(judged, place + 1)
                    place = queue.next_place(report.claim, self._handled_sequence(report), pending, judged)
                    continue
            del pending[place]
            waiting.pop(report.row, None)
            judged -= place < judged
            before = self._attempt.state, self._is_withdrawn
            if verdict.state is ReportState.APPLIED:
                verdict = self._apply(report)
            self._settle(report, verdict)
            if before != (self._attempt.state, self._is_withdrawn):
                queue = _WaitingRows()
                place = judged = 0
            else:
                place = queue.next_place(report.claim, self._handled_sequence(report), pending, judged)
        for report in pending:
            if states[report.row] == ReportState.NEW and report.row not in self.left:
                verdict = waiting[report.row]
                self._handled.append(HandledReport(row=report.row, state=ReportState.WAITING, refusal=verdict.reason))

    def _handled_sequence(self, report: CheckedReport) -> int:
        """The highest sequence of the report's series that was handled, with all before it.

        The refused sequences of a claimant that lost are not stored (`_settle`): its notes and cancels look for them.
        """
        handled = self._sequences.get(report.claim or "", 0)
        if report.sequence is None or not self._has_lost(report.claim):
            return handled
        return self._skip_refused(report.claim, handled, reads=report.kind in WITHOUT_CLAIM)

    def _judge(self, report: CheckedReport, *, holds_back: bool) -> ReportVerdict:
        attempt = self._attempt
        deadline = None if self._is_over else self._deadline_of(attempt)
        offered = OfferedAttempt(
            state=attempt.state,
            is_withdrawn=self._is_withdrawn,
            claim=self._claim,
            expires_at_ms=None if deadline is None else deadline.at_ms,
            available_at_ms=attempt.available_at_ms,
            takes_responses=self._options.stream is not None,
            handled_sequence=self._handled_sequence(report),
            holds_back=holds_back,
        )
        return judge(offered, report, now_ms=self._transaction.now_ms)

    def _settle(self, report: CheckedReport, verdict: ReportVerdict) -> None:
        """Note the new state of a row, and count its sequence."""
        is_cancelled = self._attempt.state is AttemptState.CANCELLED_RUNNING
        self._handled.append(
            HandledReport(row=report.row, state=verdict.state, refusal=verdict.reason, cancel_requested=is_cancelled)
        )
        if report.sequence is None or self._is_over:
            return
        if verdict.state is ReportState.REFUSED:
            self._refused.setdefault(report.claim, set()).add(report.sequence)
            self.has_moved |= self._has_lost(report.claim)
        is_next = report.sequence == self._handled_sequence(report) + 1
        if is_next and not self._is_of_another(report):
            self._sequences[report.claim or ""] = self._skip_refused(report.claim, report.sequence)
            self._is_offer_changed = True
            self.has_moved = True

    def _has_lost(self, claim: str | None) -> bool:
        """Whether another claimant has the attempt."""
        is_claimed = self._claim is not None and self._attempt.state is not AttemptState.READY
        return is_claimed and claim != self._claim

    def _is_of_another(self, report: CheckedReport) -> bool:
        """Whether the row was refused for its claim. Later ones are refused, too, so its sequence is not stored."""
        return self._has_lost(report.claim) and report.kind not in WITHOUT_CLAIM

    def _skip_refused(self, claim: str | None, handled: int, *, reads: bool = True) -> int:
        """The highest sequence that is handled with all before it, past those that were refused out of turn."""
        refused = self._refused.setdefault(claim, set())
        if reads and claim not in self._have_read_refused:
            self._have_read_refused.add(claim)
            sql = self._transaction.sql
            rows = self._transaction.fetch(sql.refused_sequences, self._member.exec_id, claim, handled)
            refused.update(sequence for (sequence,) in rows)
        while handled + 1 in refused:
            handled += 1
        return handled

    @property
    def _is_over(self) -> bool:
        return self._is_withdrawn or self._attempt.state in ATTEMPT_FINAL

    def ended_since(self, before: AttemptRecord) -> tuple[AttemptRecord, ...]:
        """The attempt as it is now, if it had not ended before."""
        has_ended = self._attempt.state in ATTEMPT_FINAL and before.state not in ATTEMPT_FINAL
        return (self._attempt,) if has_ended else ()

    # ------------------------------------------------------------ changes of the attempt

    def _apply(self, report: CheckedReport) -> ReportVerdict:
        """Apply a report that the table allows. A report counts from its insert.

        It was inserted after the attempt was offered. An earlier time is that of a clock which was set back, while the
        time of the store was not (W9): it must not end the attempt at once.
        """
        kind = report.kind
        known_ms = max(self._attempt.available_at_ms, self._attempt.heartbeat_at_ms or 0)
        at_ms = min(max(report.inserted_at_ms, known_ms), self._transaction.now_ms)
        if kind is not None and kind in _CLAIMS:
            self._advance(kind, report, at_ms)
        elif kind is ReportKind.HEARTBEAT:
            details = None if report.value == b"null" else report.value
            self._change(self._attempt.state, at_ms, details=details)
        elif kind is ReportKind.RESPONSE:
            if room_for_yields(self._attempt.ledger) <= len(self._responses):
                return ReportVerdict(ReportState.REFUSED, NO_ROOM)
            self._responses.append(report.value)
            self._change(self._attempt.state, at_ms)
        elif kind is not None and kind is not ReportKind.NOTE:
            self._conclude(kind, report)
        return ReportVerdict(ReportState.APPLIED)

    def _advance(self, kind: ReportKind, report: CheckedReport, at_ms: int) -> None:
        """QUEUED, PREPARING and RUNNING. The one that takes the attempt out of READY stores the claim (A2, L2, L3)."""
        attempt = self._attempt
        ledger: int = attempt.ledger
        if attempt.state is AttemptState.READY:
            ledger, verdict = enter_leg1(ledger, limit=self._options.max_claims)
            if verdict is Leg1Verdict.EXHAUSTED:
                self._flush()
                attempts.dead_letter(self._transaction, self._attempt)
                self._reload()
                return
            self._claim = report.claim
            self._is_offer_changed = True
        state = next_state(attempt.state, EVENT_OF[kind])
        started_at_ms = attempt.started_at_ms
        if state is AttemptState.RUNNING:
            ledger = conclude_leg1(ledger)
            started_at_ms = at_ms
        self._attempt = msgspec.structs.replace(
            attempt, ledger=ledger, owner=None, started_at_ms=started_at_ms, heartbeat_at_ms=None
        )
        self._change(state, at_ms)

    def _change(self, state: AttemptState, heard_at_ms: int, *, details: bytes | None = None) -> None:
        """The attempt in its next state, with the time of the report and the deadline that follows."""
        attempt = self._attempt
        heard_at_ms = max(heard_at_ms, attempt.heartbeat_at_ms or 0)
        changed = msgspec.structs.replace(
            attempt, state=state, heartbeat_at_ms=heard_at_ms, details=details or attempt.details
        )
        deadline = self._deadline_of(msgspec.structs.replace(changed, expires_at_ms=None))
        self._attempt = msgspec.structs.replace(changed, expires_at_ms=None if deadline is None else deadline.at_ms)
        self._is_changed = True
        self.has_moved = True

    def _deadline_of(self, attempt: AttemptRecord) -> ExternalDeadline | None:
        """The nearest deadline; none while a pause withholds the attempt (R21).

        Of a cancel by the workflow's own turn only the stored deadline knows the time.
        """
        if attempt.is_withheld:
            return None
        return external_deadline(
            self._options,
            attempt.state,
            scheduled_at_ms=attempt.scheduled_at_ms,
            available_at_ms=attempt.available_at_ms,
            started_at_ms=attempt.started_at_ms,
            heard_at_ms=attempt.heartbeat_at_ms,
            silent_until_ms=attempt.expires_at_ms or 0,
        )

    def _conclude(self, kind: ReportKind, report: CheckedReport) -> None:
        """The end of the attempt or of its claim. Earlier changes are written first: the end is guarded by them."""
        self._flush()
        transaction = self._transaction
        attempt = self._attempt
        if kind is ReportKind.RELEASE:
            self.was_offered |= attempts.release(transaction, attempt)
            self._is_withdrawn = True
        elif kind is ReportKind.CANCEL:
            attempts.cancel_attempt(transaction, attempt)
        elif kind is ReportKind.STOPPED:
            self._end(end_by_cancel(attempt, AttemptEvent.STOPPED, now_ms=transaction.now_ms))
        elif kind is ReportKind.COMPLETED:
            self._end(self._completion(report.value))
        elif report.failure is not None:
            failure = _failure.decode(report.failure)
            self._fail(failure, report.error_types, AttemptEvent.FAIL)
        self._reload()

    def _completion(self, value: bytes) -> Completion:
        attempt = self._attempt
        key = attempt.key
        stream = self._options.stream
        entered, _ = enter_leg2(attempt.ledger)
        answer = ActivityCompleted(
            time_ms=self._transaction.now_ms,
            activity=key.activity,
            attempt=key.attempt,
            result=Payload(msgspec.Raw(value)),
        )
        return Completion(
            key=key,
            owner=attempt.owner,
            from_state=attempt.state,
            from_ledger=attempt.ledger,
            to_state=AttemptState.COMPLETED,
            entered_ledger=entered,
            applied_ledger=exit_leg2(entered, final=True),
            event=answer if is_awaited(attempt) else None,
            values=None if stream is None else values_delivered(stream.delivered, attempt.ledger),
        )

    def _fail(self, failure: RecordedFailure, error_types: tuple[str, ...], event: AttemptEvent) -> None:
        ended = end_by_failure(
            self._attempt,
            failure,
            error_types,
            event=event,
            now_ms=self._transaction.now_ms,
            random_number=self._member.random_number,
        )
        self._end(ended)

    def _end(self, ended: Completion | OpenNextAttempt) -> None:
        if isinstance(ended, OpenNextAttempt):
            attempts.apply_open_next_attempt(self._transaction, ended)
            self.was_offered = True
        else:
            attempts.apply_completion(self._transaction, ended)

    # ------------------------------------------------------------ deadlines

    def enforce_deadline(self) -> None:
        """A5: end the attempt, or return its claim, if its nearest deadline has passed."""
        attempt = self._attempt
        deadline = None if self._is_over else self._deadline_of(attempt)
        if deadline is None or deadline.at_ms > self._transaction.now_ms:
            if deadline is not None and attempt.expires_at_ms != deadline.at_ms:
                self._attempt = msgspec.structs.replace(attempt, expires_at_ms=deadline.at_ms)
                self._is_changed = True
            return
        self._flush()
        attempt = self._attempt
        self.has_moved = True
        if deadline.event is AttemptEvent.RELEASE:
            self.was_offered |= attempts.release(self._transaction, attempt)
            self._is_withdrawn = True
        elif deadline.event is AttemptEvent.STOPPED:
            self._end(end_by_cancel(attempt, AttemptEvent.STOPPED, now_ms=self._transaction.now_ms))
        else:
            self._fail(*time_out(attempt), AttemptEvent.EXPIRE)
        self._reload()
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Rows that wait are refused when their attempt ends or is released."""
        kept: list[HandledReport] = []
        reports = {report.row: report for report in self._member.reports}
        for one in self._handled:
            if one.state is ReportState.WAITING:
                verdict = self._judge(reports.pop(one.row), holds_back=False)
                kept.append(HandledReport(row=one.row, state=verdict.state, refusal=verdict.reason))
            else:
                reports.pop(one.row, None)
                kept.append(one)
        self._handled = kept
        for report in reports.values():  # WAITING before, and still waiting when the deadline passed
            verdict = self._judge(report, holds_back=False)
            self._handled.append(HandledReport(row=report.row, state=verdict.state, refusal=verdict.reason))

    # ------------------------------------------------------------ writes

    def _flush(self) -> None:
        """Write the changes of the attempt and its responses."""
        self._deliver_responses()
        if self._is_changed:
            self._is_changed = False
            attempt = self._attempt
            before = self._stored
            changed = self._transaction.update(
                self._transaction.sql.save_external_attempt,
                attempt.state,
                attempt.ledger,
                attempt.owner,
                attempt.started_at_ms,
                attempt.heartbeat_at_ms,
                attempt.expires_at_ms,
                attempt.details,
                *attempt.key.primary_key,
                before.state,
                before.ledger,
            )
            require(changed == 1, f"attempt {attempt.key} was not {before.state} any more inside one transaction")
            self._stored = attempt

    def _deliver_responses(self) -> None:
        """L4, L15: responses of this transaction enter leg 2 together, as one message."""
        if not self._responses:
            return
        attempt = self._attempt
        key = attempt.key
        stream = self._options.stream
        payloads = [Payload(msgspec.Raw(value)) for value in self._responses]
        event = ActivityYielded(
            time_ms=self._transaction.now_ms,
            activity=key.activity,
            number=values_delivered(0 if stream is None else stream.delivered, attempt.ledger),
            value=payloads[0],
            attempt=key.attempt,
            more=tuple(payloads[1:]),
        )
        entered = enter_pending(attempt.ledger, len(payloads))
        self._attempt = msgspec.structs.replace(attempt, ledger=entered)
        self._responses = []
        self._is_changed = True
        put_in_inbox(self._transaction, key.number, key.execution, event)
        self.has_answered = True

    def _reload(self) -> None:
        """Read the attempt after a change that another function of the store made."""
        [row] = self._transaction.fetch(self._transaction.sql.lock_attempt, *self._attempt.key.primary_key)
        self._attempt = attempt_of(row)
        self._stored = self._attempt
        self.has_moved = True
        self.has_answered = True

    def save(self) -> None:
        """Write what is left of the changes of the attempt and of its offer."""
        self._flush()
        if self._is_offer_changed:
            sequences = json.dumps(self._sequences) if self._sequences else None
            self._transaction.update(self._transaction.sql.update_offer, self._claim, sequences, self._member.exec_id)

    def reopen(self, rows: Iterable[int]) -> None:
        """Let rows be judged again by the next member."""
        self._handled += [HandledReport(row=row, state=ReportState.NEW) for row in rows]

    def write(self) -> tuple[HandledReport, ...]:
        """Write the new states of the rows."""
        handled = tuple(self._handled)
        _write_states(self._transaction, handled)
        return handled
