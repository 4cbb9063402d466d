"""Checks the tables of the open contract after a simulated run (C2-C4, A2, A5, A7, L7, L10).

Every check reads rows only: the rows of clients with their answers, the offers, and the attempts. No check needs to
know what the simulated clients intended.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.core.activity_options import ActivityOptions, decode_options
from holdfast.core.history import ActivityYielded, EventReceived, decode_event, decode_events
from holdfast.storage.sqlite.connection import open_read_only

ENDS: Final = ("COMPLETED", "FAILED", "STOPPED", "RELEASE")
CLAIMS: Final = ("QUEUED", "PREPARING", "RUNNING")
NEVER: Final = "never"
"""The ids of instances that no valid request starts begin with this."""
HEARD: Final = ("PREPARING", "RUNNING", "HEARTBEAT")
"""Reports that keep a claim."""
FREE: Final = ("NOTE", "CANCEL")
"""Reports that need no claim."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A row of `activity_events`."""

    row: int
    exec_id: str
    claim: str | None
    transition: str
    sequence: int | None
    payload: str | None
    error: str | None
    inserted_at_ms: int
    state: str
    refusal: str | None
    handled_at_ms: int | None


@dataclass(frozen=True, slots=True)
class ActivityOutcome:
    """The last attempt of an external activity, and the applied reports about it."""

    name: str
    state: str
    cancel_requested: bool
    completed: str | None
    """The payload of the COMPLETED that was applied."""
    failed: str | None
    """The error of the FAILED that was applied."""
    responses: tuple[tuple[int | None, Any], ...]
    """Sequence and value of each RESPONSE that was applied, in the order of the rows."""


class ContractTables:
    """The tables of one store after a run."""

    def __init__(self, path: Path) -> None:
        self._connection = open_read_only(path)
        self.reports = [
            Reported(*row)
            for row in self._rows(
                "SELECT row, activity_exec_id, claim, transition, sequence, payload, error, inserted_at_ms, state, "
                "refusal, handled_at_ms FROM activity_events ORDER BY row"
            )
        ]
        self.of_offer: dict[str, list[Reported]] = defaultdict(list)
        for report in self.reports:
            self.of_offer[report.exec_id].append(report)
        self.offers: dict[tuple[int, int, int, int], list[str]] = defaultdict(list)
        for exec_id, *key in self._rows(
            "SELECT exec_id, number, execution, activity, attempt FROM offers ORDER BY entry"
        ):
            number, execution, activity, attempt = key
            self.offers[number, execution, activity, attempt].append(exec_id)

    def close(self) -> None:
        self._connection.close()

    def _rows(self, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, bindings).fetchall()

    # ------------------------------------------------------------ what is left

    def unsettled(self, workflows: Sequence[str]) -> list[str]:
        """Rows that a live worker could still handle: NEW ones, and those that wait for an attempt that has ended."""
        left = [f"report {report.row} is NEW" for report in self.reports if report.state == "NEW"]
        for row, kind, workflow, manual in self._rows(
            "SELECT row, kind, workflow, manual FROM requests WHERE state = 'NEW'"
        ):
            if kind != "start" or manual or workflow is None or workflow in workflows:
                left.append(f"request {row} is NEW")
        stranded = self._rows(
            "SELECT activity_events.row FROM activity_events JOIN offers ON exec_id = activity_exec_id "
            "JOIN attempts USING (number, execution, activity, dimension, attempt) "
            "WHERE activity_events.state = 'WAITING' AND (withdrawn_at_ms IS NOT NULL OR closed_at_ms IS NOT NULL)"
        )
        return left + [f"report {row} waits, and its attempt has ended or was released" for (row,) in stranded]

    def counts(self) -> dict[str, int]:
        """The number of rows by kind and state."""
        found = Counter(f"{report.transition} {report.state}" for report in self.reports)
        found.update(f"{kind} {state}" for kind, state in self._rows("SELECT kind, state FROM requests"))
        return dict(found)

    # ------------------------------------------------------------ invariants

    def violations(self) -> Iterator[str]:
        """Every broken invariant."""
        for exec_id, reports in self.of_offer.items():
            yield from self._check_offer(exec_id, [report for report in reports if report.state == "APPLIED"])
        attempts = self._rows(
            "SELECT number, execution, activity, attempt, state, options, available_at_ms, scheduled_at_ms, "
            "started_at_ms, cancel_requested_at_ms FROM attempts"
        )
        for *key, state, options, available, scheduled, started, cancel in attempts:
            number, execution, activity, attempt = key
            decoded = decode_options(options)
            if decoded.external is None:
                continue
            exec_ids = self.offers[number, execution, activity, attempt]
            what = f"attempt {tuple(key)}"
            yield from self._check_attempt(what, state, exec_ids, decoded.max_claims)
            yield from self._check_releases(what, decoded.external.claim_timeout_ms, exec_ids)
            if state == "TIMED_OUT" and cancel is None:
                times = _Times(available, scheduled, started)
                yield from self._check_expiry(what, decoded, times, exec_ids)
        yield from self._check_requests()

    def _check_offer(self, exec_id: str, applied: list[Reported]) -> Iterator[str]:
        """A2, L10: one claim took the attempt, each state was entered once, and sequences were applied once."""
        counted = Counter(report.transition for report in applied)
        for transition in (*CLAIMS, *ENDS):
            if counted[transition] > 1:
                yield f"{transition} of {exec_id} was applied {counted[transition]} times"
        if sum(counted[end] for end in ENDS) > 1:
            yield f"{exec_id} ended more than once: {dict(counted)}"
        owned = [report for report in applied if report.transition not in FREE]
        claims = {report.claim for report in owned}
        taken = [report.claim for report in owned if report.transition in CLAIMS]
        if None not in taken and len(claims) > 1:
            yield f"reports of {len(claims)} claims were applied to {exec_id}"
        numbered = Counter(
            (report.claim, report.sequence)
            for report in applied
            if report.sequence is not None and report.transition != "NOTE"  # notes after the end have no order
        )
        for (claim, sequence), count in numbered.items():
            if count > 1:
                yield f"sequence {sequence} of claim {claim!r} of {exec_id} was applied {count} times"

    def _check_attempt(self, what: str, state: str, exec_ids: Sequence[str], most: int) -> Iterator[str]:
        """A7, L8: the first result stands, no offer is lost or reused, and the state is that of the reports."""
        if not 1 <= len(exec_ids) <= most or len(set(exec_ids)) != len(exec_ids):
            yield f"{what} has {len(exec_ids)} offers"
        applied = [report for exec_id in exec_ids for report in self.of_offer[exec_id] if report.state == "APPLIED"]
        counted = Counter(report.transition for report in applied)
        if (state == "COMPLETED") != (counted["COMPLETED"] == 1) or counted["COMPLETED"] > 1:
            yield f"{what} is {state}, and COMPLETED was applied {counted['COMPLETED']} times"
        if counted["FAILED"] and state != "FAILED":
            yield f"{what} is {state}, and FAILED was applied"
        if (counted["RESPONSE"] or counted["COMPLETED"]) and not counted["RUNNING"]:
            yield f"{what}: a result was applied without RUNNING"
        if state == "FAILED" and not counted["FAILED"] and len(exec_ids) < most:
            yield f"{what} is FAILED without a report, after {len(exec_ids)} of {most} offers"

    def _check_releases(self, what: str, timeout_ms: int, exec_ids: Sequence[str]) -> Iterator[str]:
        """A5, C10: no claim is released while a report of the claimant, inserted in time, is not handled."""
        for exec_id in exec_ids:
            reports = self.of_offer[exec_id]
            applied = [report for report in reports if report.state == "APPLIED" and report.transition not in FREE]
            if not applied or any(report.transition == "RELEASE" for report in applied):
                continue
            claim = next((report.claim for report in applied if report.transition in CLAIMS), None)
            deadline_ms = max(report.inserted_at_ms for report in applied) + timeout_ms
            for report in reports:
                is_ours = (claim is None or report.claim == claim) and report.sequence is None
                is_overtaken = report.refusal is not None and "was released" in report.refusal
                if is_ours and is_overtaken and report.inserted_at_ms <= deadline_ms and report.transition in HEARD:
                    yield f"{what}: the claim was released before {report.transition} (row {report.row}) was handled"

    def _check_expiry(
        self, what: str, options: ActivityOptions, times: "_Times", exec_ids: Sequence[str]
    ) -> Iterator[str]:
        """A5: expiry never overtakes a report. No valid report that was inserted in time is refused as too late."""
        last = self.of_offer[exec_ids[-1]] if exec_ids else []
        applied = [report for report in last if report.state == "APPLIED" and report.transition not in FREE]
        if not applied:
            return
        heard_ms = max(report.inserted_at_ms for report in applied)
        claim = next((report.claim for report in applied if report.transition in CLAIMS), None)
        deadlines = [_after(times.scheduled_ms, options.schedule_to_close_ms)]
        if times.started_ms is None:
            deadlines.append(_after(times.available_ms, options.schedule_to_start_ms))
        else:
            deadlines.append(_after(times.started_ms, options.start_to_close_ms))
            deadlines.append(_after(heard_ms, options.heartbeat_ms))
        nearest = min((deadline for deadline in deadlines if deadline is not None), default=None)
        if nearest is None:
            yield f"{what} timed out without a deadline"
            return
        for report in last:
            is_ours = claim is None or report.claim == claim
            is_late = report.refusal is not None and (
                "the first result stands" in report.refusal or "had passed" in report.refusal
            )
            counts = times.started_ms is not None and report.transition in ("HEARTBEAT", "FAILED", "COMPLETED")
            if report.state != "REFUSED" or not (is_ours and is_late and counts) or report.sequence is not None:
                continue  # a report with a sequence may have waited for another one until the end
            if report.inserted_at_ms <= nearest:
                early_ms = nearest - report.inserted_at_ms
                yield f"{what}: {report.transition} (row {report.row}) was inserted {early_ms} ms before the deadline"

    def _check_requests(self) -> Iterator[str]:
        """C2, C3: an accepted start has its instance, an event arrived once, a trace or refusal started nothing."""
        received = self._received_events()
        instances: dict[str, int] = dict(self._rows("SELECT id, count(*) FROM instances GROUP BY id"))
        for row, request_id, kind, state, instance_id, manual in self._rows(
            "SELECT row, request_id, kind, state, instance_id, manual FROM requests"
        ):
            target = instance_id or request_id
            if manual and state not in ("TRACE", "REFUSED", "NEW"):
                yield f"request {row} is a trace and is {state}"
            if state == "ACCEPTED" and kind == "start" and target not in instances:
                yield f"request {row} is ACCEPTED and started nothing"
            if target.startswith(NEVER) and target in instances:
                yield f"request {row} is {state} and started {target}"
            if kind == "event" and received[request_id] > (state == "ACCEPTED"):
                yield f"the event of request {row}, which is {state}, arrived {received[request_id]} times"

    def _received_events(self) -> Counter[str]:
        """How often each event of a client is in a history or an inbox, by its id."""
        found: Counter[str] = Counter()
        for (events,) in self._rows("SELECT events FROM history"):
            found.update(event.id for event in decode_events(events) if isinstance(event, EventReceived) and event.id)
        for (message,) in self._rows("SELECT event FROM inbox"):
            event = decode_event(message)
            if isinstance(event, EventReceived) and event.id:
                found[event.id] += 1
        return found

    # ------------------------------------------------------------ outcomes

    def outcomes(self, instance_id: str) -> list[ActivityOutcome]:
        """The ends of the external activities of the current execution of an instance, in the order of their calls."""
        rows = self._rows(
            "SELECT attempts.number, attempts.execution, activity, max(attempt), name, attempts.state, options, "
            "cancel_requested_at_ms FROM attempts JOIN instances ON instances.number = attempts.number "
            "AND instances.execution = attempts.execution WHERE id = ? AND superseded_at_ms IS NULL "
            "GROUP BY attempts.number, attempts.execution, activity ORDER BY activity",
            instance_id,
        )
        return [
            self._outcome((number, execution, activity, attempt), name, state, cancel)
            for number, execution, activity, attempt, name, state, options, cancel in rows
            if decode_options(options).external is not None
        ]

    def _outcome(
        self, key: tuple[int, int, int, int], name: str, state: str, cancelled_at_ms: int | None
    ) -> ActivityOutcome:
        applied = [
            report for exec_id in self.offers[key] for report in self.of_offer[exec_id] if report.state == "APPLIED"
        ]
        completed = [report.payload for report in applied if report.transition == "COMPLETED"]
        failed = [report.error for report in applied if report.transition == "FAILED"]
        responses = tuple(
            (report.sequence, json.loads(report.payload or "null"))
            for report in applied
            if report.transition == "RESPONSE"
        )
        return ActivityOutcome(
            name=name,
            state=state,
            cancel_requested=cancelled_at_ms is not None,
            completed=completed[0] if completed else None,
            failed=failed[0] if failed else None,
            responses=responses,
        )

    def yielded(self) -> Counter[tuple[int, int]]:
        """The number of streamed values in the histories, by instance and activity."""
        found: Counter[tuple[int, int]] = Counter()
        for number, events in self._rows("SELECT number, events FROM history"):
            for event in decode_events(events):
                if isinstance(event, ActivityYielded):
                    found[number, event.activity] += len(event.numbers)
        return found


@dataclass(frozen=True, slots=True)
class _Times:
    available_ms: int
    scheduled_ms: int
    started_ms: int | None


def _after(start_ms: int, duration_ms: int | None) -> int | None:
    return None if duration_ms is None else start_ms + duration_ms
