"""Deletes the instances of this worker's workflows that are kept no longer (R30-R34).

A pass walks the roots of each rule, oldest first, and deletes them in slices. After each slice the duty rests four
times as long as the slice took, so that it takes at most a fifth of the time, and longer while commits wait. Any number
of workers may do it at once: a family that another worker has deleted is unknown, and nothing is done twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Iterator
from typing import Final, TypeVar

from holdfast.authoring.registry import Registry
from holdfast.authoring.retention import Retention
from holdfast.core.retention import DeletionRules
from holdfast.errors import StoreReplaced
from holdfast.runtime.deletion import (
    Selection,
    committing,
    continued,
    delete_executions,
    delete_families,
    selected_roots,
)
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.contract import RetentionStore, deletable

logger = logging.getLogger("holdfast")
Result = TypeVar("Result")

LONGEST_PAUSE_SECONDS: Final = 60.0
SHORTEST_PAUSE_SECONDS: Final = 1.0
"""Between two passes: a tenth of the shortest age, within these bounds."""
PAUSES_PER_AGE: Final = 10
REST: Final = 4
"""The rest after a slice, as a multiple of the time that the slice took."""
LONGEST_QUEUE_MS: Final = 1_000
"""Nothing is deleted while a commit waits longer than this."""
QUEUE_PAUSE_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 5.0
GIVEN_BACK_BYTES: Final = 2**18
"""Space that one step returns to the file system."""
MANY_CLOSED: Final = 1_000_000
MANY_BYTES: Final = 10 * 2**30
"""R36: from so many closed instances, or so much data, a worker without retention warns."""


class RetentionDuty:
    """Deletes for one worker. It does nothing without a rule, or on a store that cannot delete."""

    def __init__(self, context: WorkerContext, default: Retention | None) -> None:
        self._context = context
        self._store = deletable(context.session.store)
        self._rules = rules_of(context.registry, default)
        self._commit = committing(context.session)
        self._elapsed_ms = context.session.platform.providers.elapsed_precise_ms

    async def run(self) -> None:
        """Warn, or run passes until cancelled."""
        store = self._store
        if store is None:
            if self._rules:
                logger.warning(
                    "%s cannot delete instances, so the retention of this worker has no effect",
                    type(self._context.session.store).__name__,
                )
        elif not self._rules:
            await self._warn(store)
        else:
            await self._run(store)

    async def _run(self, store: RetentionStore) -> None:
        pause = pause_seconds(self._rules.values())
        while True:
            try:
                await self.delete(store)
                await asyncio.sleep(pause)
            except StoreReplaced as error:
                self._context.session.store_replaced(error)
                return
            except Exception as error:  # noqa: BLE001 - the next pass finds what is left
                self._context.session.trouble.log("instances could not be deleted; it is tried again", error)
                await asyncio.sleep(max(pause, RETRY_SECONDS))

    async def delete(self, store: RetentionStore) -> None:
        """One pass over all rules."""
        for selection in self._selections(store.now_ms()):
            await self._delete_families(store, selection)
        await self._delete_executions(store)
        while await self._measured(store.give_back(GIVEN_BACK_BYTES)):
            pass

    def _selections(self, now_ms: int) -> Iterator[Selection]:
        for workflow, rules in self._rules.items():
            for state, rule in rules.by_state.items():
                yield Selection(
                    states=(state,),
                    ended_by_ms=now_ms - rule.age_ms,
                    workflow=workflow,
                    keep_last=rule.keep_last,
                )

    async def _delete_families(self, store: RetentionStore, selection: Selection) -> None:
        deleted = families = 0
        pages = selected_roots(store, selection)
        while page := await self._measured(anext(pages, None)):
            numbers = [each.instance.number for each in page]
            slices = delete_families(self._commit, numbers, selection.ended_by_ms)
            while decisions := await self._measured(anext(slices, None)):
                deleted += sum(each.instances for each in decisions)
                families += sum(each.instances > 0 for each in decisions)
        if deleted:
            logger.info(
                "retention deleted %d instances of %s in the state %s (families: %d)",
                deleted,
                selection.workflow,
                ", ".join(selection.states),
                families,
            )

    async def _delete_executions(self, store: RetentionStore) -> None:
        ages = {name: rules.executions_ms for name, rules in self._rules.items() if rules.executions_ms is not None}
        if not ages:
            return
        pages = continued(store)
        while page := await self._measured(anext(pages, None)):
            for workflow, age_ms in ages.items():
                numbers = [number for number, name in page if name == workflow]
                if numbers:
                    ended_by_ms = store.now_ms() - age_ms
                    await self._measured(delete_executions(self._commit, numbers, ended_by_ms))

    async def _measured(self, work: Awaitable[Result]) -> Result:
        """Do a piece of work, then rest: at most a fifth of the time is spent on it, and none while commits wait."""
        began_ms = self._elapsed_ms()
        result = await work
        await asyncio.sleep(REST * (self._elapsed_ms() - began_ms) / 1_000)
        while self._context.committer.queue_ms > LONGEST_QUEUE_MS:  # noqa: ASYNC110 - a length, not an event
            await asyncio.sleep(QUEUE_PAUSE_SECONDS)
        return result

    async def _warn(self, store: RetentionStore) -> None:
        """R36: one line at the start of a worker without retention, if the store has much that could be deleted."""
        size = await store.size_bytes()
        is_large = size >= MANY_BYTES
        if not is_large and not await store.has_closed(MANY_CLOSED):
            return
        what = f"{size / 2**30:.1f} GB" if is_large else f"{MANY_CLOSED:,} closed instances or more"
        logger.warning(
            "the store has %s, and this worker has no retention, so nothing is deleted; "
            "give it one, such as retention=hf.Retention(completed='30d'), or run holdfast prune",
            what,
        )


def rules_of(registry: Registry, default: Retention | None) -> dict[str, DeletionRules]:
    """The rules of the registered workflows that have any. The default applies to those without a retention."""
    found = {name: workflow.retention or default for name, workflow in registry.workflows.items()}
    rules = {name: retention.rules() for name, retention in found.items() if retention is not None}
    return {name: each for name, each in rules.items() if not each.keeps_all}


def pause_seconds(rules: Iterable[DeletionRules]) -> float:
    """The pause between two passes."""
    ages = [rule.age_ms for each in rules for rule in each.by_state.values()]
    seconds = min(ages, default=0) / 1_000 / PAUSES_PER_AGE
    return min(max(seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
