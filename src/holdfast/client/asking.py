"""Asking an instance something from outside: who answers, how long it is waited for, and what comes back."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from holdfast.authoring.durations import Duration, milliseconds
from holdfast.authoring.handlers import Query
from holdfast.authoring.names import checked_name
from holdfast.authoring.registry import Registry
from holdfast.client.arguments import encoded_arguments, limited
from holdfast.client.changes import Changes
from holdfast.client.updating import Updating
from holdfast.core.answers import Answer, AnswerKind, decode_answer
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import InstanceNotFound, QueryFailed, UnknownQuery, WorkflowBlocked
from holdfast.payloads.encoding import decode
from holdfast.payloads.failures import Failure, said_of, to_exception
from holdfast.runtime.committer import Committer
from holdfast.runtime.last_words import LastWords
from holdfast.runtime.queries import ask_here
from holdfast.runtime.runs import RunMaker
from holdfast.runtime.surroundings import Surroundings
from holdfast.runtime.worker import Worker
from holdfast.storage.contract import (
    Ask,
    Deliver,
    Delivered,
    Failed,
    Forget,
    InstanceId,
    InstanceNumber,
    InstanceRecord,
    Outcome,
    Question,
    Rejected,
)
from holdfast.storage.places import PlacedStore

LATE_MS: Final = 5_000
"""A question outlives its asker's patience by so much, and then its row is removed by others."""
LONGEST_KEPT_MS: Final = 86_400_000
QUERY_SECONDS: Final = 10.0
"""How long an answer is waited for where nothing else is said."""
_failure: Final = msgspec.json.Decoder(Failure)


class Asking:
    """What a client asks instances. `worker` gives that of this process, if it has one; `deliver` commits a message."""

    def __init__(
        self,
        store: PlacedStore,
        registry: Registry,
        surroundings: Surroundings,
        *,
        worker: Callable[[], Worker | None],
        deliver: Callable[[Deliver], Awaitable[Delivered]],
        committer: Callable[[], Committer],
    ) -> None:
        self._store = store
        self._registry = registry
        self._surroundings = surroundings
        self._worker = worker
        self._committer = committer
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
            answer = await self._answer(record, name, data, within)
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

    async def _answer(self, record: InstanceRecord, name: str, data: bytes, within: Duration | None) -> Answer:
        """Whoever has the code: this process, or one that finds the question in the store."""
        worker = self._worker()
        runs = self._runs(worker, record.workflow)
        if runs is not None:
            instances = None if worker is None else worker.instances
            asked = await ask_here(self._store, runs, instances, number=record.number, name=name, data=data)
            is_elsewhere = record.owner is not None and (worker is None or record.owner != worker.key)
            if asked is not None and (asked.kind is not AnswerKind.REFUSED or not is_elsewhere):
                return asked
        return await self._ask_others(record, name, data, within)

    async def _ask_others(self, record: InstanceRecord, name: str, data: bytes, within: Duration | None) -> Answer:
        question = Question(id=self._surroundings.providers.unique_text(), number=record.number, name=name, input=data)
        kept_ms = LONGEST_KEPT_MS if within is None else milliseconds(within, "timeout") + LATE_MS
        outcome = await self._committer().commit(Ask(question=question, expires_at_ms=self._store.now_ms() + kept_ms))
        if isinstance(outcome, Rejected):
            raise QueryFailed(f"the query {name!r} was not put to anybody: {outcome.reason}")
        if isinstance(outcome, Failed):
            raise outcome.error
        try:
            async for _ in self.changes.looks():
                answer = await self._store.read_answer(question.id)
                if answer is not None:
                    return decode_answer(answer)
        finally:
            self._committer().submit(Forget(question=question.id), _ignore)
        raise AssertionError

    def _runs(self, worker: Worker | None, workflow: str) -> RunMaker | None:
        """Who runs the code of a workflow here: the worker, or this client; None if neither has it."""
        if worker is not None and workflow in worker.registry.workflows:
            return worker.runs
        if workflow not in self._registry.workflows:
            return None
        if self._own_runs is None:
            world = replace(self._surroundings, watch_turns=False)
            self._own_runs = RunMaker(self._registry, world, LastWords(self._store.words), lambda: None)
        return self._own_runs

    def _told(self, instance_id: InstanceId, name: str, answer: Answer, returns: Any) -> Any:
        data = bytes(answer.data)
        match answer.kind:
            case AnswerKind.DONE:
                return decode(data, returns, what=f"the answer to query {name!r}")
            case AnswerKind.FAILED:
                cause = to_exception(_failure.decode(data), self._registry.resolve)
                said = f"the query {name!r} of {instance_id!r} failed: {said_of(cause)}"
                raise QueryFailed(said, cause) from cause
            case AnswerKind.UNKNOWN:
                known: list[str] = msgspec.json.decode(data)
                said = f"{instance_id!r} answers no query {name!r}; it answers {', '.join(known) or 'none'}"
                raise UnknownQuery(said, tuple(known))
            case AnswerKind.REFUSED | AnswerKind.REJECTED:
                raise to_exception(_failure.decode(data), self._registry.resolve)


def _ignore(_: Outcome) -> None:
    """A row that stays is removed when its time is over."""
