"""Expired attempts (A5) and deadlines of instances (C1). Any worker acts on them; a conditional update decides."""

import asyncio
import logging
from typing import Final

import msgspec

from holdfast.core.activity_options import decode_options
from holdfast.core.deadlines import DeadlineVerdict
from holdfast.core.lifecycle import AttemptEvent, InstanceState
from holdfast.errors import ActivityTimedOut
from holdfast.payloads.failures import Failure, qualified_name
from holdfast.runtime.attempts.runner import AttemptRunner
from holdfast.runtime.signals import log_failed_attempt
from holdfast.runtime.turns.owned_instances import OwnedInstances
from holdfast.runtime.worker_context import WorkerContext
from holdfast.storage.attempt_endings import end_by_failure
from holdfast.storage.members.instances import Expire, SetDeadline
from holdfast.storage.members.outcomes import Applied, Expired
from holdfast.storage.records import AttemptRecord, InstanceRecord

logger = logging.getLogger("holdfast")

INSTANCES: Final = 500
"""Instances that one poll expires. The next poll finds the rest."""
ATTEMPTS: Final = 200
"""Attempts that one round expires."""
TIMED_OUT_TYPES: Final = tuple(qualified_name(cls) for cls in ActivityTimedOut.__mro__)


class Expiry:
    """Acts on passed deadlines for one worker."""

    def __init__(self, context: WorkerContext, instances: OwnedInstances, attempts: AttemptRunner) -> None:
        self._context = context
        self._store = context.session.store
        self._committer = context.committer
        self._instances = instances
        self._attempts = attempts

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
        deadline = self._context.registry.workflow(record.workflow).deadline
        if deadline is not None and deadline.limit_ms is not None:
            member = SetDeadline(number=record.number, owner=self._context.lease.key, deadline=deadline)
            self._committer.commit_eventually(member)

    async def expire_attempts(self) -> bool:
        """A5: end attempts whose time-out has passed. Returns whether there were any."""
        found = False
        for attempt in await self._store.expired_attempts(ATTEMPTS):
            found |= await self._expire(attempt)
        return found

    async def _expire(self, attempt: AttemptRecord) -> bool:
        """Returns False if its worker or another one was faster."""
        failure = Failure(type=qualified_name(ActivityTimedOut), message=_message(attempt))
        now_ms = self._store.now_ms()
        ended = end_by_failure(
            attempt,
            failure,
            TIMED_OUT_TYPES,
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


def _message(attempt: AttemptRecord) -> str:
    """Which of the four time-outs has passed (A5): the one that passed first."""
    options = decode_options(attempt.options)
    close_ms = options.schedule_to_close_ms
    limits = [(attempt.scheduled_at_ms, close_ms, "was not done within its schedule_to_close of")]
    if attempt.started_at_ms is None:
        limits.append(
            (attempt.available_at_ms, options.schedule_to_start_ms, "did not begin within its schedule_to_start of")
        )
    else:
        heard_at_ms = attempt.heartbeat_at_ms or attempt.started_at_ms
        limits.append((attempt.started_at_ms, options.start_to_close_ms, "did not answer within its start_to_close of"))
        limits.append((heard_at_ms, options.heartbeat_ms, "was silent for longer than its heartbeat of"))
    passed = [(since + limit, limit, what) for since, limit, what in limits if limit is not None]
    if not passed:
        return f"{attempt.name} was {attempt.state} beyond its deadline"
    _, limit_ms, what = min(passed)
    return f"{attempt.name} {what} {limit_ms / 1000:g} s"
