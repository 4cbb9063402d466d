"""Reports of executors about external activities (C4): claim, heartbeat, responses, end, release, cancel, notes.

Each call inserts a row of `activity_events` and waits for the answer of a worker that has the activity. The answer is a
value: a refusal is no exception, because an executor that lost a race reads it and does not act (A2).
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.client.instance_calls import InstanceCalls
from holdfast.client.requests import ANSWER_SECONDS, insert_row, wait_for_row
from holdfast.compose import open_contract_of
from holdfast.core.activity_events import DEFAULT_ERROR_TYPE, ReportKind, ReportState
from holdfast.core.activity_options import decode_options
from holdfast.core.lifecycle import AttemptState
from holdfast.storage.members.contract_rows import InsertReport
from holdfast.storage.records import OfferRecord, ReportAnswer

CLAIM_PARTS: Final = 2
"""Unique texts of 64 bits each in a claim."""


class OpenActivity(msgspec.Struct, frozen=True, kw_only=True):
    """An external activity as executors see it: the columns of the view `open_activities`."""

    activity_exec_id: str
    activity_name: str
    workflow_exec_id: str
    workflow_name: str
    queue: str
    input: msgspec.Raw
    attempt: int
    idempotency_key: str
    responses: int | None
    """Of a stream, the number of values that earlier attempts delivered. None: the activity takes no RESPONSE."""
    heartbeat_ms: int | None
    start_to_close_ms: int | None
    expires_at_ms: int | None


class OfferedActivity(msgspec.Struct, frozen=True, kw_only=True):
    """An activity under the exec id of an offer, with the state of its attempt."""

    activity: OpenActivity
    state: AttemptState
    is_current: bool
    """False after a release or the end of the attempt: reports under the id are refused, except NOTE."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a report. The state is NEW if no worker has handled the row in time; it is handled later."""

    event_id: str
    state: ReportState
    refusal: str | None = None
    cancel_requested: bool = False

    @property
    def is_applied(self) -> bool:
        return self.state is ReportState.APPLIED

    @property
    def is_refused(self) -> bool:
        return self.state is ReportState.REFUSED


def activity_of(offer: OfferRecord) -> OpenActivity:
    """The columns of the view, from an offer and its attempt."""
    attempt = offer.attempt
    key = attempt.key
    options = decode_options(attempt.options)
    return OpenActivity(
        activity_exec_id=offer.exec_id,
        activity_name=attempt.name,
        workflow_exec_id=attempt.instance_id,
        workflow_name=attempt.workflow,
        queue=attempt.queue,
        input=msgspec.Raw(attempt.input),
        attempt=key.attempt,
        idempotency_key=f"{attempt.instance_id}/{key.number}/{key.execution}/{key.activity}",
        responses=None if options.stream is None else options.stream.delivered,
        heartbeat_ms=options.heartbeat_ms,
        start_to_close_ms=options.start_to_close_ms,
        expires_at_ms=attempt.expires_at_ms,
    )


class ActivityReports:
    """The reports of one executor. `source` names it in the rows."""

    def __init__(self, calls: InstanceCalls, *, source: str | None = None) -> None:
        self._calls = calls
        self._source = source
        self.store = open_contract_of(calls.store)

    def new_claim(self) -> str:
        """A random claim of 128 bits, which only its claimant knows (A2)."""
        unique_text = self._calls.session.platform.providers.unique_text
        return "".join(unique_text() for _ in range(CLAIM_PARTS))

    async def open_activities(
        self, *, limit: int, queues: Sequence[str] | None = None, names: Sequence[str] | None = None
    ) -> list[OpenActivity]:
        """The activities that an executor may claim now, oldest first."""
        offers = await self.store.open_activities(limit=limit, queues=queues, names=names)
        return [activity_of(offer) for offer in offers]

    async def find(self, exec_id: str) -> OfferedActivity | None:
        """The activity under an exec id, whether the offer is current or not."""
        offer = await self.store.read_offer(exec_id)
        if offer is None:
            return None
        return OfferedActivity(activity=activity_of(offer), state=offer.attempt.state, is_current=offer.is_current)

    # ------------------------------------------------------------ reports

    async def insert(
        self,
        exec_id: str,
        kind: ReportKind,
        *,
        claim: str | None = None,
        payload: str | None = None,
        error: str | None = None,
        event_id: str | None = None,
        sequence: int | None = None,
    ) -> str:
        """Insert a report and return its id. It is durable, and counts from now on, whenever it is handled."""
        unique = self._calls.session.platform.providers.unique_text() if event_id is None else event_id
        report = InsertReport(
            event_id=unique,
            activity_exec_id=exec_id,
            transition=kind.value,
            claim=claim,
            sequence=sequence,
            payload=payload,
            error=error,
            source=self._source,
        )
        await insert_row(self._calls, report)
        return unique

    async def answer(self, event_id: str, seconds: float = ANSWER_SECONDS) -> Answered:
        """The answer to a report, when it is handled or `seconds` have passed."""
        store = self.store
        found = await wait_for_row(
            self._calls.session, lambda: store.read_report(event_id), _is_handled, seconds
        ) or ReportAnswer(state=ReportState.NEW, refusal=None, cancel_requested=False, handled_at_ms=None)
        return Answered(
            event_id=event_id,
            state=ReportState(found.state),
            refusal=found.refusal,
            cancel_requested=found.cancel_requested,
        )

    async def report(
        self, exec_id: str, kind: ReportKind, *, seconds: float = ANSWER_SECONDS, **columns: Any
    ) -> Answered:
        """Insert a report and wait for its answer. `columns` are those of `insert`."""
        return await self.answer(await self.insert(exec_id, kind, **columns), seconds)

    async def complete(
        self, exec_id: str, *, claim: str | None, payload: str | None, seconds: float = ANSWER_SECONDS
    ) -> Answered:
        """End the attempt with a result. A result of the wrong type is refused, and the attempt stays RUNNING."""
        return await self.report(exec_id, ReportKind.COMPLETED, claim=claim, payload=payload, seconds=seconds)

    async def fail(self, exec_id: str, *, claim: str | None, error: str, seconds: float = ANSWER_SECONDS) -> Answered:
        return await self.report(exec_id, ReportKind.FAILED, claim=claim, error=error, seconds=seconds)

    async def release(self, exec_id: str, *, claim: str | None, seconds: float = ANSWER_SECONDS) -> Answered:
        """Return a claim whose body does not run. The attempt is offered again under another exec id."""
        return await self.report(exec_id, ReportKind.RELEASE, claim=claim, seconds=seconds)

    async def stopped(self, exec_id: str, *, claim: str | None, seconds: float = ANSWER_SECONDS) -> Answered:
        """Confirm that a cancelled body has stopped."""
        return await self.report(exec_id, ReportKind.STOPPED, claim=claim, seconds=seconds)


def error_text(message: str, *, type: str = DEFAULT_ERROR_TYPE, retryable: bool = True) -> str:  # noqa: A002
    """The column `error` of a failure."""
    return msgspec.json.encode({"type": type, "message": message, "retryable": retryable}).decode()


def _is_handled(answer: ReportAnswer) -> bool:
    return answer.state != ReportState.NEW
