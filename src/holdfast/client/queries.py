"""Queries of a client: answered by the code in this process, or by a worker that finds the query in the store.

Also the parts that queries share with updates: arguments by position, and a time limit.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from holdfast.authoring.events import encode_by_class
from holdfast.authoring.handlers import Query
from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import Duration, checked_duration_ms, checked_name
from holdfast.client.embedded_worker import EmbeddedWorker
from holdfast.client.views.instances import require_there
from holdfast.core.lifecycle import InstanceState
from holdfast.core.queries import Reply, ReplyKind, decode_answer
from holdfast.errors import InstanceNotFound, QueryFailed, UnknownQuery, WorkflowBlocked
from holdfast.payloads.encoding import decode
from holdfast.payloads.failures import RecordedFailure, describe_error, to_exception
from holdfast.payloads.limits import PayloadLimit
from holdfast.runtime.committer import ignore_outcome
from holdfast.runtime.crash_detection import CrashMarker
from holdfast.runtime.queries import Queries, Unanswered
from holdfast.runtime.run_factory import RunFactory
from holdfast.runtime.session import StoreSession
from holdfast.runtime.worker import WorkerRuntime
from holdfast.storage.members.messages import AskQuery, DeleteQueries, QueryRow
from holdfast.storage.members.outcomes import Failed, Rejected
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord

LATE_MS: Final = 5_000
"""How long the row of a query is kept after its time limit, until a worker removes it."""
LONGEST_KEPT_MS: Final = 86_400_000
"""How long the row of a query without a time limit is kept."""
QUERY_SECONDS: Final = 10.0
"""The default time limit of a query."""
ASK_AGAIN_SECONDS: Final = 2.0
"""How long a client that has the code waits for the owner of the instance before it tries to answer again."""
LOOK_SECONDS: Final = 1.0
"""How often a client that waits for a reply looks whether the instance still exists (R38)."""
_failure: Final = msgspec.json.Decoder(RecordedFailure)


def encoded_arguments(args: tuple[Any, ...], what: str, limit: PayloadLimit) -> bytes:
    """Arguments by position. The client does not know their annotations."""
    parts = [encode_by_class(value, what) for value in args]
    return limit.checked(b"[%b]" % b",".join(parts), what)


@asynccontextmanager
async def limited(duration: Duration | None, otherwise: str) -> AsyncGenerator[None]:
    """A time limit whose `TimeoutError` has the message `otherwise`."""
    seconds = None if duration is None else checked_duration_ms(duration, "timeout") / 1000
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(otherwise) from error
        raise


class QueryClient:
    """Sends queries and waits for their replies."""

    def __init__(
        self,
        session: StoreSession,
        registry: Registry,
        local: EmbeddedWorker,
    ) -> None:
        self._session = session
        self._store = session.store
        self._registry = registry
        self._local = local
        self._own_runs: RunFactory | None = None
        self._own_queries: Queries | None = None

    async def query(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        query: str | Query[Any],
        args: tuple[Any, ...],
        *,
        returns: Any,
        within: Duration | None,
    ) -> Any:
        """See `Handle.query`."""
        self._session.check_usable()
        name = query.name if isinstance(query, Query) else checked_name(query, "a query")
        data = encoded_arguments(args, f"the arguments of query {name!r}", self._session.payload_limit)
        async with limited(within, f"the query {name!r} of {instance_id!r} was not answered in time"):
            record = await self._begun(instance_id, number)
            reply = await self._reply(record, name, data, within)
        returns = query.annotation if isinstance(query, Query) else returns
        return self._decoded(instance_id, name, reply, returns)

    async def _begun(self, instance_id: InstanceId, number: InstanceNumber | None) -> InstanceRecord:
        """The instance, after the first turn of its execution is committed (G11)."""
        is_watched = False
        async for _ in self._session.changes.rounds():
            record = await (
                self._store.find_instance(instance_id) if number is None else self._store.read_instance(number)
            )
            if record is None:
                break
            if record.turn > 0:
                return record
            if record.state is InstanceState.BLOCKED:
                raise WorkflowBlocked(f"{instance_id} is blocked: {record.blocked}")
            if not is_watched:
                is_watched = await self._local.watch(record.number, every_change=True)
        raise InstanceNotFound(f"no instance has the id {instance_id!r}")

    async def _reply(self, record: InstanceRecord, name: str, data: bytes, within: Duration | None) -> Reply:
        """The reply of the code in this process, or of a worker that finds the query in the store."""
        async for _ in self._session.changes.rounds():
            worker = self._local.running
            queries = self._queries(worker, record)
            if queries is None:
                patience = math.inf
            else:
                here = await self._answer_here(queries, worker, record, name, data)
                if isinstance(here, Reply):
                    return here
                if here is Unanswered.GONE:
                    await require_there(self._store, record)
                if here is Unanswered.NEEDS_TURN and worker is not None:
                    continue  # the worker of this process takes the turn
                patience = ASK_AGAIN_SECONDS
            reply = await self._ask_workers(record, name, data, within, patience)
            if reply is not None:
                return reply
        raise AssertionError

    async def _answer_here(
        self, queries: Queries, worker: WorkerRuntime | None, record: InstanceRecord, name: str, data: bytes
    ) -> Reply | Unanswered:
        reply = await queries.ask(record.number, name, data, record)
        is_elsewhere = record.owner is not None and (worker is None or record.owner != worker.lease.key)
        if isinstance(reply, Reply) and reply.kind is ReplyKind.REFUSED and is_elsewhere:
            # The owner may have code that fits the history, unlike this process.
            return Unanswered.OWNED_ELSEWHERE
        return reply

    async def _ask_workers(
        self,
        record: InstanceRecord,
        name: str,
        data: bytes,
        within: Duration | None,
        seconds: float,
    ) -> Reply | None:
        """Store the query for a worker. None if it is to be stored again, or is not answered within `seconds`."""
        query_id = f"{self._session.name}:{self._session.platform.providers.unique_text()}"
        query_row = QueryRow(id=query_id, number=record.number, name=name, input=data)
        kept_ms = LONGEST_KEPT_MS if within is None else checked_duration_ms(within, "timeout") + LATE_MS
        outcome = await self._local.committer.commit(
            AskQuery(query=query_row, expires_at_ms=self._store.now_ms() + kept_ms)
        )
        if isinstance(outcome, Rejected):
            raise QueryFailed(f"the query {name!r} was not sent: {outcome.reason}")
        if isinstance(outcome, Failed):
            raise outcome.error
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        look_at = loop.time() + LOOK_SECONDS
        try:
            async for _ in self._session.changes.rounds():
                stored = await self._store.read_query_reply(query_row.id)
                if stored is not None:
                    reply = decode_answer(stored)
                    return None if reply.kind is ReplyKind.NOT_NOW else reply
                if loop.time() >= ends_at:
                    return None
                if loop.time() >= look_at:
                    await require_there(self._store, record)
                    look_at = loop.time() + LOOK_SECONDS
        finally:
            if not self._session.is_closed:  # else the row expires
                self._local.committer.submit(DeleteQueries(query_id=query_row.id), ignore_outcome)
        raise AssertionError

    def _queries(self, worker: WorkerRuntime | None, record: InstanceRecord) -> Queries | None:
        """The part that runs the code of an instance, of the worker or of this client; None if neither has it."""
        asked = (record.workflow, record.version)
        if worker is not None and worker.registry.find(*asked) is not None:
            return worker.query_service.queries
        if self._registry.find(*asked) is None:
            return None
        if self._own_queries is None:
            marker = CrashMarker(self._store.crash_marker_folder)
            self._own_runs = RunFactory(self._registry, self._session.platform, marker)
            self._own_queries = Queries(self._store, self._own_runs)
        return self._own_queries

    def stop(self) -> None:
        """Stop the watchdog of the runs that this client made for queries."""
        if self._own_runs is not None:
            self._own_runs.stop()

    def _decoded(self, instance_id: InstanceId, name: str, reply: Reply, returns: Any) -> Any:
        """The value of a reply, or its error."""
        data = bytes(reply.data)
        match reply.kind:
            case ReplyKind.DONE:
                return decode(data, returns, what=f"the answer to query {name!r}")
            case ReplyKind.FAILED:
                cause = to_exception(_failure.decode(data), self._registry.resolve)
                message = f"the query {name!r} of {instance_id!r} failed: {describe_error(cause)}"
                raise QueryFailed(message, cause) from cause
            case ReplyKind.UNKNOWN:
                known: list[str] = msgspec.json.decode(data)
                message = f"{instance_id!r} has no query {name!r}; it has {', '.join(known) or 'none'}"
                raise UnknownQuery(message, tuple(known))
            case ReplyKind.REFUSED | ReplyKind.REJECTED:
                raise to_exception(_failure.decode(data), self._registry.resolve)
            case ReplyKind.NOT_NOW:
                raise AssertionError  # `_ask_workers` sends the query again instead
