"""The client: starts instances and looks at them. Workers may be in this process, in others, or come later."""

import asyncio
import warnings
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Never, Self, TypeVar, TypeVarTuple, overload

import msgspec

from holdfast.authoring.events import Event, encoded_event, named_value
from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import DeadlineOption, checked_name, checked_reason, start_deadline
from holdfast.authoring.workflow import BoundWorkflow
from holdfast.client.embedded_worker import EmbeddedWorker
from holdfast.client.handle import Handle
from holdfast.client.instance_calls import WorkflowCall, call_of, refuse_keywords, was_delivered
from holdfast.client.queries import QueryClient
from holdfast.client.views.instances import NEWEST, Summary, check_page, summary
from holdfast.client.views.overview import Overview
from holdfast.core.admission import EventVerdict, IdPolicy, IdPolicyOption
from holdfast.core.checks import parse_enum
from holdfast.core.deadlines import Deadline
from holdfast.core.history import CancelRequested, EventReceived, Payload, Started
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import (
    ClientClosed,
    HoldfastError,
    InstanceClosed,
    InstanceConflict,
    InstanceNotFound,
    NotInWorkflow,
    StoreError,
    StoreReplaced,
    UsageError,
    WrongEventLoop,
)
from holdfast.fork import generation
from holdfast.payloads.failures import Resolver
from holdfast.payloads.limits import PayloadLimit
from holdfast.payloads.signature import Signature, input_hash
from holdfast.replay.run import current_run
from holdfast.runtime.committer import Committer, ended_with
from holdfast.runtime.importing import refuse_while_importing
from holdfast.runtime.platform import Platform
from holdfast.runtime.signals import ResultWaiters, trouble_of
from holdfast.storage.contract import Notifier, OpenableStore, Store
from holdfast.storage.members.instances import Start, Terminate
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import (
    Applied,
    Delivered,
    Failed,
    Outcome,
    Rejected,
    StartedInstance,
    TerminatedInstance,
)
from holdfast.storage.members.turns import InstanceEnd
from holdfast.storage.records import InstanceId, InstanceNumber

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

NamedEvent = tuple[str | Event[Any], Any]
"""An event with its value."""


class Client(EmbeddedWorker, Overview):
    """Made by `holdfast.connect`. An `Engine` has everything that a client has."""

    _usage: ClassVar[str] = "`async with hf.connect(...) as client:`"
    """How such an object is made and opened, for messages."""

    def __init__(
        self,
        store: OpenableStore,
        registry: Registry,
        platform: Platform,
        limit: PayloadLimit | None = None,
    ) -> None:
        self._store = store
        self._limit = limit = limit or PayloadLimit()
        self._registry = registry
        self._platform = platform
        self._providers = providers = platform.providers
        self._trouble = trouble = trouble_of(store.companion_path, providers.elapsed_ms)
        self._committer = Committer(
            store,
            providers.commit_id,
            trouble,
            after_group=self._committed,
            unusable=self._store_was_replaced,
        )
        self._waiters = ResultWaiters(store.read_instance, store.check_files, trouble)
        self.asking = QueryClient(
            store,
            registry,
            platform,
            worker=lambda: self.worker,
            deliver=self._deliver,
            committer=lambda: self._committer,
            limit=limit,
        )
        self._starting = {}
        self._bell: Notifier | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._generation = generation()
        self._is_closed = False

    async def open(self) -> None:
        """Open the store and listen for notifications of other processes."""
        refuse_while_importing()
        self._check_not_opened()
        await self._store.open()
        self._loop = asyncio.get_running_loop()
        self._bell = self._platform.notifier(self._store, self._providers.unique_text(), self._rung)
        self._bell.open()

    def _check_not_opened(self) -> None:
        """Refuse to open a client twice: its committer and its store belong to one loop and end with its close."""
        if self._is_closed:
            raise ClientClosed(f"{self._name} was closed and cannot be opened again; make another one: {self._usage}")
        if self._loop is not None:
            raise UsageError(f"{self._name} is open already; use it as it is, or make another one: {self._usage}")

    def use_open_store(self) -> None:
        """Work on a store that was opened for reading. The caller closes the store."""
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Close the store. Instances stay for other workers and later clients. A worker of this client stops first.

        Closing twice is closing once. Coroutines that still wait here raise `ClientClosed`.
        """
        if self._loop is not None:
            self.check_usable()
        await self.stop_worker()
        await self._committer.drain()
        self._detach(ClientClosed(f"{self._name} was closed during this call; the instance goes on without it"))
        await self._store.close()

    def _detach(self, closed: ClientClosed | None) -> None:
        """Refuse further calls. Coroutines that still wait here raise `closed`, or are cancelled if it is None."""
        self._loop = None
        self._is_closed = True
        self._waiters.stop(closed)
        self.asking.stop(closed)
        if self._bell is not None:
            self._bell.close()
            self._bell = None

    async def __aenter__(self) -> Self:
        """``async with hf.connect("shop.db") as client:`` closes the client at the end of the block."""
        self.check_usable()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    if not TYPE_CHECKING:  # a type checker reports `with` by itself

        def __enter__(self) -> Never:
            raise UsageError(f"{self._name} is an asynchronous context manager; write {self._usage}")

        def __exit__(self, *ignored: object) -> None:
            """Never reached: `__enter__` raises."""

    # ------------------------------------------------------------ event loop

    @property
    def _name(self) -> str:
        """How messages call this object."""
        return f"this {type(self).__name__.lower()}"

    def check_usable(self) -> None:
        """Refuse a call before `open`, after `close`, and from any event loop but the one that opened this client.

        The committer, the waiters and the worker are tasks and futures of that loop. Another loop would wait for them
        without ever being woken, and would corrupt their state from its own thread.
        """
        loop = self._loop
        if loop is None or _get_running_loop() is not loop:
            raise self._refusal()

    def call_on_loop(self, call: Callable[[], None]) -> None:
        """Call a function on the loop of this client: now if that runs here, else as soon as that loop comes to it."""
        loop = self._loop
        if loop is None or loop.is_closed() or _get_running_loop() is loop:
            call()
        else:
            loop.call_soon_threadsafe(call)

    def _refusal(self) -> HoldfastError:
        name, loop = self._name, self._loop
        if current_run() is not None:
            return NotInWorkflow(
                f"workflow code called {name}, which replay cannot repeat; call it in an activity, "
                "or use hf.start for a child and hf.raise_event for an event"
            )
        if self._generation != generation():
            return StoreError(f"{name} was opened before this process was forked; make another one: {self._usage}")
        if self._is_closed:
            return ClientClosed(f"{name} is closed; make another one: {self._usage}")
        if loop is None:
            return UsageError(f"{name} is not open; write {self._usage}")
        if loop.is_closed():
            return WrongEventLoop(
                f"the event loop that opened {name} is closed; open and use it within one asyncio.run(...)"
            )
        return WrongEventLoop(
            f"{name} belongs to another event loop; from other threads call it by "
            "asyncio.run_coroutine_threadsafe(engine.start(...), loop).result(), "
            "where loop is the event loop that opened it"
        )

    # ------------------------------------------------------------ starting

    @overload
    async def start(
        self,
        workflow: Callable[[*Ts], Coroutine[Any, Any, R]],
        *args: *Ts,
        id: str | None = None,
        policy: IdPolicyOption = IdPolicy.IDEMPOTENT,
        event: NamedEvent | None = None,
        deadline: DeadlineOption = ...,
    ) -> Handle[R]: ...
    @overload
    async def start(
        self,
        workflow: BoundWorkflow[R],
        *,
        id: str | None = None,
        policy: IdPolicyOption = IdPolicy.IDEMPOTENT,
        event: NamedEvent | None = None,
        deadline: DeadlineOption = ...,
    ) -> Handle[R]: ...
    @overload
    async def start(
        self,
        workflow: str,
        *args: Any,
        id: str | None = None,
        policy: IdPolicyOption = IdPolicy.IDEMPOTENT,
        event: NamedEvent | None = None,
        deadline: DeadlineOption = ...,
    ) -> Handle[Any]: ...
    async def start(  # type: ignore[misc]  # mypy does not see that Any takes what Ts takes
        self,
        workflow: Any,
        *args: Any,
        id: str | None = None,  # noqa: A002
        policy: IdPolicyOption = IdPolicy.IDEMPOTENT,
        event: NamedEvent | None = None,
        deadline: DeadlineOption = ...,
        **arguments: object,
    ) -> Handle[Any]:
        """Start an instance. The same id with the same input is the same instance, however often it is started (G3).

        `policy="reuse"` starts a new one once the one that has the id is closed; `policy="terminate_existing"` ends
        that one, in the same commit, if it is still open. `event=("approval", value)` is raised to the instance in the
        same commit, whether it is new or was there before. `deadline`, in seconds or as a timedelta, goes before that
        of the workflow; None says that there is none.
        """
        self.check_usable()
        refuse_keywords(arguments, workflow, "start", "id, policy, event and deadline")
        call = call_of(self._registry, workflow, args)
        ends_by = start_deadline(call.deadline, deadline)
        return await self._start(call, self._checked_id(id), policy, event, ends_by, is_named=id is not None)

    async def _start(
        self,
        call: WorkflowCall,
        instance_id: InstanceId,
        policy: IdPolicyOption,
        event: NamedEvent | None,
        deadline: Deadline | None,
        *,
        is_named: bool,
    ) -> Handle[Any]:
        self._limit.checked(call.encoded, f"{call.name}(): the payload of the arguments")
        started = Started(
            time_ms=self._store.now_ms(),
            workflow=call.name,
            version=call.version,
            seed=self._providers.seed(),
            input=Payload(msgspec.Raw(call.encoded)),
            flow="" if call.flow is None else await self._keep_flow(call.flow),
        )
        start = Start(
            id=instance_id,
            workflow=call.name,
            version=call.version,
            input=call.encoded,
            input_hash=input_hash(call.encoded),
            policy=parse_enum(IdPolicy, policy, "policy for ids"),
            mail=None if event is None else self._event(instance_id, None, *named_value(event), None),
            deadline=deadline,
            key=None if call.flow is None else call.flow.first_key,
        )
        outcome = await self._commit_start(start, started, is_named=is_named)
        match outcome:
            case StartedInstance():
                number = outcome.instance.number
                if outcome.mail is not None:
                    self._told(instance_id, outcome.mail, start.mail)
                if outcome.replaced is not None:
                    self._ended_from_outside(instance_id, outcome.replaced)
                    self._woken()  # its parent may be here, and is told
                return Handle(self, instance_id, call.signature, is_new=outcome.created, number=number)
            case Rejected():
                raise InstanceConflict(outcome.reason)
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"the start of {instance_id!r} had the outcome {outcome!r}")

    @overload
    async def run(
        self,
        workflow: Callable[[*Ts], Coroutine[Any, Any, R]],
        *args: *Ts,
        id: str | None = None,
        policy: IdPolicyOption = IdPolicy.IDEMPOTENT,
        deadline: DeadlineOption = ...,
    ) -> R: ...
    @overload
    async def run(
        self,
        workflow: BoundWorkflow[R],
        *,
        id: str | None = None,
        policy: IdPolicyOption = IdPolicy.IDEMPOTENT,
        deadline: DeadlineOption = ...,
    ) -> R: ...
    @overload
    async def run(
        self,
        workflow: str,
        *args: Any,
        id: str | None = None,
        policy: IdPolicyOption = IdPolicy.IDEMPOTENT,
        deadline: DeadlineOption = ...,
    ) -> Any: ...
    async def run(  # type: ignore[misc]  # mypy does not see that Any takes what Ts takes
        self,
        workflow: Any,
        *args: Any,
        id: str | None = None,  # noqa: A002
        policy: IdPolicyOption = IdPolicy.IDEMPOTENT,
        deadline: DeadlineOption = ...,
        **arguments: object,
    ) -> Any:
        """Start an instance, or find it, and wait for its result."""
        self.check_usable()
        refuse_keywords(arguments, workflow, "run", "id, policy and deadline")
        call = call_of(self._registry, workflow, args)
        instance_id = self._checked_id(id)
        waiting = self._waiters.expect(instance_id)
        try:
            ends_by = start_deadline(call.deadline, deadline)
            handle = await self._start(call, instance_id, policy, None, ends_by, is_named=id is not None)
            if handle.is_new:
                waiting.number = handle.number
                close = await waiting.ended()
                if waiting.ended_number == handle.number:
                    return await handle.result_of(close)
        finally:
            self._waiters.remove(instance_id, waiting)
        return await handle.result()

    def _checked_id(self, id: str | None) -> InstanceId:  # noqa: A002
        return InstanceId(checked_name(self._providers.unique_text() if id is None else id, "an instance"))

    def get(self, id: str) -> Handle[Any]:  # noqa: A002
        """A handle of the instance with this id, the newest if it had several. Nothing is asked of the store yet."""
        return Handle(self, InstanceId(checked_name(id, "an instance")))

    async def list(
        self,
        *,
        state: InstanceState | str | None = None,
        workflow: str | None = None,
        limit: int = 100,
        before: int = NEWEST,
        status: InstanceState | str | None = None,
    ) -> Sequence[Summary]:
        """Instances, newest first, a page at a time: the next page is `before` the last one's number.

        `status` is the former name of `state` and works in this release only.
        """
        if status is not None:
            warnings.warn("list(status=...) is called list(state=...)", DeprecationWarning, stacklevel=2)
            state = status if state is None else state
        check_page(limit, before)
        if workflow is not None:
            checked_name(workflow, "a workflow")
        wanted = None if state is None else parse_enum(InstanceState, state, "state of an instance")
        records = await self.store.list_instances(before=before, limit=limit, state=wanted, workflow=workflow)
        return [summary(record) for record in records]

    # ------------------------------------------------------------ for handles

    @property
    def store(self) -> Store:
        """The store, for calls that come from the loop of this client."""
        self.check_usable()
        return self._store

    @property
    def resolve(self) -> Resolver:
        return self._registry.resolve

    async def wait_for_end(self, instance_id: InstanceId, number: InstanceNumber) -> InstanceEnd | None:
        return await self._waiters.wait(instance_id, number)

    async def end_from_outside(
        self, instance_id: InstanceId, number: InstanceNumber | None, reason: str | None
    ) -> None:
        """Terminate an instance; see `Handle.terminate`."""
        self.check_usable()
        outcome = await self._committer.commit(Terminate(id=instance_id, number=number, reason=checked_reason(reason)))
        match outcome:
            case TerminatedInstance(instance=found, was_open=True):
                self._ended_from_outside(instance_id, found.number)
                self._woken()
            case TerminatedInstance(instance=found):
                raise InstanceClosed(f"{instance_id!r} is {found.state}, so it cannot be terminated any more")
            case Rejected():
                raise InstanceNotFound(outcome.reason)
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"the termination of {instance_id!r} had the outcome {outcome!r}")

    async def request_cancel(self, instance_id: InstanceId, number: InstanceNumber | None, reason: str | None) -> None:
        """Ask an instance to end; see `Handle.cancel`."""
        self.check_usable()
        event = CancelRequested(time_ms=self._store.now_ms(), reason=checked_reason(reason))
        told = await self._deliver(Deliver(id=instance_id, number=number, event=event))
        if told.verdict is EventVerdict.CLOSED:
            raise InstanceClosed(f"{instance_id!r} is {told.instance.state}, so it cannot be cancelled any more")
        if told.instance.state in (InstanceState.REQUESTED, InstanceState.BLOCKED):
            self._ended_from_outside(instance_id, told.instance.number)

    async def deliver_event(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        event: "str | Event[Any]",
        value: Any,
        message_id: str | None,
    ) -> bool:
        """Raise an event to an instance; see `Handle.raise_event`."""
        self.check_usable()
        message = self._event(instance_id, number, event, value, message_id)
        outcome = await self._commit_message(message)
        if isinstance(outcome, Applied):
            return True  # with the turn that took it
        return self._told(instance_id, self._delivered(message, outcome), message)

    def _event(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        event: "str | Event[Any]",
        value: Any,
        message_id: str | None,
    ) -> Deliver:
        name, data = encoded_event(event, value)
        self._limit.checked(data, f"the value of event {name!r}", value=value)
        unique = "" if message_id is None else checked_name(message_id, "a message")
        received = EventReceived(time_ms=self._store.now_ms(), name=name, value=Payload(msgspec.Raw(data)), id=unique)
        return Deliver(id=instance_id, number=number, event=received, message_id=unique)

    def _told(self, instance_id: InstanceId, told: Delivered, message: Deliver | None) -> bool:
        """What the sender of an event learns (G6, G7)."""
        name = message.event.name if message is not None and isinstance(message.event, EventReceived) else ""
        self._sent()
        return was_delivered(instance_id, told, name)

    async def _deliver(self, message: Deliver) -> Delivered:
        return self._delivered(message, await self._commit_message(message))

    def _delivered(self, message: Deliver, outcome: Outcome) -> Delivered:
        match outcome:
            case Delivered():
                self._sent()
                return outcome
            case Rejected():
                raise InstanceNotFound(outcome.reason)
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"a message for {message.id!r} had the outcome {outcome!r}")

    def signature_of(self, workflow: str) -> Signature | None:
        known = self._registry.workflows.get(workflow)
        return None if known is None else known.signature

    # ------------------------------------------------------------ inside

    def _ended_from_outside(self, instance_id: InstanceId, number: InstanceNumber) -> None:
        """An instance was ended by this process, and not by its own code."""
        if self._worker is not None:
            self._worker.turns.drop(number)
        self._waiters.ended(instance_id, number)

    def _committed(self, members: Sequence[Member], outcomes: Sequence[Outcome]) -> None:
        """A group is on disk: tell other processes if it has something for them."""
        for child in ended_with(outcomes):
            self._ended_from_outside(*child)
        self.asking.changes.notify()
        if self._bell is not None and any(member.notifies for member in members):
            self._bell.notify()

    def _store_was_replaced(self, error: StoreReplaced) -> None:
        """What is waited for here cannot be seen any more. Later calls get the same error from the store."""
        self._waiters.stop(error)
        self.asking.changes.stop(error)

    def _rung(self) -> None:
        """Another process has written something."""
        self._woken()
        if self._worker is not None:
            self._worker.query_service.poll()

    def _woken(self) -> None:
        self._waiters.poll()
        self.asking.changes.notify()
        self._sent()
