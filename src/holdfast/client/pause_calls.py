"""Pauses of instances: `Handle.pause` and `Handle.resume` (R20-R28).

With `family` the calls go through all open descendants. A pause goes from the root down: a parent that is PAUSED starts
no further children, so none is missed. A resume goes from the leaves up, so that the same call completes one that was
interrupted.
"""

from collections.abc import AsyncGenerator
from typing import Final

from holdfast.authoring.validation import Duration, checked_bool, checked_reason, checked_timeout_ms
from holdfast.client.embedded_worker import EmbeddedWorker
from holdfast.client.views.instances import NEWEST
from holdfast.compose import check_pauses
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.core.pauses import PauseVerdict, ResumeVerdict
from holdfast.errors import (
    InstanceClosed,
    InstanceNotFound,
    InstanceNotPaused,
    InstanceNotRunning,
    NothingExhausted,
    StoreError,
    UsageError,
)
from holdfast.runtime.session import StoreSession
from holdfast.storage.members.instances import Pause, Resume
from holdfast.storage.members.outcomes import Failed, PausedInstance, Rejected, ResumedInstance
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord

CHILDREN: Final = 500
"""Children that one read of a family returns."""


class PauseCalls:
    """The pauses of one session."""

    def __init__(self, session: StoreSession, local: EmbeddedWorker) -> None:
        self._session = session
        self._local = local

    async def pause(
        self, instance_id: InstanceId, number: InstanceNumber | None, reason: str | None, *, family: bool
    ) -> None:
        """See `Handle.pause`."""
        self._session.check_usable()
        check_pauses(self._session.store)
        checked_bool(family, "family")
        why = checked_reason(reason)
        outcome = await self._pause(instance_id, number, why)
        found = outcome.instance
        match outcome.verdict:
            case PauseVerdict.CLOSED:
                raise InstanceClosed(f"{instance_id!r} is {found.state}, so it cannot be paused any more")
            case PauseVerdict.NOT_RUNNING:
                raise InstanceNotRunning(
                    f"{instance_id!r} is {found.state}; only an instance that is REQUESTED or RUNNING can be paused"
                )
            case PauseVerdict.PAUSE | PauseVerdict.SAME:
                pass
        if family:
            await self._pause_children(found, why)

    async def resume(
        self,
        instance_id: InstanceId,
        number: InstanceNumber | None,
        *,
        extend: Duration | None,
        fail: bool,
        family: bool,
    ) -> None:
        """See `Handle.resume`."""
        self._session.check_usable()
        check_pauses(self._session.store)
        checked_bool(fail, "fail")
        extend_ms = checked_timeout_ms(extend, "extend") or 0
        if checked_bool(family, "family"):
            found = await self._record(instance_id, number)
            number = found.number
            if found.state is InstanceState.PAUSED:
                async for child in self._descendants(found, leaves_first=True):
                    if child.state is InstanceState.PAUSED:
                        await self._resume(Resume(id=child.id, number=child.number))
        outcome = await self._resume(Resume(id=instance_id, number=number, extend_ms=extend_ms, fail=fail))
        self._check_resumed(outcome)

    @staticmethod
    def _check_resumed(outcome: ResumedInstance) -> None:
        found = outcome.instance
        match outcome.verdict:
            case ResumeVerdict.RESUME:
                return
            case ResumeVerdict.NO_DEADLINE:
                raise UsageError(f"{found.id!r} has no deadline that could be extended; resume it without extend")
            case ResumeVerdict.NOTHING_EXHAUSTED:
                raise NothingExhausted(
                    f"none of the activities of {found.id!r} has used up its retries; resume it without fail"
                )
            case ResumeVerdict.NOT_PAUSED:
                if found.state in INSTANCE_FINAL:
                    raise InstanceClosed(f"{found.id!r} is {found.state}, so it cannot be resumed")
                hint = (
                    "handle.retry_blocked() and holdfast resume try a BLOCKED instance again"
                    if found.state is InstanceState.BLOCKED
                    else "there is nothing to resume"
                )
                raise InstanceNotPaused(f"{found.id!r} is {found.state}, not PAUSED: {hint}")

    # ------------------------------------------------------------ one instance

    async def _pause(self, instance_id: InstanceId, number: InstanceNumber | None, reason: str) -> PausedInstance:
        outcome = await self._local.committer.commit(Pause(id=instance_id, number=number, reason=reason))
        match outcome:
            case PausedInstance():
                self._session.poll()
                return outcome
            case Rejected():
                raise InstanceNotFound(outcome.reason)
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"the pause of {instance_id!r} had the outcome {outcome!r}")

    async def _resume(self, member: Resume) -> ResumedInstance:
        outcome = await self._local.committer.commit(member)
        match outcome:
            case ResumedInstance():
                if outcome.verdict is ResumeVerdict.RESUME:
                    self._announce(outcome)
                return outcome
            case Rejected():
                raise InstanceNotFound(outcome.reason)
            case Failed():
                raise outcome.error
            case _:
                raise StoreError(f"the resume of {member.id!r} had the outcome {outcome!r}")

    def _announce(self, outcome: ResumedInstance) -> None:
        if outcome.has_ended:
            self._session.instance_closed(outcome.instance.id, outcome.instance.number)
        for child in outcome.ended:
            self._session.instance_closed(child.id, child.number)
        if outcome.queues:
            self._session.offered(outcome.queues)
        self._session.poll()

    async def _record(self, instance_id: InstanceId, number: InstanceNumber | None) -> InstanceRecord:
        store = self._session.store
        found = await (store.find_instance(instance_id) if number is None else store.read_instance(number))
        if found is None:
            raise InstanceNotFound(f"no instance has the id {instance_id!r}")
        return found

    # ------------------------------------------------------------ families

    async def _pause_children(self, root: InstanceRecord, reason: str) -> None:
        """Pause the open descendants. One that ends, is BLOCKED or was asked to cancel is left as it is."""
        async for child in self._descendants(root, leaves_first=False):
            await self._pause(child.id, child.number, reason)

    async def _descendants(self, root: InstanceRecord, *, leaves_first: bool) -> AsyncGenerator[InstanceRecord]:
        """The open descendants of an instance. The children of each are read after the caller has handled it, or, with
        `leaves_first`, before."""
        waiting: list[tuple[InstanceRecord, bool]] = [(root, False)]
        while waiting:
            record, was_read = waiting.pop()
            if (was_read or not leaves_first) and record.number != root.number:
                yield record
            if was_read:
                continue
            if leaves_first:
                waiting.append((record, True))
            waiting += [(child, False) for child in await self._open_children(record.number)]

    async def _open_children(self, parent: InstanceNumber) -> list[InstanceRecord]:
        found: list[InstanceRecord] = []
        before = NEWEST
        while True:
            page = await self._session.store.list_instances(before=before, limit=CHILDREN, parent=parent)
            found += [record for record in page if record.closed_at_ms is None]
            if len(page) < CHILDREN:
                return found
            before = page[-1].number
