"""Deadlines of instances (C1): any worker acts upon those that have passed, and says those that only the code knows."""

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.authoring.registry import Registry
from holdfast.core.deadlines import DeadlineVerdict
from holdfast.core.leases import WorkerKey
from holdfast.core.lifecycle import InstanceState
from holdfast.runtime.committer import Committer
from holdfast.storage.contract import Store
from holdfast.storage.members.instances import Expire, SetDeadline
from holdfast.storage.members.outcomes import Expired
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord

BATCH: Final = 500
"""What is acted upon at once. The next look finds the rest."""


class Deadlines:
    """One for each worker. `ended` is told of instances that were ended without their code."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        committer: Committer,
        ended: Callable[[InstanceId, InstanceNumber], None],
    ) -> None:
        self._store = store
        self._registry = registry
        self._committer = committer
        self._ended = ended

    async def expire_instances(self) -> bool:
        """Act upon what has passed. Whether that was anything: then there may be something to do."""
        numbers = await self._store.expired_instances(BATCH)
        if not numbers:
            return False
        outcomes = await asyncio.gather(*(self._committer.commit(Expire(number=number)) for number in numbers))
        acted = [outcome for outcome in outcomes if isinstance(outcome, Expired)]
        for outcome in acted:
            if outcome.verdict is DeadlineVerdict.END:
                self._ended(outcome.instance.id, outcome.instance.number)
        return bool(acted)

    def record_deadline(self, record: InstanceRecord, owner: WorkerKey) -> None:
        """Before the first turn of a claimed instance: it goes to disk no later than that turn does."""
        if record.state is not InstanceState.REQUESTED:
            return
        deadline = self._registry.workflow(record.workflow).deadline
        if deadline is not None and deadline.limit_ms is not None:
            member = SetDeadline(number=record.number, owner=owner, deadline=deadline)
            self._committer.commit_eventually(member, lambda _: None)
