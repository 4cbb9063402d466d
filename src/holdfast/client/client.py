"""The client: starts instances and reads them. Workers may run in this process, in others, or later."""

import warnings
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, Self, TypeVar, TypeVarTuple, overload

from holdfast import compose
from holdfast.authoring.registry import Registry
from holdfast.authoring.retention import Age
from holdfast.authoring.validation import DeadlineOption, StartTime, checked_name, start_deadline
from holdfast.authoring.workflow import AnyWorkflow, BoundWorkflow
from holdfast.client.embedded_worker import EmbeddedWorker, payload_limit_of
from holdfast.client.handle import Handle
from holdfast.client.instance_calls import InstanceCalls, NamedEvent, call_of, refuse_keywords
from holdfast.client.restoring import RestoreProgress, RestoreReport, plan_restore, restore
from holdfast.client.tracing import Tracing, trace
from holdfast.client.update_handle import UpdateHandle
from holdfast.client.updates import NamedUpdate, named_arguments, type_of
from holdfast.client.views.builds import BuildView, read_builds
from holdfast.client.views.instances import NEWEST, check_page, summary
from holdfast.client.views.overview import QueueView, WorkerView, read_queues, read_workers
from holdfast.core.admission import IdPolicy, IdPolicyOption
from holdfast.core.attributes import AttributeValue
from holdfast.core.checks import parse_enum
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import ClientClosed, InvalidOption, UsageError
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.runtime.deletion import committing
from holdfast.runtime.platform import Platform
from holdfast.runtime.session import StoreSession
from holdfast.storage.contract import SEARCH, Store
from holdfast.storage.members.messages import Deliver
from holdfast.storage.records import InstanceId

if TYPE_CHECKING:
    from holdfast.client.retention import PruneProgress, PruneReport, StateNames
    from holdfast.client.search import Count, InstancePage

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
T = TypeVar("T")
STARTS_WITH: Final = "id, policy, event, deadline, start_at, trace, attributes, update and update_id"


class Client:
    """Made by `holdfast.connect`. An `Engine` has every method of a client."""

    def __init__(self, session: StoreSession, registry: Registry) -> None:
        self._session = session
        self._registry = registry
        self._local = self._make_local(session)
        self._calls = InstanceCalls(session, registry, self._local)

    def _make_local(self, session: StoreSession) -> EmbeddedWorker:
        """The part for the worker of this process. The test environment replaces it."""
        return EmbeddedWorker(session)

    async def close(self) -> None:
        """Close the store. Instances stay for other workers and later clients. A worker of this client stops first.

        A second call does nothing. Coroutines that still wait in a call of this client raise `ClientClosed`.
        """
        session = self._session
        if session.is_open:
            session.check_usable()
        await self._local.stop()
        await self._local.committer.drain()
        await session.spans.close()
        self._calls.queries.stop()
        closed = f"{session.owner.name} was closed during this call; the instance continues without it"
        await session.close(ClientClosed(closed))

    async def __aenter__(self) -> Self:
        """``async with hf.connect("shop.db") as client:`` closes the client at the end of the block."""
        self._session.check_usable()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    if not TYPE_CHECKING:  # a type checker reports `with` by itself

        def __enter__(self) -> Never:
            owner = self._session.owner
            raise UsageError(f"{owner.name} is an asynchronous context manager; write {owner.usage}")

        def __exit__(self, *ignored: object) -> None:
            """Never reached: `__enter__` raises."""

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
        start_at: StartTime | None = None,
        trace: bool = False,
        attributes: Mapping[str, AttributeValue] | None = None,
        update: NamedUpdate | None = None,
        update_id: str | None = None,
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
        start_at: StartTime | None = None,
        trace: bool = False,
        attributes: Mapping[str, AttributeValue] | None = None,
        update: NamedUpdate | None = None,
        update_id: str | None = None,
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
        start_at: StartTime | None = None,
        trace: bool = False,
        attributes: Mapping[str, AttributeValue] | None = None,
        update: NamedUpdate | None = None,
        update_id: str | None = None,
    ) -> Handle[Any]: ...
    async def start(  # type: ignore[misc]  # mypy does not see that Any takes what Ts takes
        self,
        workflow: Any,
        *args: Any,
        id: str | None = None,  # noqa: A002
        policy: IdPolicyOption = IdPolicy.IDEMPOTENT,
        event: NamedEvent | None = None,
        deadline: DeadlineOption = ...,
        start_at: StartTime | None = None,
        trace: bool = False,
        attributes: Mapping[str, AttributeValue] | None = None,
        update: NamedUpdate | None = None,
        update_id: str | None = None,
        **arguments: object,
    ) -> Handle[Any]:
        """Start an instance. The same id with the same input is the same instance, however often it is started (G3).

        `policy="reuse"` starts a new instance once the one that has the id is closed; `policy="terminate_existing"`
        ends that one, in the same commit, if it is still open. `event=("approval", value)` is raised to the instance in
        the same commit, whether it is new or existed before. `deadline`, in seconds or as a timedelta, overrides that
        of the workflow; None means no deadline. `start_at`, a datetime with a time zone, or the seconds or a timedelta
        from now, is the time before which the first turn is not taken; the deadline counts from it. `trace=True` also
        writes a row of `requests` in the state TRACE, in the same commit, for readers of that table (C3).
        `attributes` are the first values of `hf.attributes`, by which filters find the instance; a start that finds
        its instance leaves those of that instance as they are (F2).

        `update=("add", (1, 2))`, a name and a tuple of arguments, sends an update in the same commit, whether the
        instance is new or existed before (G17); ``handle.sent_update.result()`` waits for its result. `update_id` is
        its id: with the same id it is the same update, however often this is called. Without it each call sends another
        update. A start brings an event or an update, not both.
        """
        self._session.check_usable()
        refuse_keywords(arguments, workflow, "start", STARTS_WITH)
        call = call_of(self._registry, workflow, args)
        instance_id = self._checked_id(id)
        message = self._update_of(instance_id, update, update_id, event)
        started = await self._calls.start(
            call,
            instance_id,
            policy=policy,
            event=event,
            deadline=start_deadline(call.deadline, deadline),
            is_named=id is not None,
            start_at=start_at,
            trace=trace,
            attributes=attributes,
            update=message,
        )
        number = started.instance.number
        sent = None
        if message is not None and update is not None:
            sent = UpdateHandle[Any](
                self._calls.updates, instance_id, number, message.message_id, type_of(update[0], Any)
            )
        return Handle(self._calls, instance_id, call.signature, number=number, is_new=started.created, sent_update=sent)

    def _update_of(
        self, instance_id: InstanceId, update: NamedUpdate | None, update_id: str | None, event: NamedEvent | None
    ) -> Deliver | None:
        """The message of an update that a start brings."""
        if update is None:
            if update_id is not None:
                raise InvalidOption(f'update_id={update_id!r} needs an update: update=("add", (1, 2))')
            return None
        if event is not None:
            raise InvalidOption("a start brings an event or an update, not both; send the other one with its handle")
        return self._calls.updates.message(instance_id, None, *named_arguments(update), update_id)

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
        self._session.check_usable()
        refuse_keywords(arguments, workflow, "run", "id, policy and deadline")
        call = call_of(self._registry, workflow, args)
        calls = self._calls
        results = self._session.results
        instance_id = self._checked_id(id)
        ends_by = start_deadline(call.deadline, deadline)
        waiter = results.expect(instance_id)
        try:
            started = await calls.start(
                call, instance_id, policy=policy, event=None, deadline=ends_by, is_named=id is not None
            )
            number = started.instance.number
            if started.created:
                results.assign(waiter, number)
                close = await waiter.ended()
                if waiter.ended_number == number:
                    return await calls.result_of(close, instance_id, number, call.signature)
        finally:
            results.remove(instance_id, waiter)
        return await calls.result(instance_id, number, call.signature)

    def _checked_id(self, id: str | None) -> InstanceId:  # noqa: A002
        new_id = self._session.platform.providers.unique_text
        return InstanceId(checked_name(new_id() if id is None else id, "an instance"))

    # ------------------------------------------------------------ reading

    @overload
    def get_update(self, instance_id: str, update_id: str, *, returns: type[T]) -> UpdateHandle[T]: ...
    @overload
    def get_update(self, instance_id: str, update_id: str, *, returns: Any = Any) -> UpdateHandle[Any]: ...
    def get_update(self, instance_id: str, update_id: str, *, returns: Any = Any) -> UpdateHandle[Any]:
        """A handle of an update that this or another process sent, for its result (G17). It does not read the store.

        `returns` is the type of the result, such as ``returns=Order``; without it the result is plain JSON.
        """
        found = InstanceId(checked_name(instance_id, "an instance"))
        return UpdateHandle(self._calls.updates, found, None, checked_name(update_id, "an update"), returns)

    def get(self, id: str) -> Handle[Any]:  # noqa: A002
        """A handle of the instance with this id, the newest if it had several. It does not read the store."""
        return Handle(self._calls, InstanceId(checked_name(id, "an instance")))

    async def list(
        self,
        filter: str | None = None,  # noqa: A002
        *,
        order: str = "created",
        limit: int = 100,
        cursor: str | None = None,
        state: InstanceState | str | None = None,
        workflow: str | None = None,
        before: int | None = None,
        status: InstanceState | str | None = None,
    ) -> "InstancePage":
        """Instances that match a filter, newest first, a page at a time (F4-F8).

        ``await client.list('state = FAILED and a.customer = "acme" and created > now - 1h')``. The result is a sequence
        of summaries; its `.cursor`, passed with the same filter and order, gives the next page, and is None at the
        end. `order` is ``created``, ``closed`` or ``duration``, the last two with a time range in the filter;
        ``created asc`` begins with the oldest. `state`, `workflow`, `before` and `status` are former parameters, which
        work in this release only and without a filter.
        """
        if not (state is None and workflow is None and before is None and status is None):
            warnings.warn(
                "the parameters state, status, workflow and before of list() work in this release only; pass a filter, "
                "such as list('state = FAILED and workflow = \"checkout\"'), and the cursor of the page before",
                DeprecationWarning,
                stacklevel=2,
            )
            if filter is not None or cursor is not None:
                raise UsageError("list() takes a filter and a cursor, or its former parameters, and not both")
            wanted = status if state is None else state
            return await self._list_as_before(wanted, workflow, limit, NEWEST if before is None else before)
        store = self._calls.store
        if filter is None and order == "created" and cursor is None and SEARCH not in compose.capabilities_of(store):
            return await self._list_as_before(None, None, limit, NEWEST)
        from holdfast.client.search import list_summaries  # noqa: PLC0415 - few processes search

        return await list_summaries(store, filter, order=order, limit=limit, cursor=cursor)

    async def _list_as_before(
        self, state: InstanceState | str | None, workflow: str | None, limit: int, before: int
    ) -> "InstancePage":
        from holdfast.client.search import InstancePage  # noqa: PLC0415 - few processes search

        check_page(limit, before)
        if workflow is not None:
            checked_name(workflow, "a workflow")
        wanted = None if state is None else parse_enum(InstanceState, state, "state of an instance")
        records = await self._calls.store.list_instances(before=before, limit=limit, state=wanted, workflow=workflow)
        return InstancePage((summary(record) for record in records), None)

    async def count(self, filter: str | None = None, *, exact: bool = False) -> "Count":  # noqa: A002
        """How many instances match a filter (F9): up to 10,000, or with `exact` all, which may take seconds.

        ``Count(at_least=10001, exact=False)`` means more than 10,000. A count that takes longer than 5 seconds raises
        `SearchTimedOut`.
        """
        from holdfast.client.search import count_matches, parse_filter  # noqa: PLC0415 - few processes search

        return await count_matches(self._calls.store, parse_filter(filter), exact=exact)

    async def workers(self) -> Sequence[WorkerView]:
        """Every worker that the store knows, in the order of their registration; former ones are kept for a day."""
        return await read_workers(self._calls.store)

    async def queues(self) -> Sequence[QueueView]:
        """Every queue that has work or is served by a worker, by name."""
        return await read_queues(self._calls.store)

    async def builds(self) -> Sequence[BuildView]:
        """The builds of the workers that the store knows, the one that was seen last first (R9)."""
        return (await read_builds(self._calls.store)).builds

    # ------------------------------------------------------------ restoring

    async def restored(
        self, *, force: bool = False, dry_run: bool = False, progress: RestoreProgress | None = None
    ) -> RestoreReport:
        """Make the store fit for use after a backup was restored: workers, executors and clients of the lost time after
        the backup change nothing from then on (R2). Call it before workers start; a second call does no harm.

        `UsageError` while a worker is live; `force=True` ends its lease. `dry_run=True` changes nothing. The report has
        the steps that were running at the backup, which run again (R3). `progress` receives the number of open
        instances that are done, and of all.
        """
        self._session.check_usable()
        if self._local.worker is not None:
            raise UsageError("this client has a worker; call restored() of hf.connect(...), and start workers after it")
        store = compose.restorable(self._calls.store)
        if dry_run:
            return await plan_restore(store, force=force)
        return await restore(store, self._local.committer, force=force, progress=progress)

    # ------------------------------------------------------------ deleting

    async def delete(self, id: str) -> int:  # noqa: A002
        """Delete a closed instance with all its descendants, in one commit (R31). Returns the number of instances.

        The id is that of a root; a child is deleted with its root (`NotARoot`). While a member is open
        (`FamilyOpen`), or has the attribute `keep` (`FamilyKept`), nothing is deleted. `DeleteRefused` is the base of
        these errors. If several instances have had the id, the newest is deleted. The id can be used again.
        """
        store = compose.retention_store_of(self._calls.store)
        from holdfast.client.retention import delete_family  # noqa: PLC0415 - few processes delete

        return await delete_family(store, committing(self._session), InstanceId(checked_name(id, "an instance")))

    async def prune(
        self,
        filter: str | None = None,  # noqa: A002
        *,
        older_than: Age | None = None,
        state: "StateNames | None" = None,
        workflow: str | None = None,
        keep_last: int | None = None,
        archive: str | Path | None = None,
        dry_run: bool = False,
        progress: "PruneProgress | None" = None,
    ) -> "PruneReport":
        """Delete closed instances with all their descendants: ``await client.prune(older_than="30d")`` (R31-R35).

        A family is deleted when its root fits every condition, each member is closed, and the youngest end is older
        than `older_than`. `filter` is a test of the root in the language of `list`. `keep_last` keeps so many of the
        newest of each workflow and state. With `archive`, a file or a directory, every instance is written there and
        synced before it is deleted. With `older_than` alone, or with `workflow`, executions before a `continue_as_new`
        of open instances are deleted, too, unless there is an archive. `dry_run=True` deletes nothing and counts.
        A call that was interrupted is repeated. `progress` receives the number of deleted instances.
        """
        store = compose.retention_store_of(self._calls.store)
        from holdfast.client.retention import plan_prune, prune, prune_rule  # noqa: PLC0415 - few processes delete

        rule = prune_rule(
            store.now_ms(),
            filter=filter,
            older_than=older_than,
            state=state,
            workflow=workflow,
            keep_last=keep_last,
        )
        if dry_run:
            return await plan_prune(store, rule, progress=progress)
        return await prune(store, committing(self._session), rule, archive=archive, progress=progress)


class Connecting(Coroutine[Any, Any, Client]):
    """The result of `connect`: a coroutine that is also an asynchronous context manager.

    ``client = await hf.connect(...)`` and ``async with hf.connect(...) as client:`` both work, and `asyncio.run`,
    `create_task` and `wait_for` accept it.
    """

    def __init__(self, opening: Coroutine[Any, Any, Client], store: object) -> None:
        self._opening = opening
        self._store = store
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, Any, Client]:
        return self._opening.__await__()

    def send(self, value: Any) -> Any:
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        return self._opening.throw(*error)

    def close(self) -> None:
        self._opening.close()

    async def __aenter__(self) -> Client:
        self._client = await self._opening
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    def __repr__(self) -> str:
        return f"<hf.connect({str(self._store)!r}), not awaited>"


def connect(
    store: str | Path | Store,
    *,
    modules: Iterable[ModuleType] = (),
    workflows: Iterable[AnyWorkflow] = (),
    flows: Iterable[AnyWorkflow] = (),
    durability: str = "full",
    payload_limit: int = PAYLOAD_LIMIT_BYTES,
    tracing: Tracing = None,
    _platform: Platform | None = None,
) -> Connecting:
    """A client without a worker. Workers may run in other processes, now or later. `store` is as for `Engine`.

    ``async with hf.connect("shop.db") as client:`` closes the client at the end of the block.
    ``client = await hf.connect("shop.db")`` needs a later ``await client.close()``.
    With `tracing`, True or an OpenTelemetry tracer provider, starts, events and updates carry the trace of their
    sender, and a worker of this client writes spans (extra ``holdfast[otel]``).
    """

    async def opened() -> Client:
        platform = _platform or Platform()
        limit = payload_limit_of(payload_limit)
        session = StoreSession(compose.open_store(store, durability, platform), platform, limit)
        trace(session, tracing)
        client = Client(session, Registry(modules, workflows, (), flows))
        try:
            await session.open()
        except BaseException:
            await client.close()  # stops the threads of the store
            raise
        return client

    opened.__qualname__ = "holdfast.connect"  # for Python's warning about a coroutine that was never awaited
    return Connecting(opened(), store)


def calls_of(client: Client) -> InstanceCalls:
    """The calls of an open client, for parts that commit and wait like a client."""
    return client._calls  # noqa: SLF001


def store_of(client: Client) -> Store:
    """The store of an open client, for the command line, which reads more than a client offers."""
    return client._calls.store  # noqa: SLF001
