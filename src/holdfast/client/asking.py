"""Asking an instance something from outside: who answers, how long it is waited for, and what comes back."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from holdfast.authoring.durations import Duration
from holdfast.authoring.handlers import Query
from holdfast.authoring.names import checked_name
from holdfast.authoring.registry import Registry
from holdfast.client.arguments import encoded_arguments, limited
from holdfast.client.changes import Changes
from holdfast.client.updating import Updating
from holdfast.core.answers import Answer, AnswerKind
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import InstanceNotFound, QueryFailed, UnknownQuery, WorkflowBlocked
from holdfast.payloads.encoding import decode
from holdfast.payloads.failures import Failure, to_exception
from holdfast.runtime.last_words import LastWords
from holdfast.runtime.queries import ask_history, ask_live
from holdfast.runtime.runs import RunMaker
from holdfast.runtime.surroundings import Surroundings
from holdfast.runtime.worker import Worker
from holdfast.storage.contract import Deliver, Delivered, InstanceId, InstanceNumber, InstanceRecord
from holdfast.storage.sqlite.store import SqliteStore

QUERY_SECONDS: Final = 10.0
"""How long an answer is waited for where nothing else is said."""
_failure: Final = msgspec.json.Decoder(Failure)


class Asking:
    """What a client asks instances. `worker` gives that of this process, if it has one; `deliver` commits a message."""

    def __init__(
        self,
        store: SqliteStore,
        registry: Registry,
        surroundings: Surroundings,
        worker: Callable[[], Worker | None],
        deliver: Callable[[Deliver], Awaitable[Delivered]],
    ) -> None:
        self._store = store
        self._registry = registry
        self._surroundings = surroundings
        self._worker = worker
        self._own_runs: RunMaker | None = None
        self.changes = changes = Changes()
        new_id = surroundings.providers.unique_text
        self.updating = Updating(store, changes, registry.resolve, new_id, deliver)

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
        name = query.name if isinstance(query, Query) else checked_name(query, "a query")
        data = encoded_arguments(args, f"the arguments of query {name!r}")
        async with limited(within, f"nobody answered the query {name!r} of {instance_id!r} in time"):
            record = await self._begun(instance_id, number)
            answer = await self._answer(record, name, data)
        returns = query.annotation if isinstance(query, Query) else returns
        return self._told(instance_id, name, answer, returns)

    async def _begun(self, instance_id: InstanceId, number: InstanceNumber | None) -> InstanceRecord:
        """The instance, once there is something to be seen of it: after the first turn of its execution (G11)."""
        async for _ in self.changes.looks():
            record = await (self._store.find(instance_id) if number is None else self._store.read_instance(number))
            if record is None:
                break
            if record.turn > 0:
                return record
            if record.state is InstanceState.BLOCKED:
                raise WorkflowBlocked(f"{instance_id} is blocked: {record.blocked}")
        raise InstanceNotFound(f"no instance has the id {instance_id!r}")

    async def _answer(self, record: InstanceRecord, name: str, data: bytes) -> Answer:
        worker = self._worker()
        if worker is not None:
            answer = await ask_live(worker.instances, record.number, name, data)
            if answer is not None:
                return answer
            record = await self._store.read_instance(record.number) or record
        self._registry.workflow(record.workflow)
        return await ask_history(self._store, self._runs, record, name, data)

    @property
    def _runs(self) -> RunMaker:
        worker = self._worker()
        if worker is not None:
            return worker.runs
        if self._own_runs is None:
            world = replace(self._surroundings, watch_turns=False)
            self._own_runs = RunMaker(self._registry, world, LastWords(self._store.path), lambda: None)
        return self._own_runs

    def _told(self, instance_id: InstanceId, name: str, answer: Answer, returns: Any) -> Any:
        data = bytes(answer.data)
        match answer.kind:
            case AnswerKind.DONE:
                return decode(data, returns, what=f"the answer to query {name!r}")
            case AnswerKind.FAILED:
                cause = to_exception(_failure.decode(data), self._registry.resolve)
                said = f"the query {name!r} of {instance_id!r} failed: {type(cause).__name__}: {cause}"
                raise QueryFailed(said, cause) from cause
            case AnswerKind.UNKNOWN:
                known: list[str] = msgspec.json.decode(data)
                said = f"{instance_id!r} answers no query {name!r}; it answers {', '.join(known) or 'none'}"
                raise UnknownQuery(said, tuple(known))
            case AnswerKind.REFUSED | AnswerKind.REJECTED:
                raise to_exception(_failure.decode(data), self._registry.resolve)
