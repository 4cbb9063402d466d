"""Handles rows of the open contract: requests of clients and reports of executors (C2-C4).

A worker handles the requests for workflows that it has, and the reports about activities that it has, so that every
value is checked against a signature. A row that cannot be handled is refused with a sentence; it never delays other
rows. The effect of a row and its new state are one commit, which two workers never both make.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from holdfast.authoring.activity import Activity
from holdfast.authoring.validation import checked_name, checked_start_time_ms, start_deadline
from holdfast.core.activity_events import DEFAULT_ERROR_TYPE, NO_RESPONSES, CheckedReport, ReportKind, ReportState
from holdfast.core.admission import IdPolicy
from holdfast.core.checks import parse_enum
from holdfast.core.deadlines import LONGEST_SECONDS
from holdfast.core.history import CancelRequested, EventReceived, Payload, Started
from holdfast.errors import MAX_RETRY_AFTER_SECONDS, HoldfastError, StoreError, UsageError
from holdfast.payloads.failures import RecordedFailure
from holdfast.payloads.limits import MESSAGE_LIMIT_CHARACTERS, shorten
from holdfast.payloads.signature import input_hash
from holdfast.payloads.untrusted import check_untrusted
from holdfast.runtime.signals import PollSignal
from holdfast.runtime.turns.turn_builder import with_started
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.contract import OPEN_CONTRACT, OpenContractStore
from holdfast.storage.members.instances import Start
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Failed, HandledRows, Outcome
from holdfast.storage.members.row_handling import HandleReports, HandleRequest
from holdfast.storage.records import AttemptRecord, InstanceId, ReportRow, RequestRow, RowPage

logger = logging.getLogger("holdfast")

POLL_SECONDS: Final = 1.0
"""The poll interval, for rows whose notification was lost."""
BATCH: Final = 500
"""Rows that one read returns."""
MS_PER_PASSED_ROW: Final = 0.5
"""The time between two passes over all NEW rows grows by this for each that other workers have to handle."""
LOOK_BACK: Final = BATCH
"""Numbers of rows before the last one that a poll reads again."""
LONGEST_REFUSAL: Final = 2_000
LONGEST_DEADLINE_MS: Final = LONGEST_SECONDS * 1000
_ANY_VALUE: Final = frozenset({ReportKind.HEARTBEAT, ReportKind.NOTE})


class ReportedError(msgspec.Struct):
    """The JSON object in the column `error` of a FAILED report. An object with neither message nor type is a text."""

    message: str = ""
    type: str = ""
    retryable: bool | None = None
    retry_after: float | None = None
    """Seconds before the next attempt, as `hf.RetryAfter` of a body."""


class _Pass:
    """Where the next read of a table begins.

    Rows that only other workers can handle stay NEW. If there are more of them than one read returns, they are not read
    again at each poll: a poll begins near the last one, and a pass over all rows follows after a time that grows with
    their number. On PostgreSQL a row may be committed after rows with higher numbers. A poll looks back for it; the
    pass over all rows finds one that was committed much later.
    """

    def __init__(self) -> None:
        self._last_row = self._others = self._whole_at_ms = 0
        self._has_more = self._is_whole = False

    def begin(self, now_ms: int) -> int:
        """The row behind which the next page begins."""
        if not self._has_more:
            if now_ms >= self._whole_at_ms:
                self.restart()
            self._last_row = max(0, self._last_row - LOOK_BACK)
        return self._last_row

    def restart(self) -> None:
        """The next page begins with the first row."""
        self._last_row = self._others = self._whole_at_ms = 0
        self._has_more = False
        self._is_whole = True

    def end(self, page: RowPage[Any], now_ms: int) -> bool:
        """A page was handled. Returns whether there may be more rows behind it."""
        self._others += page.others
        self._last_row = page.last_row or self._last_row
        self._has_more = page.has_more
        if page.has_unread:
            self.restart()
            return True
        if self._is_whole and not self._has_more:
            self._is_whole = False
            is_long = self._others > BATCH
            self._whole_at_ms = now_ms + round(self._others * MS_PER_PASSED_ROW) if is_long else 0
        return self._has_more


class ContractRows:
    """Handles the rows of one worker."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._is_capable = OPEN_CONTRACT in getattr(context.session.store, "capabilities", ())
        self._store = cast("OpenContractStore", context.session.store)
        self._registry = context.registry
        self._workflows = tuple(context.registry.workflows)
        self._names = tuple(context.registry.activities)
        self._signal = PollSignal()
        self._request_pass = _Pass()
        self._report_pass = _Pass()
        self._has_requests = True
        self._has_reports = True
        """Whether rows of each table may have been inserted since the last poll."""
        self._strays_at_ms = 0
        self._largest = context.payload_limit.largest_bytes

    def poll(self, name: str | None = None) -> None:
        """Rows were inserted: `requests:` and a workflow, `activity_events:` and an activity, None for any."""
        table, _, about = (name or "").partition(":")
        is_request = table != "activity_events" and (name is None or about in self._registry.workflows)
        is_report = table != "requests" and (name is None or about in self._registry.activities)
        self._has_requests |= is_request
        self._has_reports |= is_report
        if is_request or is_report:
            self._signal.set()

    async def run(self) -> None:
        """Handle rows until cancelled."""
        while self._is_capable:
            self._signal.clear()
            try:
                await self.handle()
            except Exception as error:  # noqa: BLE001 - the next poll repeats it
                self._context.session.trouble.log("rows of clients could not be handled, and are tried again", error)
                self._request_pass.restart()
                self._report_pass.restart()
            await self._signal.wait_within(POLL_SECONDS)
            if not self._signal.is_set():
                self._has_requests = True
                self._has_reports = True

    async def handle(self) -> None:
        """Handle the rows of which this worker was notified, or all that are there after the interval of the poll.

        Requests and reports take turns, so that a backlog of one does not delay the other. A poll, which knows neither,
        asks first whether there is any row.
        """
        if self._has_requests and self._has_reports:
            self._has_requests = self._has_reports = False
            if await self._store.has_new_rows():
                self._has_requests = self._has_reports = True
        while self._has_requests or self._has_reports:
            if self._has_requests:
                self._has_requests = False
                has_more = await self._handle_requests()
                self._has_requests |= has_more  # read after the call: a row may have been inserted meanwhile
            if self._has_reports:
                self._has_reports = False
                has_more = await self._handle_reports()
                self._has_reports |= has_more
        now_ms = self._store.now_ms()
        if now_ms >= self._strays_at_ms:
            self._strays_at_ms = now_ms + round(POLL_SECONDS * 1000)
            for exec_id in await self._store.stranded_offers(BATCH):
                await self._handle_offer(exec_id, None)

    # ------------------------------------------------------------ requests

    async def _handle_requests(self) -> bool:
        """Handle one batch of requests. Returns whether there may be more."""
        now_ms = self._store.now_ms()
        after = self._request_pass.begin(now_ms)
        page = await self._store.new_requests(self._workflows, limit=BATCH, largest=self._largest, after=after)
        outcomes = await self._commit([self._request(row) for row in page.rows])
        refused = [
            HandleRequest(row=row.row, request_id=row.request_id, refusal=_not_stored(outcome.error))
            for row, outcome in zip(page.rows, outcomes, strict=True)
            if isinstance(outcome, Failed)
        ]
        if refused:
            await self._commit(refused)
        return self._request_pass.end(page, now_ms)

    def _request(self, row: RequestRow) -> HandleRequest:
        """The member that handles a request. Any error of its values is a refusal."""
        try:
            return HandleRequest(row=row.row, request_id=row.request_id, action=self._action(row))
        except HoldfastError as error:
            return HandleRequest(row=row.row, request_id=row.request_id, refusal=_refusal(str(error)))
        except Exception as error:  # noqa: BLE001 - the validator of a type is code of the application
            return HandleRequest(
                row=row.row, request_id=row.request_id, refusal=_refusal(f"the input was not accepted: {error!r}")
            )

    def _action(self, row: RequestRow) -> Start | Deliver | None:
        if row.fault is not None:
            raise UsageError(row.fault)
        if row.manual:
            return None
        match row.kind:
            case "start":
                return self._start(row)
            case "event":
                return self._event(row)
            case "cancel":
                return Deliver(
                    id=_target(row), event=CancelRequested(time_ms=self._store.now_ms(), reason=_reason(row.input))
                )
            case _:
                raise UsageError(f"the kind {row.kind!r} is unknown; write start, event or cancel")

    def _start(self, row: RequestRow) -> Start:
        if row.workflow is None:
            raise UsageError("a request of kind start needs the name of a workflow")
        workflow = self._registry.workflow(row.workflow)
        check_untrusted(row.input, max_bytes=self._largest)
        encoded = workflow.signature.normalise(row.input)
        now_ms = self._store.now_ms()
        deadline = workflow.deadline
        if row.deadline_after_ms is not None:
            if not 0 < row.deadline_after_ms <= LONGEST_DEADLINE_MS:
                raise UsageError(
                    f"deadline_after_ms must be 1 to {LONGEST_DEADLINE_MS} milliseconds, not {row.deadline_after_ms}"
                )
            deadline = start_deadline(workflow.deadline, row.deadline_after_ms / 1000)
        started = Started(
            time_ms=now_ms,
            workflow=workflow.name,
            version="",
            seed=self._context.session.platform.providers.seed(),
            input=Payload(msgspec.Raw(encoded)),
        )
        start = Start(
            id=InstanceId(checked_name(row.request_id if row.instance_id is None else row.instance_id, "an instance")),
            workflow=workflow.name,
            version=None,
            input=encoded,
            input_hash=input_hash(encoded),
            policy=IdPolicy.IDEMPOTENT if row.policy is None else parse_enum(IdPolicy, row.policy, "policy for ids"),
            deadline=deadline,
            start_at_ms=None if row.start_at_ms is None else checked_start_time_ms(row.start_at_ms, now_ms),
        )
        return with_started(start, started)

    def _event(self, row: RequestRow) -> Deliver:
        if not row.event_name:
            raise UsageError("a request of kind event needs event_name")
        check_untrusted(row.input, max_bytes=self._largest)
        unique = row.request_id
        event = EventReceived(
            time_ms=self._store.now_ms(),
            name=checked_name(row.event_name, "an event"),
            value=Payload(msgspec.Raw(row.input)),
            id=unique,
        )
        return Deliver(id=_target(row), event=event, message_id=unique)

    # ------------------------------------------------------------ reports

    async def _handle_reports(self) -> bool:
        """Handle one batch of reports. Returns whether there may be more."""
        now_ms = self._store.now_ms()
        after = self._report_pass.begin(now_ms)
        page = await self._store.new_reports(self._names, limit=BATCH, largest=self._largest, after=after)
        by_offer: dict[str, list[ReportRow]] = {}
        for row in page.rows:
            by_offer.setdefault(row.exec_id, []).append(row)
        members = [self._reports(exec_id, found) for exec_id, found in by_offer.items()]
        outcomes = await self._commit(members)
        for member, outcome in zip(members, outcomes, strict=True):
            if isinstance(outcome, Failed):
                await self._handle_one_by_one(member)
        return self._report_pass.end(page, now_ms)

    async def _handle_one_by_one(self, member: HandleReports) -> None:
        """The store could not apply some row of an attempt: the others are handled without it."""
        for report in member.reports:
            alone = msgspec.structs.replace(member, reports=(report,))
            [outcome] = await self._commit([alone])
            if isinstance(outcome, Failed):
                refused = msgspec.structs.replace(report, fault=_not_stored(outcome.error), kind=None)
                await self._commit([msgspec.structs.replace(member, reports=(refused,))])

    async def expire(self, attempt: AttemptRecord) -> bool:
        """A5: enforce the deadline of an external attempt behind the reports that were inserted before it.

        A worker that does not have the activity leaves an attempt with NEW rows to one that has it.
        """
        if not self._is_capable:
            return False
        exec_id = await self._store.current_offer(attempt.key)
        if exec_id is None:
            return False
        if attempt.name not in self._registry.activities and await self._store.has_new_report(exec_id):
            return False  # without a commit: there may be thousands of them, at each poll
        return await self._handle_offer(exec_id, attempt)

    async def _handle_offer(self, exec_id: str, attempt: AttemptRecord | None) -> bool:
        """Handle the rows of one offer, and then the deadline of its attempt. Returns whether anything changed."""
        rows = await self._store.reports_of(exec_id, limit=BATCH, largest=self._largest)
        if attempt is not None and attempt.name not in self._registry.activities:
            rows = []
        if not rows and attempt is None:
            return False
        if rows and rows[0].name not in self._registry.activities and attempt is None:
            return False
        member = self._reports(exec_id, rows)
        if attempt is not None:
            member = msgspec.structs.replace(member, key=attempt.key)
        [outcome] = await self._commit([member])
        return isinstance(outcome, HandledRows)

    def _reports(self, exec_id: str, rows: Sequence[ReportRow]) -> HandleReports:
        key = rows[0].key if rows else None
        return HandleReports(
            exec_id=exec_id,
            key=key,
            reports=tuple(self._report(row) for row in sorted(rows, key=lambda row: row.row)),
            random_number=self._context.session.platform.providers.random_number(),
        )

    def _report(self, row: ReportRow) -> CheckedReport:
        """A row with its values checked against the signature of the activity."""
        report = CheckedReport(
            row=row.row,
            kind=None,
            claim=row.claim,
            sequence=row.sequence,
            inserted_at_ms=row.inserted_at_ms,
            event_id=row.event_id,
        )
        try:
            kind = parse_enum(ReportKind, row.transition, "transition")
            report = msgspec.structs.replace(report, kind=kind, fault=row.fault, is_unread=row.is_unread)
            if row.fault is not None or row.is_unread:
                return report
            _check_claim(row.claim)
            if kind is ReportKind.FAILED:
                failure = failure_of_report(row.error)
                names = (failure.type, failure.type.rpartition(".")[2])
                return msgspec.structs.replace(report, failure=msgspec.json.encode(failure), error_types=names)
            return msgspec.structs.replace(report, value=self._value(kind, row))
        except HoldfastError as error:
            return msgspec.structs.replace(report, fault=_refusal(str(error)))
        except Exception as error:  # noqa: BLE001 - the validator of a type is code of the application
            return msgspec.structs.replace(report, fault=_refusal(f"the payload was not accepted: {error!r}"))

    def _value(self, kind: ReportKind, row: ReportRow) -> bytes:
        activity = None if row.name is None else self._registry.activities.get(row.name)
        data = b"null" if row.payload is None else row.payload
        is_result = kind in (ReportKind.COMPLETED, ReportKind.RESPONSE)
        if activity is None or not (is_result or kind in _ANY_VALUE):
            return b"null"
        check_untrusted(data, max_bytes=self._largest)
        if kind in _ANY_VALUE:
            return data
        if kind is ReportKind.RESPONSE and not activity.yields:
            raise UsageError(NO_RESPONSES)
        if kind is ReportKind.COMPLETED and activity.yields:
            if data != b"null":
                raise UsageError("an activity with responses completes without a payload; send it as a RESPONSE")
            return data
        return _normalised(activity, data)

    # ------------------------------------------------------------ commits

    async def _commit(self, members: Sequence[HandleRequest | HandleReports]) -> list[Outcome]:
        """Commit members in one group where possible. An error of the store itself ends this poll."""
        committer = self._context.committer
        outcomes = await asyncio.gather(*(committer.commit(member) for member in members))
        for member, outcome in zip(members, outcomes, strict=True):
            if isinstance(outcome, HandledRows):
                self._announce(member, outcome)
        for outcome in outcomes:
            if isinstance(outcome, Failed) and isinstance(outcome.error, StoreError):
                raise outcome.error
        return outcomes

    def _announce(self, member: HandleRequest | HandleReports, outcome: HandledRows) -> None:
        """Wake this worker, and notify the writers of the rows and the executors that wait for offers."""
        if outcome.wakes:
            self._context.work.set()
        session = self._context.session
        if isinstance(member, HandleRequest):
            session.rows_handled("requests", [member.request_id])
        else:
            ids = {report.row: report.event_id for report in member.reports}
            settled = [handled.row for handled in outcome.reports if handled.state is not ReportState.NEW]
            session.rows_handled("activity_events", [ids[row] for row in settled if row in ids])
        if outcome.offered:
            session.offered(outcome.offered)


def failure_of_report(error: bytes | None) -> RecordedFailure:
    """The failure that FAILED reports. A text that is not the documented object is the message."""
    text = "" if error is None else error.decode(errors="replace")
    try:
        reported = msgspec.json.decode(text, type=ReportedError)
    except (msgspec.DecodeError, RecursionError):
        reported = ReportedError(message=text)
    if not reported.message and not reported.type:
        reported = ReportedError(message=text, retryable=reported.retryable, retry_after=reported.retry_after)
    return RecordedFailure(
        type=shorten(reported.type or DEFAULT_ERROR_TYPE, LONGEST_REFUSAL),
        message=shorten(reported.message or "the executor reported a failure", MESSAGE_LIMIT_CHARACTERS),
        retryable=reported.retryable,
        next_delay_seconds=_delay_of(reported),
    )


def _delay_of(reported: ReportedError) -> float | None:
    """The delay that an executor asks for, within the bounds of `hf.RetryAfter`."""
    return None if reported.retry_after is None else min(max(0.0, reported.retry_after), MAX_RETRY_AFTER_SECONDS)


def _normalised(activity: Activity[..., Any], data: bytes) -> bytes:
    """The value as the activity's own type encodes it."""
    signature = activity.signature
    return signature.encode_result(signature.decode_result(data))


def _check_claim(claim: str | None) -> None:
    if claim == "":
        raise UsageError("the claim is empty; give a random string, or none")


def _target(row: RequestRow) -> InstanceId:
    if not row.instance_id:
        raise UsageError(f"a request of kind {row.kind} needs instance_id")
    return InstanceId(row.instance_id)


def _reason(data: bytes) -> str:
    """The reason of a cancel: its input if that is a JSON string."""
    try:
        return shorten(msgspec.json.decode(data, type=str), LONGEST_REFUSAL)
    except msgspec.DecodeError:
        return ""


def _refusal(text: str) -> str:
    return shorten(text, LONGEST_REFUSAL)


def _not_stored(error: Exception) -> str:
    return _refusal(f"the database did not accept it: {error}")
