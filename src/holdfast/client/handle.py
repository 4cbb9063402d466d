"""A handle: one instance, seen from outside."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, Generic, Protocol, TypeVar, overload

import msgspec

from holdfast.authoring.events import Event
from holdfast.authoring.handlers import Query, Update
from holdfast.authoring.validation import Duration, checked_duration_ms, checked_integer
from holdfast.client.queries import QUERY_SECONDS, QueryClient
from holdfast.client.views.history import Change, export, watch
from holdfast.client.views.instances import (
    NEWEST,
    Description,
    HistoryEntry,
    Summary,
    Values,
    check_page,
    description,
    moment,
    summary,
)
from holdfast.client.views.obstacles import read_obstacles, waiting_sentence
from holdfast.core.history import ActivityScheduled, HistoryEvent, Payload, decode_events, encode_event, payloads_of
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import (
    HoldfastError,
    InstanceNotFound,
    StoreError,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowTerminated,
)
from holdfast.payloads.encoding import decode
from holdfast.payloads.failures import Failure, Resolver, describe_error, failed_message, to_exception
from holdfast.payloads.signature import Signature
from holdfast.runtime.worker import WorkerRuntime
from holdfast.storage.contract import Store
from holdfast.storage.large_payloads import inline, reference_of
from holdfast.storage.members.turns import InstanceEnd
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Limit = Duration | None
EXPLANATION_SECONDS: Final = 2.0
"""How long a time-out may take to find out what the instance waits for."""
_failure = msgspec.json.Decoder(Failure)
_payload = msgspec.json.Decoder(Payload)


class Reader(Protocol):
    """What a handle needs of the client that gave it."""

    @property
    def store(self) -> Store: ...
    @property
    def asking(self) -> QueryClient: ...
    @property
    def resolve(self) -> Resolver: ...
    @property
    def worker(self) -> WorkerRuntime | None: ...
    def check_usable(self) -> None: ...
    async def wait_for_end(self, instance_id: InstanceId, number: InstanceNumber) -> InstanceEnd | None: ...
    async def end_from_outside(
        self, instance_id: InstanceId, number: InstanceNumber | None, reason: str | None
    ) -> None: ...
    async def request_cancel(
        self, instance_id: InstanceId, number: InstanceNumber | None, reason: str | None
    ) -> None: ...
    async def deliver_event(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        event: str | Event[Any],
        value: Any,
        message_id: str | None,
    ) -> bool: ...
    def signature_of(self, workflow: str) -> Signature | None: ...


class Handle(Generic[R_co]):
    """Names an instance. Making one asks nothing of the store; its methods do.

    The handle that a start gave stays with the instance that it started or found. One that was made from an id alone
    means the newest instance of that id, each time that something is asked of it.
    """

    def __init__(
        self,
        client: Reader,
        instance_id: InstanceId,
        signature: Signature | None = None,
        *,
        is_new: bool = False,
        number: InstanceNumber | None = None,
    ) -> None:
        self.is_new = is_new  # made by the start that gave this handle
        self.number = number
        self._client = client
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

        Whoever waits stays with the instance that it found, also when the id is started anew meanwhile.
        """
        self._client.check_usable()
        if timeout is None:
            return await self._result()
        seconds = checked_duration_ms(timeout, "timeout") / 1000
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._result()
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(f"no result within {seconds:g} s: {await self._why_open()}") from error

    async def _why_open(self) -> str:
        """Where the instance is, what it waits for, and whether a live worker can take that."""
        try:
            async with asyncio.timeout(EXPLANATION_SECONDS):
                return waiting_sentence(await self.describe())
        except (HoldfastError, TimeoutError) as error:
            return f"{self._id!r} could not be read: {describe_error(error)}"

    async def _result(self) -> R_co:
        worker = self._client.worker
        if worker is not None and self._signature and self.number is not None and self.number in worker.turns.live:
            close = await self._client.wait_for_end(self._id, self.number)  # no need to look: it has not ended
            if (data := _data_in(close)) is not None and close is not None:
                return self._told(close.state, data, self._signature)
        record = await self._record()
        while record.closed_at_ms is None:
            if record.state is InstanceState.BLOCKED:
                raise WorkflowBlocked(f"{self._id} is blocked: {record.blocked}")
            close = await self._client.wait_for_end(self._id, record.number)
            if (data := _data_in(close)) is not None and close is not None:
                return self._told(close.state, data, self._signature or self._client.signature_of(record.workflow))
            record = await self._record(record.number)
        signature = self._signature or self._client.signature_of(record.workflow)
        return self._told(record.state, await self._outcome(record), signature)

    async def result_of(self, close: InstanceEnd | None) -> R_co:
        """The result, given how the instance ended; where that is not known, or large, it is read."""
        data = None if self._signature is None else _data_in(close)
        if data is None or close is None:
            return await self.result()
        return self._told(close.state, data, self._signature)

    def _told(self, state: InstanceState, data: bytes, signature: Signature | None) -> R_co:
        if state is InstanceState.COMPLETED:
            value: R_co = decode(data) if signature is None else signature.decode_result(data)
            return value
        if state is InstanceState.FAILED:
            cause = to_exception(_failure.decode(data), self._client.resolve)
            raise WorkflowFailed(failed_message(self._id, cause), cause) from cause
        if state is InstanceState.TERMINATED:
            reason: str | None = decode(data)
            said = f": {reason}" if reason else ""
            raise WorkflowTerminated(f"{self._id} was terminated{said}", reason)
        if state is not InstanceState.CANCELLED:
            raise StoreError(f"{self._id!r} has the state {state!r}, which is none; run holdfast verify")
        why: str | None = decode(data)
        raise WorkflowCancelled(f"{self._id} was cancelled{f': {why}' if why else ''}")

    async def terminate(self, reason: str | None = None) -> None:
        """End the instance now (A9). Its code is not asked: no `except` of it runs, and no activity of a clean-up.

        Whoever waits for it gets `WorkflowTerminated`. What its activities are doing is cancelled: at once in this
        process, with the next heartbeat of their worker elsewhere. `InstanceClosed` if it has ended already.
        """
        await self._client.end_from_outside(self._id, self.number, reason)

    async def cancel(self, reason: str | None = None) -> None:
        """Ask the workflow to end: its code gets an `asyncio.CancelledError` where it waits, and may clean up.

        Returns when the request is on disk. Asking twice is the same as asking once; `InstanceClosed` if it has ended.
        """
        await self._client.request_cancel(self._id, self.number, reason)

    @overload
    async def raise_event(self, event: Event[T], value: T, *, id: str | None = None) -> bool: ...
    @overload
    async def raise_event(self, event: str, value: Any = None, *, id: str | None = None) -> bool: ...
    async def raise_event(self, event: "str | Event[Any]", value: Any = None, *, id: str | None = None) -> bool:  # noqa: A002
        """Raise an event. When this returns it is on disk, and reaches the code once, in the order of its sender.

        The same `id` is the same event, however often it is raised. False if nobody waits for it and the workflow
        drops such events. `InstanceClosed` if the instance has ended, `MailboxFull` if too many wait in it already.
        """
        return await self._client.deliver_event(self._id, self.number, event, value, id)

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
        self._client.check_usable()
        return await self._client.asking.query(self._id, self.number, query, args, returns=returns, within=timeout)

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
        self._client.check_usable()
        sent = self._client.asking.updating.update
        return await sent(self._id, self.number, update, args, update_id=id, returns=returns, within=timeout)

    async def watch(self) -> AsyncGenerator[Change]:
        """The instance as it is now, and again after each of its commits, until it is closed.

        ``async for change in handle.watch(): ...``, from any process, for as many as like. Changes that come faster
        than they are taken are seen as one, the newest.
        """
        async for change in watch(self._client.store, self._client.asking.changes, (await self._record()).number):
            yield change

    async def describe(self, *, whole: bool = False) -> Description:
        """Where the instance is now, with its values: long ones are cut to an `Excerpt`, unless `whole` is true.

        What cannot be read, in a damaged store, is described in `damage`.
        """
        from holdfast.client.views.flows import add_nodes  # noqa: PLC0415
        from holdfast.client.views.report import read_details, read_story, repaired  # noqa: PLC0415 - most programs do not need it

        record, damage = repaired(await self._record())
        store = self._client.store
        attempts = [repaired(each)[0] for each in await store.read_attempts(record.number, record.execution)]
        story = await read_story(store, record)
        details = await read_details(store, record, story, attempts, is_whole=whole)
        values = details.values
        described = description(record, story.events, attempts, values)
        described = await add_nodes(store, described, record, story.flow, attempts=attempts, values=values)
        limit = await store.read_deadline(record.number)
        family = await store.read_relatives(record.number)
        return msgspec.structs.replace(
            described,
            custom_status=details.custom_status,
            state_values=details.state_values,
            mailbox=details.mailbox,
            updates=details.updates,
            set_aside=details.set_aside,
            damage=[*damage, *story.damage],
            deadline=None if limit is None else moment(limit.at_ms),
            parent=None if family.parent is None else family.parent.id,
            children=family.children,
            obstacles=await read_obstacles(store, record, attempts),
        )

    async def children(self, *, limit: int = 100, before: int = NEWEST) -> list[Summary]:
        """The children that its code started, newest first, a page at a time: see `Client.list`."""
        check_page(limit, before)
        number = (await self._record()).number
        records = await self._client.store.list_instances(before=before, limit=limit, parent=number)
        return [summary(record) for record in records]

    async def state(self) -> dict[str, Any]:
        """What the workflow keeps in `hf.state`, as of its last commit; also after its end."""
        kept = await self._client.store.read_state_values((await self._record()).number)
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
        store = self._client.store
        attempts = await store.read_attempts(record.number, record.execution)
        named = {reference_of(attempt.input) for attempt in attempts} - {""}
        values = Values(await store.read_payloads(record.number, named), is_whole=True)
        return {attempt.key.activity: values.of_input(attempt.input) for attempt in attempts}

    async def _whole_events(self, record: InstanceRecord) -> list[tuple[int, HistoryEvent]]:
        """The events with large values in place."""
        events = await self._events(record)
        named = {payload.reference for _, event in events for payload in payloads_of(event)} - {""}
        payloads = await self._client.store.read_payloads(record.number, named)
        return [(turn, inline(event, payloads)) for turn, event in events]

    async def _events(self, record: InstanceRecord) -> list[tuple[int, HistoryEvent]]:
        events: list[tuple[int, HistoryEvent]] = []
        for row in await self._client.store.read_history(record.number, record.execution):
            try:
                events += [(row.turn, event) for event in decode_events(row.events)]
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise StoreError(
                    f"turn {row.turn} of {self._id!r} cannot be decoded: {error}; run holdfast verify"
                ) from error
        return events

    async def _record(self, number: InstanceNumber | None = None) -> InstanceRecord:
        number = self.number if number is None else number
        store = self._client.store
        record = await (store.find_instance(self._id) if number is None else store.read_instance(number))
        if record is None:
            raise InstanceNotFound(f"no instance has the id {self._id!r}")
        return record

    async def _outcome(self, record: InstanceRecord) -> bytes:
        payload = _payload.decode(record.outcome or b"{}")
        if payload.reference:
            return (await self._client.store.read_payloads(record.number, [payload.reference]))[payload.reference]
        return bytes(payload.data)


def _data_in(close: InstanceEnd | None) -> bytes | None:
    """What an instance ended with, if this process knows how it ended, and the data is not stored aside."""
    payload = None if close is None else _payload.decode(close.outcome)
    return None if payload is None or payload.reference else bytes(payload.data)
