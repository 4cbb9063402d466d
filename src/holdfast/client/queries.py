"""Asking an instance something from outside: who answers, how long it is waited for, and what comes back."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import msgspec

from holdfast.authoring.handlers import Query
from holdfast.authoring.registry import Registry
from holdfast.authoring.validation import Duration, checked_duration_ms, checked_name
from holdfast.client.embedded_worker import EmbeddedWorker
from holdfast.core.lifecycle import InstanceState
from holdfast.core.queries import Reply, ReplyKind, decode_answer
from holdfast.errors import InstanceNotFound, QueryFailed, UnknownQuery, WorkflowBlocked
from holdfast.payloads.encoding import decode, encode
from holdfast.payloads.failures import Failure, describe_error, to_exception
from holdfast.payloads.limits import PayloadLimit
from holdfast.runtime.crash_detection import CrashMarker
from holdfast.runtime.queries import Queries, Unanswered
from holdfast.runtime.run_factory import RunFactory
from holdfast.runtime.session import StoreSession
from holdfast.runtime.worker import WorkerRuntime
from holdfast.storage.members.messages import AskQuery, DeleteQueries, QueryRow
from holdfast.storage.members.outcomes import Failed, Outcome, Rejected
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord

LATE_MS: Final = 5_000
"""A question outlives its asker's patience by so much, and then its row is removed by others."""
LONGEST_KEPT_MS: Final = 86_400_000
QUERY_SECONDS: Final = 10.0
"""How long an answer is waited for where nothing else is said."""
ASK_AGAIN_SECONDS: Final = 2.0
"""A client that has the code itself looks after this time whether the owner of the instance is still there."""
_failure: Final = msgspec.json.Decoder(Failure)


_PLAIN: Final = frozenset({dict, list, str, int, float, bool, type(None)})
"""What JSON has by itself."""


def encoded_arguments(args: tuple[Any, ...], what: str, limit: PayloadLimit) -> bytes:
    """Arguments by position, each as the type that it has: whoever asks by name knows no other."""
    parts = [encode(value, _own_type(value), what=what) for value in args]
    return limit.checked(b"[%b]" % b",".join(parts), what)


def _own_type(value: object) -> Any:
    kind = cast("Any", type(value))
    return Any if kind in _PLAIN else kind


@asynccontextmanager
async def limited(duration: Duration | None, otherwise: str) -> AsyncGenerator[None]:
    """A time-out whose error says what did not happen in time."""
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
    """What a client asks instances. `worker` gives that of this process, if it has one; `deliver` commits a message."""

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
        """Ask a query; see `Handle.query`."""
        self._session.check_usable()
        name = query.name if isinstance(query, Query) else checked_name(query, "a query")
        data = encoded_arguments(args, f"the arguments of query {name!r}", self._session.payload_limit)
        async with limited(within, f"nobody answered the query {name!r} of {instance_id!r} in time"):
            record = await self._begun(instance_id, number)
            answer = await self._answer(record, name, data, within)
        returns = query.annotation if isinstance(query, Query) else returns
        return self._told(instance_id, name, answer, returns)

    async def _begun(self, instance_id: InstanceId, number: InstanceNumber | None) -> InstanceRecord:
        """The instance, once there is something to be seen of it: after the first turn of its execution (G11)."""
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
        raise InstanceNotFound(f"no instance has the id {instance_id!r}")

    async def _answer(self, record: InstanceRecord, name: str, data: bytes, within: Duration | None) -> Reply:
        """From the code in this process, or from a worker that finds the question in the store."""
        async for _ in self._session.changes.rounds():
            worker = self._local.running
            queries = self._queries(worker, record.workflow)
            if queries is None:
                patience = math.inf
            else:
                here = await self._answer_here(queries, worker, record, name, data)
                if isinstance(here, Reply):
                    return here
                if here is Unanswered.NEEDS_TURN and worker is not None:
                    continue  # this process takes the turn
                patience = ASK_AGAIN_SECONDS
            answer = await self._ask_others(record, name, data, within, patience)
            if answer is not None:
                return answer
        raise AssertionError

    async def _answer_here(
        self, queries: Queries, worker: WorkerRuntime | None, record: InstanceRecord, name: str, data: bytes
    ) -> Reply | Unanswered:
        answer = await queries.ask(record.number, name, data)
        is_elsewhere = record.owner is not None and (worker is None or record.owner != worker.lease.key)
        if isinstance(answer, Reply) and answer.kind is ReplyKind.REFUSED and is_elsewhere:
            # The code of the owner may fit the history where the code of this process does not.
            return Unanswered.OWNED_ELSEWHERE
        return answer

    async def _ask_others(
        self,
        record: InstanceRecord,
        name: str,
        data: bytes,
        within: Duration | None,
        seconds: float,
    ) -> Reply | None:
        """Put the question into the store. None if it is to be put again, or there is no answer after `seconds`."""
        question = QueryRow(
            id=self._session.platform.providers.unique_text(), number=record.number, name=name, input=data
        )
        kept_ms = LONGEST_KEPT_MS if within is None else checked_duration_ms(within, "timeout") + LATE_MS
        outcome = await self._local.committer.commit(
            AskQuery(query=question, expires_at_ms=self._store.now_ms() + kept_ms)
        )
        if isinstance(outcome, Rejected):
            raise QueryFailed(f"the query {name!r} was not put to anybody: {outcome.reason}")
        if isinstance(outcome, Failed):
            raise outcome.error
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + seconds
        try:
            async for _ in self._session.changes.rounds():
                stored = await self._store.read_query_reply(question.id)
                if stored is not None:
                    answer = decode_answer(stored)
                    return None if answer.kind is ReplyKind.NOT_NOW else answer
                if loop.time() >= ends_at:
                    return None
        finally:
            if not self._session.is_closed:  # the store of a client that closes takes no more; the row expires
                self._local.committer.submit(DeleteQueries(query_id=question.id), _ignore)
        raise AssertionError

    def _queries(self, worker: WorkerRuntime | None, workflow: str) -> Queries | None:
        """What runs the code of a workflow here: the worker, or this client; None if neither has it."""
        if worker is not None and workflow in worker.registry.workflows:
            return worker.query_service.queries
        if workflow not in self._registry.workflows:
            return None
        if self._own_queries is None:
            words = CrashMarker(self._store.crash_marker_folder)
            self._own_runs = RunFactory(self._registry, self._session.platform, words)
            self._own_queries = Queries(self._store, self._own_runs)
        return self._own_queries

    def stop(self) -> None:
        """Evict the code that this client ran for queries."""
        if self._own_runs is not None:
            self._own_runs.stop()

    def _told(self, instance_id: InstanceId, name: str, answer: Reply, returns: Any) -> Any:
        data = bytes(answer.data)
        match answer.kind:
            case ReplyKind.DONE:
                return decode(data, returns, what=f"the answer to query {name!r}")
            case ReplyKind.FAILED:
                cause = to_exception(_failure.decode(data), self._registry.resolve)
                said = f"the query {name!r} of {instance_id!r} failed: {describe_error(cause)}"
                raise QueryFailed(said, cause) from cause
            case ReplyKind.UNKNOWN:
                known: list[str] = msgspec.json.decode(data)
                said = f"{instance_id!r} answers no query {name!r}; it answers {', '.join(known) or 'none'}"
                raise UnknownQuery(said, tuple(known))
            case ReplyKind.REFUSED | ReplyKind.REJECTED:
                raise to_exception(_failure.decode(data), self._registry.resolve)
            case ReplyKind.NOT_NOW:
                raise AssertionError  # `_ask_others` asks again instead


def _ignore(_: Outcome) -> None:
    """A row that stays is removed when its time is over."""
