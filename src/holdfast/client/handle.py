"""A handle: one instance, seen from outside."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, Generic, TypeVar, cast, overload

import msgspec

from holdfast.authoring.events import Event
from holdfast.authoring.handlers import Query, Update
from holdfast.authoring.validation import Duration, checked_duration_ms, checked_integer
from holdfast.client.instance_calls import InstanceCalls
from holdfast.client.queries import QUERY_SECONDS
from holdfast.client.views.history import Change, export, watch
from holdfast.client.views.instances import (
    NEWEST,
    Description,
    HistoryEntry,
    Summary,
    Values,
    check_page,
    summary,
)
from holdfast.client.views.obstacles import waiting_sentence
from holdfast.core.history import ActivityScheduled, HistoryEvent, decode_events, encode_event, payloads_of
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
"""How long a time-out may take to find out what the instance waits for."""


class Handle(Generic[R_co]):
    """Names an instance. Making a handle does not read the store; its methods do.

    A handle that a start returned stays with the instance that it started or found. A handle made from an id alone
    means the newest instance of that id, at each call.
    """

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
    ) -> None:
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
        """End the instance now (A9). Its code is not asked: no `except` of it runs, and no activity of a clean-up.

        Whoever waits for it gets `WorkflowTerminated`. What its activities are doing is cancelled: at once in this
        process, with the next heartbeat of their worker elsewhere. `InstanceClosed` if it has ended already.
        """
        await self._calls.terminate(self._id, self.number, reason)

    async def cancel(self, reason: str | None = None) -> None:
        """Ask the workflow to end: its code gets an `asyncio.CancelledError` where it waits, and may clean up.

        Returns when the request is on disk. Asking twice is the same as asking once; `InstanceClosed` if it has ended.
        """
        await self._calls.cancel(self._id, self.number, reason)

    @overload
    async def raise_event(self, event: Event[T], value: T, *, id: str | None = None) -> bool: ...
    @overload
    async def raise_event(self, event: str, value: Any = None, *, id: str | None = None) -> bool: ...
    async def raise_event(self, event: "str | Event[Any]", value: Any = None, *, id: str | None = None) -> bool:  # noqa: A002
        """Raise an event. When this returns it is on disk, and reaches the code once, in the order of its sender.

        The same `id` is the same event, however often it is raised. False if nobody waits for it and the workflow
        drops such events. `InstanceClosed` if the instance has ended, `MailboxFull` if too many wait in it already.
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
        """Ask the workflow's own function of that name (`hf.on_query`), as of its last commit; also after its end.

        Nothing is changed by it. `UnknownQuery` names the queries there are; `QueryFailed` has the function's error as
        its `cause`; `TimeoutError` if nobody answered. An instance that has not begun is waited for.
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
        """Change the workflow by its own function of that name (`hf.on_update`), and wait for the function's result.

        The same `id` is the same update: it is applied once, and answered the same however often it is sent, also after
        a crash or the end. `UpdateRejected` if its validator said no, `UnknownUpdate` if there is no such function:
        neither leaves a trace. `UpdateFailed` has the function's error as its `cause`; `UpdateUnfinished` if the
        workflow ended meanwhile, `InstanceClosed` if it had before. After a `TimeoutError` the update goes on.
        """
        send = self._calls.updates.update
        return await send(self._id, self.number, update, args, update_id=id, returns=returns, within=timeout)

    async def watch(self) -> AsyncGenerator[Change]:
        """The instance as it is now, and again after each of its commits, until it is closed.

        ``async for change in handle.watch(): ...``, from any process, for as many as like. Changes that come faster
        than they are taken are seen as one, the newest.
        """
        number = (await self._record()).number
        async for change in watch(self._calls.store, self._calls.session.changes, number):
            yield change

    async def describe(self, *, whole: bool = False) -> Description:
        """Where the instance is now, with its values: long ones are cut to an `Excerpt`, unless `whole` is true.

        What cannot be read, in a damaged store, is described in `damage`.
        """
        from holdfast.client.views.report import read_report  # noqa: PLC0415 - most programs do not need it

        return (await read_report(self._calls.store, await self._record(), is_whole=whole)).described

    async def children(self, *, limit: int = 100, before: int = NEWEST) -> list[Summary]:
        """The children that its code started, newest first, a page at a time: see `Client.list`."""
        check_page(limit, before)
        number = (await self._record()).number
        records = await self._calls.store.list_instances(before=before, limit=limit, parent=number)
        return [summary(record) for record in records]

    async def state(self) -> dict[str, Any]:
        """What the workflow keeps in `hf.state`, as of its last commit; also after its end."""
        kept = await self._calls.store.read_state_values((await self._record()).number)
        return {key: decode(value) for key, value in kept.items() if key}

    async def history(self, execution: int | None = None) -> list[HistoryEntry]:
        """What happened, in order: in the last execution, or in an earlier one (G4)."""
        record = await self._record()
        if execution is not None:
            checked_integer(execution, f"the execution of {self._id!r}", least=1, most=record.execution)
        record = record if execution is None else msgspec.structs.replace(record, execution=execution)
        entries: list[HistoryEntry] = []
        inputs = await self._inputs(record)
        for number, (turn, event) in enumerate(await self._whole_events(record)):
            fields: dict[str, Any] = msgspec.json.decode(encode_event(event))
            if isinstance(event, ActivityScheduled) and event.activity in inputs:
                fields["input"] = {"data": inputs[event.activity]}
            entries.append(HistoryEntry(number=number, turn=turn, kind=fields.pop("event"), fields=fields))
        return entries

    async def export_history(self) -> str:
        """The history as JSON text, to be kept with tests and replayed by `holdfast.testing.Replayer`."""
        record = await self._record()
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
        """The events with large values in place."""
        events = await self._events(record)
        named = {payload.reference for _, event in events for payload in payloads_of(event)} - {""}
        payloads = await self._calls.store.read_payloads(record.number, named)
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

    async def _record(self) -> InstanceRecord:
        return await self._calls.record(self._id, self.number)
