"""Updates of a client: a message in the inbox of an instance, and a row of the store that receives the reply.

The reply does not depend on the process that sent the update, so the same id gives the same reply after a crash.
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
from holdfast.core.updates import RELEASE_UPDATE, UpdateState
from holdfast.errors import (
    InstanceClosed,
    MailboxFull,
    NodeNotHeld,
    UnknownUpdate,
    UpdateConflict,
    UpdateFailed,
    UpdateRejected,
    UpdateUnfinished,
    WorkflowBlocked,
)
from holdfast.payloads.encoding import decode
from holdfast.payloads.failures import RecordedFailure, Resolver, describe_error, to_exception
from holdfast.runtime.session import StoreSession
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import TargetInstance
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord, UpdateRow
from holdfast.storage.wakeups import EVERY_CHANGE

_failure: Final = msgspec.json.Decoder(RecordedFailure)
_payload: Final = msgspec.json.Decoder(Payload)


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
        session = self._session
        session.check_usable()
        name = update.name if isinstance(update, Update) else checked_name(update, "an update")
        data = encoded_arguments(args, f"the arguments of update {name!r}", session.payload_limit)
        new_id = session.platform.providers.unique_text
        unique = new_id() if update_id is None else checked_name(update_id, "an update")
        what = what or f"the update {name!r} of {instance_id!r}"
        async with limited(
            within, f"{what} was not answered in time; send it again with id={unique!r} to wait for its reply"
        ):
            found = await self._send(instance_id, number, update_id=unique, name=name, data=data, what=what)
            row = await self._answered(found.number, unique, what)
            data = await self._data(found.number, row)
        returns = update.annotation if isinstance(update, Update) else returns
        return self._decoded(what, row.state, data, returns)

    async def _send(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        *,
        update_id: str,
        name: str,
        data: bytes,
        what: str,
    ) -> InstanceRecord | TargetInstance:
        """Put an update into the inbox of its instance."""
        with self._session.spans.sending("update", name, instance_id) as context:
            event = UpdateAccepted(
                time_ms=self._store.now_ms(),
                id=update_id,
                name=name,
                input=Payload(msgspec.Raw(data)),
                trace=context,
            )
            watcher = EVERY_CHANGE + self._session.name
            message = Deliver(id=instance_id, number=number, event=event, message_id=update_id, watcher=watcher)
            delivered = await self._local.deliver(message)
            found = delivered.instance
            if delivered.verdict is EventVerdict.CLOSED:
                raise InstanceClosed(f"{instance_id!r} is {found.state}: {what} was not taken")
            if delivered.verdict is EventVerdict.CONFLICT:
                raise UpdateConflict(await self._conflict(found.number, update_id, name))
            if delivered.verdict is EventVerdict.MAILBOX_FULL:
                raise MailboxFull(f"too many updates of {instance_id!r} wait for their answers: {what} was not taken")
            return found

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

    async def _answered(self, number: InstanceNumber, update_id: str, what: str) -> UpdateRow:
        """The row of an update, once it has a reply."""
        async for _ in self._session.changes.rounds():
            record = await self._store.read_instance(number)  # before the row: a closed instance writes no reply
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


def _check(record: InstanceRecord | None, row: UpdateRow | None, update_id: str, what: str) -> None:
    """Raise if the instance can no longer answer, or is blocked."""
    if record is None or record.closed_at_ms is not None:
        if row is not None and row.state is UpdateState.ACCEPTED:
            raise UpdateUnfinished(f"the instance ended before {what} had finished")
        state = "gone" if record is None else record.state
        raise InstanceClosed(f"the instance is {state}, and {what} was not taken")
    if record.state is InstanceState.BLOCKED:
        raise WorkflowBlocked(
            f"{record.id} is blocked: {record.blocked}; {what} waits; "
            f"send it again with id={update_id!r} to wait for its reply"
        )
