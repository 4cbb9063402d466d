"""Answers questions that clients without the code put into the store.

A worker takes questions about the instances that it owns and about instances without an owner. A question is taken
before it is answered: one worker answers it, and a handler that ends the process ends one process.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.authoring.registry import Registry
from holdfast.core.answers import Answer, encode_answer
from holdfast.core.liveness import WorkerKey
from holdfast.errors import StoreError
from holdfast.replay.answers import refused
from holdfast.runtime.committer import Committer
from holdfast.runtime.queries import Queries, Unanswered
from holdfast.storage.contract import AnswerQuestion, Forget, Outcome, Question, Store, TakenQuestions, TakeQuestions

logger = logging.getLogger("holdfast")

LOOK_SECONDS: Final = 1.0
"""The poll interval, for questions whose notification was lost."""
BATCH: Final = 100
TRY_SECONDS: Final = 0.01
MAX_TRIES: Final = 500
"""How often, and how many times, a question is tried again whose instance has to take a turn first."""


class Questions:
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
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.answer_all()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look may find them
                self._committer.trouble.tell("questions could not be answered, and are looked at again", error)

    async def answer_all(self) -> None:
        """One round: nearly always a look that finds nothing."""
        waiting = await self._store.questions_waiting()
        if waiting.has_expired:
            await self._committer.commit(Forget())
        if waiting.has_questions and self._workflows:
            take = TakeQuestions(owner=self._key(), workflows=self._workflows, limit=BATCH)
            outcome = await self._committer.commit(take)
            if isinstance(outcome, TakenQuestions):
                await asyncio.gather(*(self._answer(question, take.owner) for question in outcome.questions))

    async def _answer(self, question: Question, owner: WorkerKey) -> None:
        try:
            answer = await self._ask(question)
        except StoreError as error:
            self._committer.trouble.tell("a query could not be answered", error)
            answer = refused(error)
        except Exception as error:  # the others that were taken with it have to be answered, too
            logger.exception("the query %r of instance %d could not be answered", question.name, question.number)
            answer = refused(error)
        if answer is not None:
            member = AnswerQuestion(id=question.id, owner=owner, answer=encode_answer(answer))
            self._committer.submit(member, _ignore)

    async def _ask(self, question: Question) -> Answer | None:
        """The answer; None if there is none in time, or the instance is gone."""
        for _ in range(MAX_TRIES):
            answer = await self.queries.ask(question.number, question.name, question.input)
            if isinstance(answer, Answer):
                return answer
            if answer is Unanswered.GONE:
                return None
            await asyncio.sleep(TRY_SECONDS)
        return None


def _ignore(_: Outcome) -> None:
    """A rejected answer needs no action: the client has removed its question, or puts a new one."""
