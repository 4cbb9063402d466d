"""Sending an update to an instance, and waiting for what comes of it: in this process, in another, or after a crash.

What those who ask and those who send have in common: arguments by position, and a limit in time.
"""

from typing import Any, Final

import msgspec

from holdfast.authoring.handlers import Update
from holdfast.authoring.validation import Duration, checked_name
from holdfast.client.embedded_worker import EmbeddedWorker
from holdfast.client.queries import encoded_arguments, limited
from holdfast.core.admission import EventVerdict
from holdfast.core.history import Payload, UpdateAccepted, decode_events
from holdfast.core.lifecycle import InstanceState
from holdfast.core.updates import UpdateState
from holdfast.errors import (
    InstanceClosed,
    MailboxFull,
    UnknownUpdate,
    UpdateConflict,
    UpdateFailed,
    UpdateRejected,
    UpdateUnfinished,
    WorkflowBlocked,
)
from holdfast.payloads.encoding import decode
from holdfast.payloads.failures import Failure, Resolver, describe_error, to_exception
from holdfast.runtime.session import StoreSession
from holdfast.storage.members.messages import Deliver
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord, UpdateRow

_failure: Final = msgspec.json.Decoder(Failure)
_payload: Final = msgspec.json.Decoder(Payload)


class UpdateClient:
    """What a client sends to change instances. `deliver` commits a message."""

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
    ) -> Any:
        """Send an update; see `Handle.update`."""
        session = self._session
        session.check_usable()
        name = update.name if isinstance(update, Update) else checked_name(update, "an update")
        data = encoded_arguments(args, f"the arguments of update {name!r}", session.payload_limit)
        new_id = session.platform.providers.unique_text
        unique = new_id() if update_id is None else checked_name(update_id, "an update")
        what = f"the update {name!r} of {instance_id!r}"
        event = UpdateAccepted(time_ms=self._store.now_ms(), id=unique, name=name, input=Payload(msgspec.Raw(data)))
        async with limited(within, f"{what} was not answered in time; ask again with id={unique!r}"):
            told = await self._local.deliver(Deliver(id=instance_id, number=number, event=event, message_id=unique))
            if told.verdict is EventVerdict.CLOSED:
                raise InstanceClosed(f"{instance_id!r} is {told.instance.state}: {what} was not taken")
            if told.verdict is EventVerdict.CONFLICT:
                raise UpdateConflict(await self._conflict(told.instance.number, unique, name))
            if told.verdict is EventVerdict.MAILBOX_FULL:
                raise MailboxFull(f"too many updates of {instance_id!r} wait for their answers: {what} was not taken")
            row = await self._answered(told.instance.number, unique, what)
            answer = await self._data(told.instance.number, row)
        returns = update.annotation if isinstance(update, Update) else returns
        return self._told(what, row.state, answer, returns)

    async def _conflict(self, number: InstanceNumber, update_id: str, name: str) -> str:
        """Why an id cannot be used. The store keeps a hash of the first update; its name is in the history."""
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

    async def _answered(self, number: InstanceNumber, update_id: str, what: str) -> UpdateRow:
        async for _ in self._session.changes.rounds():
            record = await self._store.read_instance(number)  # before its answer: what is closed then stays as it is
            row = await self._store.read_update(number, update_id)
            if row is not None and row.answer is not None:
                return row
            _check(record, row, update_id, what)
        raise AssertionError

    async def _data(self, number: InstanceNumber, row: UpdateRow) -> bytes:
        payload = _payload.decode(row.answer or b"{}")
        if payload.reference:
            return (await self._store.read_payloads(number, [payload.reference]))[payload.reference]
        return bytes(payload.data)

    def _told(self, what: str, state: UpdateState, data: bytes, returns: Any) -> Any:
        if state is UpdateState.DONE:
            return decode(data, returns, what=f"the answer to {what}")
        if state is UpdateState.UNKNOWN:
            known: list[str] = msgspec.json.decode(data)
            said = f"{what} is unknown to the workflow; it has {', '.join(known) or 'none'}"
            raise UnknownUpdate(said, tuple(known))
        cause = to_exception(_failure.decode(data), self._resolve)
        if isinstance(cause, UpdateUnfinished):
            raise cause
        said = describe_error(cause)
        if state is UpdateState.REJECTED:
            raise UpdateRejected(f"{what} was rejected: {said}", cause) from cause
        raise UpdateFailed(f"{what} failed: {said}", cause) from cause


def _check(record: InstanceRecord | None, row: UpdateRow | None, update_id: str, what: str) -> None:
    """Whether there is still something to wait for."""
    if record is None or record.closed_at_ms is not None:
        if row is not None and row.state is UpdateState.ACCEPTED:
            raise UpdateUnfinished(f"the instance was ended before {what} was done")
        state = "gone" if record is None else record.state
        raise InstanceClosed(f"the instance is {state}, and {what} was not taken before")
    if record.state is InstanceState.BLOCKED:
        raise WorkflowBlocked(
            f"{record.id} is blocked: {record.blocked}; {what} waits, ask for its answer again with id={update_id!r}"
        )
