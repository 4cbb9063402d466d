"""Expired attempts (A5) and deadlines of instances (C1). Any worker acts on them; a conditional update decides."""

import asyncio
import logging
from typing import Final

import msgspec

from holdfast.core.activity_options import decode_options
from holdfast.core.deadlines import DeadlineVerdict
from holdfast.core.lifecycle import AttemptEvent, InstanceState
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.duties.contract_rows import ContractRows
from holdfast.runtime.signals import log_failed_attempt
from holdfast.runtime.turns.owned_instances import OwnedInstances
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.attempt_endings import end_by_failure, time_out
from holdfast.storage.members.instances import Expire, SetDeadline
from holdfast.storage.members.outcomes import Applied, Expired
from holdfast.storage.records import AttemptRecord, InstanceRecord

logger = logging.getLogger("holdfast")

INSTANCES: Final = 500
"""Instances that one poll expires. The next poll finds the rest."""
ATTEMPTS: Final = 200
"""Attempts that one round expires."""


class Expiry:
    """Acts on passed deadlines for one worker."""

    def __init__(
        self, context: WorkerContext, instances: OwnedInstances, attempts: AttemptRunner, rows: ContractRows
    ) -> None:
        self._context = context
        self._rows = rows
        self._store = context.session.store
        self._committer = context.committer
        self._instances = instances
        self._attempts = attempts
        self._left = 0
        """Attempts that the last round left to other workers. The next one looks behind them."""

    async def expire_instances(self) -> bool:
        """Act on the deadlines that have passed. Returns whether there were any."""
        numbers = await self._store.expired_instances(INSTANCES)
        if not numbers:
            return False
        outcomes = await asyncio.gather(*(self._committer.commit(Expire(number=number)) for number in numbers))
        acted = [outcome for outcome in outcomes if isinstance(outcome, Expired)]
        for outcome in acted:
            if outcome.verdict is DeadlineVerdict.END:
                self._instance_failed(outcome)
        return bool(acted)

    def _instance_failed(self, outcome: Expired) -> None:
        """The deadline closed the instance without its code."""
        instance_id, number = outcome.instance.id, outcome.instance.number
        self._instances.close(number)
        self._context.session.results.ended(instance_id, number)
        extra = {"holdfast_instance": instance_id, "holdfast_worker": self._context.lease.key}
        logger.error("instance %s failed: its deadline has passed", instance_id, extra=extra)

    def record_deadline(self, record: InstanceRecord) -> None:
        """Store the deadline that the code of a claimed instance declares, no later than its first turn."""
        if record.state is not InstanceState.REQUESTED:
            return
        deadline = self._context.registry.workflow(record.workflow, record.version).deadline
        if deadline is not None and deadline.limit_ms is not None:
            member = SetDeadline(number=record.number, owner=self._context.lease.key, deadline=deadline)
            self._committer.commit_eventually(member)

    async def expire_attempts(self) -> bool:
        """A5: end attempts whose time-out has passed. Returns whether there were any."""
        expired = await self._store.expired_attempts(ATTEMPTS + self._left)
        ended = [await self._expire(attempt) for attempt in expired]
        self._left = ended.count(False)
        return any(ended)

    async def _expire(self, attempt: AttemptRecord) -> bool:
        """Returns False if its worker or another one was faster."""
        if decode_options(attempt.options).external is not None:
            return await self._rows.expire(attempt)
        failure, error_types = time_out(attempt)
        now_ms = self._store.now_ms()
        ended = end_by_failure(
            attempt,
            failure,
            error_types,
            event=AttemptEvent.EXPIRE,
            now_ms=now_ms,
            random_number=self._context.session.platform.providers.random_number(),
        )
        outcome = await self._committer.commit(msgspec.structs.replace(ended, by_owner=False))
        if not isinstance(outcome, Applied):
            return False
        self._attempts.disown(attempt.key)
        log_failed_attempt(attempt, failure, ended, now_ms=now_ms)
        return True
