"""Calls about instances that a client shares with its handles: starts, messages, cancellation, termination, results.

Every call is refused outside the event loop that opened the session (`StoreSession.check_usable`).
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from holdfast.authoring.events import Event, encoded_event, named_value
from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import StartTime, checked_name, checked_reason, checked_start_ms
from holdfast.authoring.workflow import BoundWorkflow, Workflow
from holdfast.client.embedded_worker import EmbeddedWorker, brings_update
from holdfast.client.pause_calls import PauseCalls
from holdfast.client.queries import QueryClient
from holdfast.client.updates import UpdateClient, described, with_trace
from holdfast.client.views.instances import require_there
from holdfast.compose import open_contract_of, search_store_of
from holdfast.core.admission import EventVerdict, IdPolicy, IdPolicyOption
from holdfast.core.attributes import (
    MOST_ATTRIBUTES,
    AttributeChange,
    AttributeValue,
    checked_changes,
    read_value,
    store_attributes,
)
from holdfast.core.checks import parse_enum
from holdfast.core.deadlines import Deadline
from holdfast.core.history import CancelRequested, EventReceived, Payload, Started
from holdfast.core.lifecycle import AttemptState, InstanceState
from holdfast.errors import (
    ActivityClosed,
    InstanceClosed,
    InstanceConflict,
    InstanceNotBlocked,
    InstanceNotFound,
    InvalidAttribute,
    MailboxFull,
    StoreError,
    UsageError,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowTerminated,
)
from holdfast.payloads.encoding import decode, encode
from holdfast.payloads.failures import RecordedFailure, failed_message, to_exception
from holdfast.payloads.signature import Signature, input_hash
from holdfast.runtime.session import StoreSession
from holdfast.storage.contract import Store
from holdfast.storage.instance_endings import decide_cancel
from holdfast.storage.members.attempts import CancelActivity
from holdfast.storage.members.contract_rows import InsertRequest
from holdfast.storage.members.instances import RetryBlocked, SetAttributes, Start, Terminate
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import (
    Applied,
    CancelledActivity,
    ChangedAttributes,
    Delivered,
    Failed,
    Rejected,
    RetriedInstance,
    StartedInstance,
    TerminatedInstance,
)
from holdfast.storage.members.turns import InstanceEnd
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord

logger = logging.getLogger("holdfast")

NamedEvent = tuple[str | Event[Any], Any]
"""An event with its value."""


_failure: Final = msgspec.json.Decoder(RecordedFailure)
_payload: Final = msgspec.json.Decoder(Payload)


class WorkflowCall(msgspec.Struct, frozen=True):
    """A workflow with its encoded arguments. The arguments are not checked if the workflow is not registered here."""

    name: str
    version: str | None
    """None for a workflow that is called by name: its first turn chooses the version (R6)."""
    encoded: bytes
    signature: Signature | None
    deadline: Deadline | None
    flow: Workflow[..., Any] | None = None
    """The flow, if it was given and not only named: then the instance keeps this version of it."""


class InstanceCalls:
    """The calls of one session."""

    def __init__(self, session: StoreSession, registry: Registry, local: EmbeddedWorker) -> None:
        self.session = session
        self.registry = registry
        self.local = local
        self.queries = QueryClient(session, registry, local)
        self.updates = UpdateClient(session, registry.resolve, local)
        self.pauses = PauseCalls(session, local)

    @property
    def store(self) -> Store:
        """The store, for a call from the event loop of the session."""
        self.session.check_usable()
        return self.session.store

    def signature_of(self, workflow: str, version: str | None) -> Signature | None:
        """The signature of a version of a workflow, if it is registered here."""
        known = self.registry.find(workflow, version)
        return None if known is None else known.signature

    async def start(
        self,
        call: WorkflowCall,
        instance_id: InstanceId,
        *,
        policy: IdPolicyOption,
        event: NamedEvent | None,
        deadline: Deadline | None,
        is_named: bool,
        start_at: StartTime | None = None,
        trace: bool = False,
        attributes: Mapping[str, AttributeValue] | None = None,
        update: Deliver | None = None,
    ) -> StartedInstance:
        """Create an instance or find it, by the policy for ids (G3). `is_named`: the caller gave the id.

        `trace`: the same commit writes a request in the state TRACE (C3).
        """
        with self.session.spans.sending("start", call.name, instance_id) as context:
            return await self._start(
                call,
                instance_id,
                policy=policy,
                event=event,
                deadline=deadline,
                is_named=is_named,
                start_at=start_at,
                trace=trace,
                attributes=attributes,
                context=context,
                update=update,
            )

    async def _start(
        self,
        call: WorkflowCall,
        instance_id: InstanceId,
        *,
        policy: IdPolicyOption,
        event: NamedEvent | None,
        deadline: Deadline | None,
        is_named: bool,
        start_at: StartTime | None,
        trace: bool,
        attributes: Mapping[str, AttributeValue] | None,
        context: str,
        update: Deliver | None,
    ) -> StartedInstance:
        """`context` is the trace context of the start (M4)."""
        session = self.session
        start_at_ms = checked_start_ms(start_at, session.store.now_ms())
        session.payload_limit.checked(call.encoded, f"{call.name}(): the payload of the arguments")
        stored = store_attributes(attributes) if attributes else {}
        if stored:
            search_store_of(session.store)
        started = Started(
            time_ms=session.store.now_ms(),
            workflow=call.name,
            version=call.version or "",
            seed=session.platform.providers.seed(),
            input=Payload(msgspec.Raw(call.encoded)),
            flow="" if call.flow is None else await self.local.save_flow(call.flow),
            attributes=stored or None,
            trace=context,
        )
        start = Start(
            id=instance_id,
            workflow=call.name,
            version=call.version,
            input=call.encoded,
            input_hash=input_hash(call.encoded),
            policy=parse_enum(IdPolicy, policy, "policy for ids"),
            mail=with_trace(update, context)
            if event is None
            else self._event(instance_id, *named_value(event), context=context),
            deadline=deadline,
            key=None if call.flow is None else call.flow.first_key,
            start_at_ms=start_at_ms,
            attributes=tuple(AttributeChange(name, value) for name, value in stored.items()),
        )
        if trace:
            start = msgspec.structs.replace(start, trace=self._trace_of(start))
        outcome = await self.local.commit_start(start, started, is_named=is_named)
        match outcome:
            case StartedInstance():
                await self._announce(start, outcome)
                return outcome
            case Rejected():
                raise InstanceConflict(outcome.reason)
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"the start of {instance_id!r} had the outcome {outcome!r}")

    def _trace_of(self, start: Start) -> InsertRequest:
        """C3: the request that records a start of this process. No worker starts it."""
        open_contract_of(self.session.store)
        return InsertRequest(
            request_id=self.session.platform.providers.unique_text(),
            workflow=start.workflow,
            instance_id=start.id,
            input=start.input.decode(),
            policy=start.policy.value,
            start_at_ms=start.start_at_ms,
            deadline_after_ms=None if start.deadline is None else start.deadline.limit_ms,
            manual=True,
        )

    async def _announce(self, start: Start, outcome: StartedInstance) -> None:
        """Wake the waiters and the worker of this process for the message and the replaced instance of a start."""
        if outcome.replaced is not None:
            self.session.instance_closed(start.id, outcome.replaced)
            self.session.poll()  # the parent of the replaced instance may be live here
        if outcome.mail is None:
            return
        self.session.poll_work()
        if start.mail is not None and brings_update(start):
            await self.updates.check_delivered(start.mail, outcome.mail, described(start.mail))
        else:
            was_delivered(start.id, outcome.mail, start.mail)

    # ------------------------------------------------------------ results

    async def record(self, instance_id: InstanceId, number: InstanceNumber | None) -> InstanceRecord:
        """The row of an instance: by its number, or the newest that has the id."""
        store = self.store
        found = await (store.find_instance(instance_id) if number is None else store.read_instance(number))
        if found is None:
            raise InstanceNotFound(f"no instance has the id {instance_id!r}")
        return found

    async def result(self, instance_id: InstanceId, number: InstanceNumber | None, signature: Signature | None) -> Any:
        """Wait for the end of an instance; see `Handle.result`."""
        results = self.session.results
        is_known = signature is not None or not self.registry.workflows  # else its row tells which signature it has
        if is_known and number is not None and (self.local.is_live(number) or results.is_watched(number)):
            close = await results.wait(instance_id, number)
            if close is not None and (data := _inline_data(close)) is not None:
                return self._decoded(instance_id, close.state, data, signature)
        record = await self.record(instance_id, number)
        signature = signature or self.signature_of(record.workflow, record.version)
        while record.closed_at_ms is None:
            if record.state is InstanceState.BLOCKED:
                raise WorkflowBlocked(f"{instance_id} is blocked: {record.blocked}")
            close = await self._end_of(instance_id, record.number)
            if close is not None and (data := _inline_data(close)) is not None:
                return self._decoded(instance_id, close.state, data, signature)
            record = await self.record(instance_id, record.number)
        return self._decoded(instance_id, record.state, await self._outcome(record), signature)

    async def _end_of(self, instance_id: InstanceId, number: InstanceNumber) -> InstanceEnd | None:
        """Wait for the end of an instance. None if the caller has to read the instance."""
        results = self.session.results
        waiter = results.expect(instance_id, number)
        try:
            return await waiter.ended() if await self.local.watch(number) else None
        finally:
            results.remove(instance_id, waiter)

    async def result_of(
        self,
        close: InstanceEnd | None,
        instance_id: InstanceId,
        number: InstanceNumber,
        signature: Signature | None,
    ) -> Any:
        """The result of an instance that ended by `close`. It is read if the end is unknown or stored apart."""
        if close is not None and (data := _inline_data(close)) is not None:
            return self._decoded(instance_id, close.state, data, signature)
        return await self.result(instance_id, number, signature)

    async def _outcome(self, record: InstanceRecord) -> bytes:
        payload = _payload.decode(record.outcome or b"{}")
        if payload.reference:
            found = await self.store.read_payloads(record.number, [payload.reference])
            if payload.reference not in found:
                await require_there(self.store, record)
            return found[payload.reference]
        return bytes(payload.data)

    def _decoded(self, instance_id: InstanceId, state: InstanceState, data: bytes, signature: Signature | None) -> Any:
        """The result of a completed instance; the error of any other."""
        match state:
            case InstanceState.COMPLETED:
                return decode(data) if signature is None else signature.decode_result(data)
            case InstanceState.FAILED:
                cause = to_exception(_failure.decode(data), self.registry.resolve)
                raise WorkflowFailed(failed_message(instance_id, cause), cause) from cause
            case InstanceState.TERMINATED | InstanceState.CANCELLED:
                reason: str | None = decode(data)
                because = f": {reason}" if reason else ""
                if state is InstanceState.TERMINATED:
                    raise WorkflowTerminated(f"{instance_id} was terminated{because}", reason)
                raise WorkflowCancelled(f"{instance_id} was cancelled{because}")
            case _:
                raise StoreError(f"{instance_id!r} has the unknown state {state!r}; run holdfast verify")

    # ------------------------------------------------------------ messages and ends

    async def terminate(self, instance_id: InstanceId, number: InstanceNumber | None, reason: str | None) -> None:
        """See `Handle.terminate`."""
        self.session.check_usable()
        terminate = Terminate(id=instance_id, number=number, reason=checked_reason(reason))
        outcome = await self.local.committer.commit(terminate)
        match outcome:
            case TerminatedInstance(instance=found, was_open=True):
                self.session.instance_closed(instance_id, found.number)
                self.session.poll()
            case TerminatedInstance(instance=found):
                raise InstanceClosed(f"{instance_id!r} is {found.state}, so it cannot be terminated any more")
            case Rejected():
                raise InstanceNotFound(outcome.reason)
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"the termination of {instance_id!r} had the outcome {outcome!r}")

    async def retry_blocked(self, instance_id: InstanceId, number: InstanceNumber | None) -> None:
        """See `Handle.retry_blocked`."""
        self.session.check_usable()
        outcome = await self.local.committer.commit(RetryBlocked(id=instance_id, number=number))
        match outcome:
            case RetriedInstance(was_blocked=True):
                self.session.poll()
            case RetriedInstance(instance=found) if found.closed_at_ms is not None:
                raise InstanceClosed(f"{instance_id!r} is {found.state}, so it cannot be retried")
            case RetriedInstance(instance=found):
                raise InstanceNotBlocked(f"{instance_id!r} is {found.state}, not BLOCKED, so there is nothing to retry")
            case Rejected():
                raise InstanceNotFound(outcome.reason)
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"the retry of {instance_id!r} had the outcome {outcome!r}")

    async def set_attributes(
        self, instance_id: InstanceId, number: InstanceNumber | None, values: Mapping[str, AttributeValue | None]
    ) -> dict[str, AttributeValue]:
        """See `Handle.set_attributes`."""
        self.session.check_usable()
        search_store_of(self.session.store)
        member = SetAttributes(id=instance_id, number=number, changes=checked_changes(values))
        outcome = await self.local.committer.commit(member)
        match outcome:
            case ChangedAttributes(was_changed=True):
                self.session.poll()
                return {name: read_value(value) for name, value in sorted(outcome.attributes.items())}
            case ChangedAttributes():
                raise InvalidAttribute(
                    f"{instance_id!r} would have {len(outcome.attributes)} attributes, and {MOST_ATTRIBUTES} are "
                    "allowed; delete some, with None as their value"
                )
            case Rejected():
                raise InstanceNotFound(outcome.reason)
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"the change of attributes of {instance_id!r} had the outcome {outcome!r}")

    async def cancel(self, instance_id: InstanceId, number: InstanceNumber | None, reason: str | None) -> None:
        """See `Handle.cancel`."""
        self.session.check_usable()
        event = CancelRequested(time_ms=self.session.store.now_ms(), reason=checked_reason(reason))
        delivered = await self.local.deliver(Deliver(id=instance_id, number=number, event=event))
        found = delivered.instance
        if delivered.verdict is EventVerdict.CLOSED:
            raise InstanceClosed(f"{instance_id!r} is {found.state}, so it cannot be cancelled any more")
        ends_at_once = isinstance(found, InstanceRecord) and decide_cancel(found).ends_at_once
        if ends_at_once:
            self.session.instance_closed(instance_id, found.number)

    async def cancel_activity(self, instance_id: InstanceId, number: InstanceNumber | None, activity: str) -> None:
        """See `Handle.cancel_activity`."""
        from holdfast.client.activity_names import find_activity  # noqa: PLC0415 - most programs do not need it
        from holdfast.client.views.report import read_execution  # noqa: PLC0415

        self.session.check_usable()
        record = await self.record(instance_id, number)
        if record.closed_at_ms is not None:
            raise InstanceClosed(f"{instance_id!r} is {record.state}, so none of its activities can be cancelled")
        step = find_activity((await read_execution(self.store, record)).steps, activity, instance_id)
        member = CancelActivity(
            number=record.number,
            execution=record.execution,
            activity=step.recorded.number,
            dimension=step.attempts[-1].key.dimension if step.attempts else "",
        )
        outcome = await self.local.committer.commit(member)
        match outcome:
            case CancelledActivity():
                is_running = outcome.state is AttemptState.CANCELLED_RUNNING
                self.session.activity_cancelled(outcome.key, is_running=is_running)
            case Rejected():
                raise ActivityClosed(f"{activity!r} of {instance_id!r} cannot be cancelled: {outcome.reason}")
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"the cancel of {activity!r} of {instance_id!r} had the outcome {outcome!r}")

    async def raise_event(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        event: str | Event[Any],
        value: Any,
        message_id: str | None,
    ) -> bool:
        """See `Handle.raise_event`."""
        self.session.check_usable()
        name = event.name if isinstance(event, Event) else event
        with self.session.spans.sending("event", name, instance_id) as context:
            message = self._event(instance_id, event, value, number=number, message_id=message_id, context=context)
            outcome = await self.local.send(message)
            if isinstance(outcome, Applied):
                return True  # committed with the turn that took it
            return was_delivered(instance_id, self.local.delivered(message, outcome), message)

    def _event(
        self,
        instance_id: InstanceId,
        event: str | Event[Any],
        value: Any,
        *,
        number: InstanceNumber | None = None,
        message_id: str | None = None,
        context: str,
    ) -> Deliver:
        name, data = encoded_event(event, value)
        self.session.payload_limit.checked(data, f"the value of event {name!r}", value=value)
        unique = "" if message_id is None else checked_name(message_id, "a message")
        time_ms = self.session.store.now_ms()
        value_stored = Payload(msgspec.Raw(data))
        received = EventReceived(time_ms=time_ms, name=name, value=value_stored, id=unique, trace=context)
        return Deliver(id=instance_id, number=number, event=received, message_id=unique)


def _inline_data(close: InstanceEnd) -> bytes | None:
    """The data that an instance ended with; None if it is stored apart, because it is large."""
    payload = _payload.decode(close.outcome)
    return None if payload.reference else bytes(payload.data)


def call_of(registry: Registry, workflow: Any, args: tuple[Any, ...]) -> WorkflowCall:
    """The call of a workflow that is given by reference, bound to its arguments, or by name."""
    match workflow:
        case Workflow():
            known: Workflow[..., Any] = cast("Any", workflow)
            return _of(known, known.signature.encode_arguments(args))
        case BoundWorkflow():
            if args:
                raise UsageError("the arguments are bound already; give none besides")
            bound: Workflow[..., Any] = workflow.workflow
            return _of(bound, workflow.encoded)
        case str():
            if workflow in registry.workflows:
                return msgspec.structs.replace(
                    call_of(registry, registry.workflows[workflow], args), version=None, flow=None
                )
            return WorkflowCall(
                checked_name(workflow, "a workflow"), None, encode(list(args), what="the arguments"), None, None
            )
        case _:
            raise UsageError(f"{workflow!r} is not a workflow: mark the function with @hf.workflow, or give its name")


def _of(workflow: Workflow[..., Any], encoded: bytes) -> WorkflowCall:
    flow = workflow if workflow.is_flow else None
    return WorkflowCall(workflow.name, workflow.version, encoded, workflow.signature, workflow.deadline, flow)


def refuse_keywords(given: Mapping[str, object], workflow: Any, method: str, options: str) -> None:
    """Raise `UsageError` for arguments by keyword: TypeVarTuple, which types a start, has positions only."""
    if given:
        name = getattr(workflow, "__name__", "workflow")
        shown = ", ".join(f"{key}=..." for key in given)
        raise UsageError(
            f"{method} takes {options} by keyword, not {', '.join(given)}; for arguments of the workflow write "
            f"{method}({name}.bind({shown}), ...)"
        )


def was_delivered(instance_id: InstanceId, delivered: Delivered, message: Deliver | None) -> bool:
    """Whether the instance takes the event; False if it dropped it, an error if it never can take it (G6, G7)."""
    name = message.event.name if message is not None and isinstance(message.event, EventReceived) else ""
    match delivered.verdict:
        case EventVerdict.CLOSED:
            raise InstanceClosed(f"{instance_id!r} is {delivered.instance.state}: the event {name!r} was not delivered")
        case EventVerdict.MAILBOX_FULL:
            raise MailboxFull(f"the mailbox of {instance_id!r} is full: the event {name!r} was not delivered")
        case EventVerdict.DROP_UNSUBSCRIBED:
            logger.warning("the event %r for %r was dropped: the workflow does not wait for it", name, instance_id)
            return False
        case _:
            return True
