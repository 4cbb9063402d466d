"""Updates of a client: a message in the inbox of an instance, and a row of the store that receives the reply.

The reply does not depend on the process that sent the update, so the same id gives the same reply after a crash.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from holdfast.authoring.handlers import Update
from holdfast.authoring.validation import Duration, checked_name
from holdfast.client.embedded_worker import EmbeddedWorker
from holdfast.client.queries import encoded_arguments, limited
from holdfast.client.update_handle import UpdateHandle
from holdfast.core.admission import EventVerdict
from holdfast.core.history import Payload, UpdateAccepted, decode_events
from holdfast.core.lifecycle import InstanceState
from holdfast.core.updates import REFUSALS, RELEASE_UPDATE, UpdateState
from holdfast.errors import (
    InstanceClosed,
    InstanceNotFound,
    InvalidOption,
    MailboxFull,
    NodeNotHeld,
    UnknownUpdate,
    UpdateConflict,
    UpdateFailed,
    UpdateNotFound,
    UpdateRejected,
    UpdateUnfinished,
    WorkflowBlocked,
)
from holdfast.payloads.encoding import decode
from holdfast.payloads.failures import RecordedFailure, Resolver, describe_error, to_exception
from holdfast.runtime.session import StoreSession
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Delivered
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord, UpdateRow
from holdfast.storage.wakeups import EVERY_CHANGE

_failure: Final = msgspec.json.Decoder(RecordedFailure)
_payload: Final = msgspec.json.Decoder(Payload)


NamedUpdate = tuple[str | Update[Any], Sequence[Any]]
"""An update with its arguments."""


def named_arguments(update: Any) -> tuple[str | Update[Any], tuple[Any, ...]]:
    """The pair that ``start(..., update=...)`` takes; anything else is an `InvalidOption`."""
    if (
        not isinstance(update, tuple)
        or len(cast("Any", update)) != 2  # noqa: PLR2004 - a pair
        or not isinstance(cast("Any", update)[1], tuple | list)
    ):
        raise InvalidOption(
            f'update takes a name and a tuple of arguments, such as update=("add", (1, 2)), not {update!r}'
        )
    name, args = cast("NamedUpdate", update)
    return name, tuple(args)


class UpdateClient:
    """Sends updates and waits for their replies."""

    def __init__(
        self,
        session: StoreSession,
        resolve: Resolver,
        local: EmbeddedWorker,
    ) -> None:
        self._session = session
        self._store = session.store
        self._resolve = resolve
        self._local = local

    async def update(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        update: str | Update[Any],
        args: tuple[Any, ...],
        *,
        update_id: str | None,
        returns: Any,
        within: Duration | None,
        what: str = "",
    ) -> Any:
        """See `Handle.update`. `what` is the update in messages."""
        message = self.message(instance_id, number, update, args, update_id)
        unique = message.message_id
        what = what or described(message)
        async with limited(within, _late(what, unique)):
            found = await self._send(message, what)
            row = await self._replied(found, unique, what)
            data = await self._data(found, row)
        return self._decoded(what, row.state, data, type_of(update, returns))

    async def start_update(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        update: str | Update[Any],
        args: tuple[Any, ...],
        *,
        update_id: str | None,
        returns: Any,
        within: Duration | None,
    ) -> UpdateHandle[Any]:
        """See `Handle.start_update`."""
        message = self.message(instance_id, number, update, args, update_id)
        unique = message.message_id
        what = described(message)
        async with limited(within, _late(what, unique, "accepted")):
            found = await self._send(message, what)
            row = await self._replied(found, unique, what, is_accepted_enough=True)
            if row.state in REFUSALS:
                self._decoded(what, row.state, await self._data(found, row), Any)
        return UpdateHandle(self, instance_id, found, unique, type_of(update, returns))

    async def result(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        update_id: str,
        *,
        returns: Any,
        within: Duration | None,
    ) -> Any:
        """See `UpdateHandle.result`."""
        self._session.check_usable()
        what = f"the update with the id {update_id!r} of {instance_id!r}"
        async with limited(within, f"{what} was not answered in time; it continues"):
            if number is None:
                record = await self._store.find_instance(instance_id)
                if record is None:
                    raise InstanceNotFound(f"no instance has the id {instance_id!r}")
                number = record.number
            row = await self._store.read_update(number, update_id)
            if row is None or row.answer is None:
                await self._local.watch(number, every_change=True)
                row = await self._replied(number, update_id, what)
            data = await self._data(number, row)
        return self._decoded(what, row.state, data, returns)

    def message(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        update: str | Update[Any],
        args: tuple[Any, ...],
        update_id: str | None,
    ) -> Deliver:
        """The message of an update. Its `message_id` is the id of the update: the given one, or a random one."""
        session = self._session
        session.check_usable()
        name = update.name if isinstance(update, Update) else checked_name(update, "an update")
        data = encoded_arguments(args, f"the arguments of update {name!r}", session.payload_limit)
        new_id = session.platform.providers.unique_text
        unique = new_id() if update_id is None else checked_name(update_id, "an update")
        event = UpdateAccepted(time_ms=self._store.now_ms(), id=unique, name=name, input=Payload(msgspec.Raw(data)))
        watcher = EVERY_CHANGE + session.name
        return Deliver(id=instance_id, number=number, event=event, message_id=unique, watcher=watcher)

    async def _send(self, message: Deliver, what: str) -> InstanceNumber:
        """Commit an update into the inbox of its instance."""
        with self._session.spans.sending("update", name_of(message), message.id) as context:
            delivered = await self._local.deliver(with_trace(message, context) or message)
            await self.check_delivered(message, delivered, what)
            return delivered.instance.number

    async def check_delivered(self, message: Deliver, delivered: Delivered, what: str) -> None:
        """Raise unless the instance takes the update, or took it before (G7)."""
        found = delivered.instance
        match delivered.verdict:
            case EventVerdict.CLOSED:
                raise InstanceClosed(f"{message.id!r} is {found.state}: {what} was not taken")
            case EventVerdict.CONFLICT:
                raise UpdateConflict(await self._conflict(found.number, message.message_id, name_of(message)))
            case EventVerdict.MAILBOX_FULL:
                raise MailboxFull(f"too many updates of {message.id!r} wait for their answers: {what} was not taken")
            case _:
                return

    async def release(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        node: str,
        output: Any,
        *,
        update_id: str | None,
        within: Duration | None,
    ) -> None:
        """See `Handle.release`."""
        args = (checked_name(node, "a node"), *(() if output is ... else (output,)))
        what = f"the release of node {node!r} of {instance_id!r}"
        try:
            await self.update(
                instance_id, number, RELEASE_UPDATE, args, update_id=update_id, returns=Any, within=within, what=what
            )
        except UnknownUpdate:
            raise NodeNotHeld(f"{instance_id!r} is no flow, so it has no node {node!r} to release") from None
        except UpdateRejected as error:
            if isinstance(error.cause, NodeNotHeld):
                raise error.cause from None
            raise

    async def _conflict(self, number: InstanceNumber, update_id: str, name: str) -> str:
        """The message about an id that another update has. The name of that update is in the history."""
        record = await self._store.read_instance(number)
        rows = [] if record is None else await self._store.read_history(number, record.execution)
        events = [event for row in rows for event in decode_events(row.events)]
        first = next((event for event in events if isinstance(event, UpdateAccepted) and event.id == update_id), None)
        if first is None:
            differs = f"an update with another name than {name!r}, or with other arguments"
        elif first.name == name:
            differs = f"the update {name!r} with other arguments"
        else:
            differs = f"the update {first.name!r}, not {name!r}"
        again = "send the same name and arguments again, or use another id"
        return f"the id {update_id!r} belongs to {differs}; {again}"

    async def _replied(
        self, number: InstanceNumber, update_id: str, what: str, *, is_accepted_enough: bool = False
    ) -> UpdateRow:
        """The row of an update, once it has a reply, or, with `is_accepted_enough`, once it was accepted."""
        async for _ in self._session.changes.rounds():
            record = await self._store.read_instance(number)  # before the row: a closed instance writes no reply
            row = await self._store.read_update(number, update_id)
            if row is not None and (
                row.answer is not None or (is_accepted_enough and row.state is UpdateState.ACCEPTED)
            ):
                return row
            if row is None:  # the end of an instance deletes its updates that were not taken: it may have ended since
                record = await self._store.read_instance(number)
            _check(record, row, update_id, what)
        raise AssertionError

    async def _data(self, number: InstanceNumber, row: UpdateRow) -> bytes:
        payload = _payload.decode(row.answer or b"{}")
        if payload.reference:
            return (await self._store.read_payloads(number, [payload.reference]))[payload.reference]
        return bytes(payload.data)

    def _decoded(self, what: str, state: UpdateState, data: bytes, returns: Any) -> Any:
        """The value of a reply, or its error."""
        if state is UpdateState.DONE:
            return decode(data, returns, what=f"the answer to {what}")
        if state is UpdateState.UNKNOWN:
            known: list[str] = msgspec.json.decode(data)
            raise UnknownUpdate(f"{what} is not defined; the workflow has {', '.join(known) or 'none'}", tuple(known))
        cause = to_exception(_failure.decode(data), self._resolve)
        if isinstance(cause, UpdateUnfinished):
            raise cause
        if state is UpdateState.REJECTED:
            raise UpdateRejected(f"{what} was rejected: {describe_error(cause)}", cause) from cause
        raise UpdateFailed(f"{what} failed: {describe_error(cause)}", cause) from cause


def described(message: Deliver) -> str:
    """An update in messages for people."""
    return f"the update {name_of(message)!r} of {message.id!r}"


def name_of(message: Deliver) -> str:
    """The name of the update that a message brings."""
    return message.event.name if isinstance(message.event, UpdateAccepted) else ""


def with_trace(message: Deliver | None, context: str) -> Deliver | None:
    """The message of an update with the span that sends it."""
    if message is None or not isinstance(message.event, UpdateAccepted) or not context:
        return message
    return msgspec.structs.replace(message, event=msgspec.structs.replace(message.event, trace=context))


def type_of(update: str | Update[Any], returns: Any) -> Any:
    """The type of a result: that of a typed name, or the given one."""
    return update.annotation if isinstance(update, Update) else returns


def _late(what: str, update_id: str, outcome: str = "answered") -> str:
    return f"{what} was not {outcome} in time; send it again with id={update_id!r} to wait for its reply"


def _check(record: InstanceRecord | None, row: UpdateRow | None, update_id: str, what: str) -> None:
    """Raise if there is no such update, or if the instance can no longer answer, or is blocked."""
    if record is None or record.closed_at_ms is not None:
        if row is not None and row.state is UpdateState.ACCEPTED:
            raise UpdateUnfinished(f"the instance ended before {what} had finished")
        state = "gone" if record is None else record.state
        raise InstanceClosed(f"the instance is {state}, and {what} was not taken")
    if row is None:
        raise UpdateNotFound(f"{what} does not exist: it was never sent to this instance, or was rejected long ago")
    if record.state is InstanceState.BLOCKED:
        raise WorkflowBlocked(
            f"{record.id} is blocked: {record.blocked}; {what} waits; "
            f"send it again with id={update_id!r} to wait for its reply"
        )
