"""Requests to pause and to resume, applied to the tables in memory (R20-R27)."""

import msgspec
from tests.stores.memory_attempts import answer_exhausted, pause_instance, restore_attempts
from tests.stores.memory_endings import enforce
from tests.stores.memory_tables import Instance, MemoryTables, instance_record

from holdfast.core.lifecycle import InstanceEvent, InstanceState, next_state
from holdfast.core.pauses import PauseVerdict, ResumeVerdict, decide_pause, decide_resume
from holdfast.storage.members.instances import Pause, Resume
from holdfast.storage.members.outcomes import EndedInstance, Outcome, PausedInstance, Rejected, ResumedInstance


def _target(tables: MemoryTables, member: Pause | Resume) -> Instance | None:
    return tables.current(member.id) if member.number is None else tables.instances.get(member.number)


def apply_pause(tables: MemoryTables, member: Pause) -> Outcome:
    found = _target(tables, member)
    if found is None:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    verdict = decide_pause(found.state)
    if verdict is PauseVerdict.PAUSE:
        pause_instance(tables, found.number, member.reason)
    return PausedInstance(instance=instance_record(found), verdict=verdict)


def apply_resume(tables: MemoryTables, member: Resume) -> Outcome:
    found = _target(tables, member)
    if found is None:
        return Rejected(reason=f"no instance has the id {member.id!r}")
    number, deadline = found.number, found.deadline
    verdict = decide_resume(
        found.state,
        extends=member.extend_ms > 0,
        has_deadline=deadline is not None,
        fails=member.fail,
        has_exhausted=any(row.is_exhausted for row in tables.attempts_of(number)),
    )
    if verdict is not ResumeVerdict.RESUME:
        return ResumedInstance(instance=instance_record(found), verdict=verdict)
    event = InstanceEvent.RESUME if found.has_begun else InstanceEvent.RESUME_REQUESTED
    if deadline is not None:
        at_ms = deadline.at_ms + member.extend_ms
        deadline = msgspec.structs.replace(deadline, at_ms=at_ms, expires_at_ms=at_ms)
    resumed = tables.instances.change(
        number,
        state=next_state(found.state, event),
        paused_at_ms=None,
        paused_from=None,
        pause_reason=None,
        claimable_at_ms=0 if found.has_begun else found.start_at_ms or 0,
        deadline=deadline,
    )
    ended: tuple[EndedInstance, ...] = ()
    if deadline is not None and deadline.at_ms <= tables.now_ms:
        ended = enforce(tables, resumed, deadline, applies_at_ms=deadline.at_ms)[1]
    if member.fail:
        answer_exhausted(tables, number)
    queues = restore_attempts(tables, found)
    has_ended = tables.instances[number].state is InstanceState.FAILED
    return ResumedInstance(
        instance=instance_record(found), verdict=verdict, has_ended=has_ended, ended=ended, queues=queues
    )
