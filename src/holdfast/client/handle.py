"""A handle: the calls of a client about one instance."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, Generic, TypeVar, cast, overload

import msgspec

from holdfast.authoring.events import Event
from holdfast.authoring.handlers import Query, Update
from holdfast.authoring.validation import Duration, checked_duration_ms, checked_integer
from holdfast.client.instance_calls import InstanceCalls
from holdfast.client.queries import QUERY_SECONDS
from holdfast.client.update_handle import UpdateHandle
from holdfast.client.views.history import Change, export, watch
from holdfast.client.views.instances import (
    NEWEST,
    Description,
    HistoryEntry,
    Summary,
    Values,
    check_page,
    event_fields,
    require_there,
    summary,
)
from holdfast.client.views.obstacles import waiting_sentence
from holdfast.core.attributes import AttributeValue
from holdfast.core.history import ActivityScheduled, HistoryEvent, decode_events, payloads_of
from holdfast.errors import HoldfastError, StoreError
from holdfast.payloads.encoding import decode
from holdfast.payloads.failures import describe_error
from holdfast.payloads.signature import Signature
from holdfast.storage.large_payloads import inline, reference_of
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Limit = Duration | None
EXPLANATION_SECONDS: Final = 2.0
"""How long the explanation in a `TimeoutError` may take."""


class Handle(Generic[R_co]):
    """Names an instance. Making a handle does not read the store; its methods do.

    A handle that a start returned stays with the instance that it started or found. A handle made from an id alone
    means the newest instance of that id, at each call.
    """

    sent_update: UpdateHandle[Any] | None
    """The update of ``start(..., update=...)``; None for every other handle."""
    is_new: bool
    """Whether the start that returned this handle created the instance, and did not find it."""
    number: InstanceNumber | None
    """The number of the instance, which no other instance ever has; None for a handle made from an id alone."""

    def __init__(
        self,
        calls: InstanceCalls,
        instance_id: InstanceId,
        signature: Signature | None = None,
        *,
        number: InstanceNumber | None = None,
        is_new: bool = False,
        sent_update: UpdateHandle[Any] | None = None,
    ) -> None:
        self.sent_update = sent_update
        self.is_new = is_new
        self.number = number
        self._calls = calls
        self._id = instance_id
        self._signature = signature

    @property
    def id(self) -> str:
        """The id of the instance."""
        return self._id

    def __repr__(self) -> str:
        return f"<handle of {self._id!r}>"

    async def result(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 - the name is part of the design
        """Wait for the end. A failure is raised as `WorkflowFailed` with its cause; `TimeoutError` after `timeout`.

        A call stays with the instance that it found, also if the id is started again meanwhile.
        """
        calls = self._calls
        calls.session.check_usable()
        if timeout is None:
            return cast("R_co", await calls.result(self._id, self.number, self._signature))
        seconds = checked_duration_ms(timeout, "timeout") / 1000
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return cast("R_co", await calls.result(self._id, self.number, self._signature))
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(f"no result within {seconds:g} s: {await self._why_open()}") from error

    async def _why_open(self) -> str:
        """The state of the instance, what it waits for, and whether a live worker can take that."""
        try:
            async with asyncio.timeout(EXPLANATION_SECONDS):
                return waiting_sentence(await self.describe())
        except (HoldfastError, TimeoutError) as error:
            return f"{self._id!r} could not be read: {describe_error(error)}"

    async def terminate(self, reason: str | None = None) -> None:
        """End the instance now (A9), without running its code: no `except` or `finally` of the workflow runs.

        Callers of `result` get `WorkflowTerminated`. Running activities are cancelled: at once in this process, with
        the next heartbeat in others. Raises `InstanceClosed` if the instance has ended.
        """
        await self._calls.terminate(self._id, self.number, reason)

    async def cancel(self, reason: str | None = None) -> None:
        """Request cancellation: the workflow gets an `asyncio.CancelledError` where it waits, and may clean up.

        Returns when the request is on disk. A second request changes nothing. Raises `InstanceClosed` if the instance
        has ended.
        """
        await self._calls.cancel(self._id, self.number, reason)

    async def retry_blocked(self) -> None:
        """Try a BLOCKED instance again (G12): a worker that has its code claims it, also one that has blocked it.

        Returns when the request is on disk. An instance whose turn still fails is BLOCKED again, and is not tried until
        the next deploy or request. Raises `InstanceNotBlocked`, and `InstanceClosed` if the instance has ended.
        """
        await self._calls.retry_blocked(self._id, self.number)

    async def pause(self, reason: str | None = None, *, family: bool = False) -> None:
        """Pause the instance (R20): no turn is taken and no attempt begins until `resume`. Running bodies continue.

        Returns when the pause is on disk. A second pause changes nothing. With `family` its open descendants are
        paused, too. Raises `InstanceNotRunning` for an instance that is BLOCKED or was asked to cancel, and
        `InstanceClosed`.
        """
        await self._calls.pauses.pause(self._id, self.number, reason, family=family)

    async def resume(self, *, extend: Duration | None = None, fail: bool = False, family: bool = False) -> None:
        """Let a PAUSED instance continue (R22). A deadline that has passed meanwhile is applied first.

        `extend` moves the deadline by so much. If the instance was paused because an activity had used up its retries
        (``on_exhausted="pause"``), the activity is tried again with a fresh budget; with `fail` it fails instead. With
        `family` the PAUSED descendants continue, too. Raises `InstanceNotPaused`, `NothingExhausted` for a `fail`
        without such an activity, and `InstanceClosed`.
        """
        await self._calls.pauses.resume(self._id, self.number, extend=extend, fail=fail, family=family)

    async def set_attributes(self, values: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
        """Set attributes of the instance, and delete those whose value is None. Returns all that it has then.

        Filters see the change when this returns. The code of an open instance reads it as a message, in the order of
        events and updates. Instances that have ended can be changed, too. Raises `InvalidAttribute` and
        `InstanceNotFound`.
        """
        return await self._calls.set_attributes(self._id, self.number, values)

    async def cancel_activity(self, activity: str) -> None:
        """Cancel one activity, which gives its workflow an `ActivityCancelled` when its attempt has ended (A1).

        `activity` is its name if that is unambiguous, ``"charge#2"`` for the second call of ``charge``, or a node of a
        flow. Returns when the request is on disk. A running body is asked to stop: at once in this process, with the
        next heartbeat in others; a result that it returns nevertheless counts. Raises `ActivityNotFound`,
        `ActivityClosed` if the activity has ended, and `InstanceClosed`.
        """
        await self._calls.cancel_activity(self._id, self.number, activity)

    @overload
    async def raise_event(self, event: Event[T], value: T, *, id: str | None = None) -> bool: ...
    @overload
    async def raise_event(self, event: str, value: Any = None, *, id: str | None = None) -> bool: ...
    async def raise_event(self, event: "str | Event[Any]", value: Any = None, *, id: str | None = None) -> bool:  # noqa: A002
        """Raise an event. It is on disk when this returns, and reaches the code once, in the order of its sender.

        The same `id` is the same event, however often it is raised. Returns False if the workflow drops events that it
        does not wait for, and drops this one. Raises `InstanceClosed` if the instance has ended, and `MailboxFull` if
        its mailbox is full.
        """
        return await self._calls.raise_event(self._id, self.number, event, value, id)

    @overload
    async def query(self, query: Query[T], *args: Any, timeout: Limit = QUERY_SECONDS) -> T: ...  # noqa: ASYNC109
    @overload
    async def query(self, query: str, *args: Any, returns: type[T], timeout: Limit = QUERY_SECONDS) -> T: ...  # noqa: ASYNC109
    @overload
    async def query(self, query: str, *args: Any, returns: Any = Any, timeout: Limit = QUERY_SECONDS) -> Any: ...  # noqa: ASYNC109
    async def query(
        self,
        query: "str | Query[Any]",
        *args: Any,
        returns: Any = Any,
        timeout: Limit = QUERY_SECONDS,  # noqa: ASYNC109 - the name is part of the design
    ) -> Any:
        """Call a query of the workflow (`hf.on_query`) on its state as of the last commit, also after its end.

        A query changes nothing. If the instance has not started, this waits for its first turn. Raises `UnknownQuery`
        with the names of the existing queries, `QueryFailed` with the error of the function as its `cause`, and
        `TimeoutError`.
        """
        ask = self._calls.queries.query
        return await ask(self._id, self.number, query, args, returns=returns, within=timeout)

    @overload
    async def update(
        self,
        update: Update[T],
        *args: Any,
        id: str | None = None,
        timeout: Limit = None,  # noqa: ASYNC109
    ) -> T: ...
    @overload
    async def update(
        self,
        update: str,
        *args: Any,
        id: str | None = None,
        returns: type[T],
        timeout: Limit = None,  # noqa: ASYNC109
    ) -> T: ...
    @overload
    async def update(
        self,
        update: str,
        *args: Any,
        id: str | None = None,
        returns: Any = Any,
        timeout: Limit = None,  # noqa: ASYNC109
    ) -> Any: ...
    async def update(
        self,
        update: "str | Update[Any]",
        *args: Any,
        id: str | None = None,  # noqa: A002
        returns: Any = Any,
        timeout: Limit = None,  # noqa: ASYNC109 - the name is part of the design
    ) -> Any:
        """Call an update of the workflow (`hf.on_update`), and wait for the result of the function.

        The same `id` is the same update: it is applied once and has one result, however often it is sent, also after a
        crash or the end of the instance. Raises `UpdateRejected` if the validator rejects it and `UnknownUpdate` if
        there is no such function, in which case nothing is recorded; `UpdateFailed` with the error of the function as
        its `cause`; `UpdateUnfinished` if the workflow ends before the function; `InstanceClosed` if it ended before
        the update. After a `TimeoutError` the update continues.
        """
        send = self._calls.updates.update
        return await send(self._id, self.number, update, args, update_id=id, returns=returns, within=timeout)

    @overload
    async def start_update(
        self,
        update: Update[T],
        *args: Any,
        id: str | None = None,
        timeout: Limit = None,  # noqa: ASYNC109
    ) -> UpdateHandle[T]: ...
    @overload
    async def start_update(
        self,
        update: str,
        *args: Any,
        id: str | None = None,
        returns: type[T],
        timeout: Limit = None,  # noqa: ASYNC109
    ) -> UpdateHandle[T]: ...
    @overload
    async def start_update(
        self,
        update: str,
        *args: Any,
        id: str | None = None,
        returns: Any = Any,
        timeout: Limit = None,  # noqa: ASYNC109
    ) -> UpdateHandle[Any]: ...
    async def start_update(
        self,
        update: "str | Update[Any]",
        *args: Any,
        id: str | None = None,  # noqa: A002
        returns: Any = Any,
        timeout: Limit = None,  # noqa: ASYNC109 - the name is part of the design
    ) -> UpdateHandle[Any]:
        """Send an update, and return its handle when the workflow has accepted it: its validator passed, and that is
        on disk (G17). `UpdateHandle.result` waits for the result of the function.

        Raises as `update` does, except for the errors of the function, which `UpdateHandle.result` raises. After a
        `TimeoutError` the update is still applied when a worker takes it.
        """
        send = self._calls.updates.start_update
        return await send(self._id, self.number, update, args, update_id=id, returns=returns, within=timeout)

    async def release(
        self,
        node: str,
        *,
        output: Any = ...,
        id: str | None = None,  # noqa: A002 - as in `update`
        timeout: Limit = None,  # noqa: ASYNC109 - the name is part of the design
    ) -> None:
        """Release a node of a flow that is held (`hold: true`), and wait until the flow has continued.

        `output` replaces the output of the node. The same `id` is the same release: it is applied once, however often
        it is sent. Raises `NodeNotHeld` if the digit of the node is not 5, `InstanceClosed` if the instance has ended,
        and `TimeoutError`, after which the release is still applied when a worker takes it.
        """
        release = self._calls.updates.release
        await release(self._id, self.number, node, output, update_id=id, within=timeout)

    async def watch(self) -> AsyncGenerator[Change]:
        """Yield the instance as it is now, and again after each of its commits, until it is closed.

        ``async for change in handle.watch(): ...`` works in any process. A slow reader gets the newest of several
        changes.
        """
        number = (await self._record()).number
        await self._calls.local.watch(number, every_change=True)
        async for change in watch(self._calls.store, self._calls.session.changes, number):
            yield change

    async def describe(self, *, whole: bool = False, execution: int | None = None) -> Description:
        """The current state of the instance with its values; long values are an `Excerpt` unless `whole` is true.

        `execution` describes an earlier execution (G4): its attempts with their ledgers, its steps, key and input. In a
        damaged store, `damage` describes what could not be read.
        """
        from holdfast.client.views.report import read_report  # noqa: PLC0415 - most programs do not need it

        record = await self._record()
        return (await read_report(self._calls.store, record, is_whole=whole, number=execution)).described

    async def children(self, *, limit: int = 100, before: int = NEWEST) -> list[Summary]:
        """A page of the children that the workflow started, newest first; see `Client.list`."""
        check_page(limit, before)
        number = (await self._record()).number
        records = await self._calls.store.list_instances(before=before, limit=limit, parent=number)
        return [summary(record) for record in records]

    async def state(self) -> dict[str, Any]:
        """The values that the workflow has in `hf.state`, as of its last commit, also after its end."""
        record = await self._record()
        values = await self._calls.store.read_state_values(record.number)
        await require_there(self._calls.store, record)
        return {key: decode(value) for key, value in values.items() if key}

    async def history(self, execution: int | None = None) -> list[HistoryEntry]:
        """The events of the last execution in order, or those of an earlier execution (G4)."""
        record = await self._record_of(execution)
        entries: list[HistoryEntry] = []
        inputs = await self._inputs(record)
        for number, (turn, event) in enumerate(await self._whole_events(record)):
            fields = event_fields(event)
            if isinstance(event, ActivityScheduled) and event.activity in inputs:
                fields["input"] = {"data": inputs[event.activity]}
            entries.append(HistoryEntry(number=number, turn=turn, kind=fields.pop("event"), fields=fields))
        return entries

    async def export_history(self, execution: int | None = None) -> str:
        """The history as JSON, to be stored with tests and replayed by `holdfast.testing.Replayer`.

        That of the last execution, or of an earlier one (G4).
        """
        record = await self._record_of(execution)
        turns: dict[int, list[HistoryEvent]] = {}
        for turn, event in await self._whole_events(record):
            turns.setdefault(turn, []).append(event)
        return export(record.id, record.workflow, record.execution, list(turns.values()))

    async def _inputs(self, record: InstanceRecord) -> dict[int, Any]:
        """The arguments of activities, which are stored with their attempts."""
        store = self._calls.store
        attempts = await store.read_attempts(record.number, record.execution)
        named = {reference_of(attempt.input) for attempt in attempts} - {""}
        values = Values(await store.read_payloads(record.number, named), is_whole=True)
        return {attempt.key.activity: values.of_input(attempt.input) for attempt in attempts}

    async def _whole_events(self, record: InstanceRecord) -> list[tuple[int, HistoryEvent]]:
        """The events with their large payloads in place."""
        events = await self._events(record)
        named = {payload.reference for _, event in events for payload in payloads_of(event)} - {""}
        payloads = await self._calls.store.read_payloads(record.number, named)
        await require_there(self._calls.store, record)
        return [(turn, inline(event, payloads)) for turn, event in events]

    async def _events(self, record: InstanceRecord) -> list[tuple[int, HistoryEvent]]:
        events: list[tuple[int, HistoryEvent]] = []
        for row in await self._calls.store.read_history(record.number, record.execution):
            try:
                events += [(row.turn, event) for event in decode_events(row.events)]
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise StoreError(
                    f"turn {row.turn} of {self._id!r} cannot be decoded: {error}; run holdfast verify"
                ) from error
        return events

    async def _record_of(self, execution: int | None) -> InstanceRecord:
        """The record as it is in its last execution, or with the number of an earlier one."""
        record = await self._record()
        if execution is None:
            return record
        checked_integer(execution, f"the execution of {self._id!r}", least=1, most=record.execution)
        return msgspec.structs.replace(record, execution=execution)

    async def _record(self) -> InstanceRecord:
        return await self._calls.record(self._id, self.number)
