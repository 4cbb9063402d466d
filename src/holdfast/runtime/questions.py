"""Answers questions that clients without the code put into the store.

A worker takes questions about the instances that it owns and about instances without an owner. A question is taken
before it is answered: one worker answers it, and a handler that ends the process ends one process.

Each question is answered in a task of its own, so that one which has to wait for a turn does not delay the others. If
the turn does not come in time, if another worker has claimed the instance, or if this worker stops, the answer is that
the client should ask again.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.authoring.registry import Registry
from holdfast.core.answers import Reply, ReplyKind, encode_answer
from holdfast.core.liveness import WorkerKey
from holdfast.errors import InstanceNotFound, StoreError
from holdfast.replay.answers import refused
from holdfast.runtime.committer import Committer
from holdfast.runtime.queries import Queries, Unanswered
from holdfast.storage.contract import AnswerQuery, ClaimedQueries, ClaimQueries, DeleteQueries, Outcome, QueryRow, Store

logger = logging.getLogger("holdfast")

QUERY_POLL_SECONDS: Final = 1.0
"""The poll interval, for questions whose notification was lost."""
BATCH: Final = 100
TRY_SECONDS: Final = 0.01
"""How often a question is tried again whose instance has to take a turn first."""
LONGEST_SECONDS: Final = 5.0
"""How long a question is tried. Its client may be gone by then; one that still waits asks again."""
NOT_NOW: Final = Reply(ReplyKind.NOT_NOW)


class QueryService:
    """The share of one worker in answering."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        committer: Committer,
        queries: Queries,
        key: Callable[[], WorkerKey],
    ) -> None:
        self._store, self._workflows = store, tuple(registry.workflows)
        self._committer, self.queries, self._key = committer, queries, key
        self._wake = asyncio.Event()
        self._wake.set()  # questions may have waited for this worker

    def look(self) -> None:
        """Another process has written something."""
        self._wake.set()

    async def run(self) -> None:
        """Answer and wait, for ever."""
        async with asyncio.TaskGroup() as answering:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(QUERY_POLL_SECONDS):
                        await self._wake.wait()
                self._wake.clear()
                try:
                    await self._look(answering)
                except Exception as error:  # noqa: BLE001 - whatever it is, the next look may find them
                    self._committer.trouble.tell("questions could not be answered, and are looked at again", error)

    async def _look(self, answering: asyncio.TaskGroup) -> None:
        """One look, which nearly always finds nothing."""
        waiting = await self._store.questions_waiting()
        if waiting.has_expired:
            await self._committer.commit(DeleteQueries())
        if waiting.has_questions and self._workflows:
            take = ClaimQueries(owner=self._key(), workflows=self._workflows, limit=BATCH)
            outcome = await self._committer.commit(take)
            if isinstance(outcome, ClaimedQueries):
                for question in outcome.questions:
                    answering.create_task(self._answer(question, take.owner))

    async def _answer(self, question: QueryRow, owner: WorkerKey) -> None:
        answer, limit = NOT_NOW, asyncio.timeout(LONGEST_SECONDS)
        try:
            async with limit:
                answer = await self._ask(question)
        except StoreError as error:
            self._committer.trouble.tell("a query could not be answered", error)
            answer = refused(error)
        except Exception as error:
            if not limit.expired():
                logger.exception("the query %r of instance %d could not be answered", question.name, question.number)
                answer = refused(error)
        finally:  # also when this worker stops
            member = AnswerQuery(id=question.id, owner=owner, answer=encode_answer(answer))
            self._committer.submit(member, _ignore)

    async def _ask(self, question: QueryRow) -> Reply:
        while True:
            answer = await self.queries.ask(question.number, question.name, question.input)
            match answer:
                case Reply():
                    return answer
                case Unanswered.GONE:
                    return refused(InstanceNotFound(f"the instance of query {question.name!r} is not in the store"))
                case Unanswered.OWNED_ELSEWHERE:
                    return NOT_NOW
                case Unanswered.NEEDS_TURN:
                    await asyncio.sleep(TRY_SECONDS)


def _ignore(_: Outcome) -> None:
    """A rejected answer needs no action: the client has removed its question, or puts a new one."""
