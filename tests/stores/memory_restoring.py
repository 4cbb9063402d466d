"""A restore, applied to the tables in memory (R2). This store has no external attempts."""

from tests.stores.memory_tables import MemoryTables

from holdfast.storage.members.outcomes import Applied, Outcome, Rejected, RestoredInstances
from holdfast.storage.members.restoring import NUMBERS_LIFTED, LiftNumbers, RestoreInstances
from holdfast.storage.records import Fence


def _has_active_worker(tables: MemoryTables) -> bool:
    return any(tables.is_active(key) for key in tables.workers)


def apply_lift_numbers(tables: MemoryTables, member: LiftNumbers) -> Outcome:
    if not member.is_forced and _has_active_worker(tables):
        return Rejected(reason="a worker is active")
    tables.lift_numbers(NUMBERS_LIFTED)
    return Applied()


def apply_restore_instances(tables: MemoryTables, member: RestoreInstances) -> Outcome:
    if not member.is_forced and _has_active_worker(tables):
        return Rejected(reason="a worker is active")
    rows = sorted((row for row in tables.instances.values() if row.is_open), key=lambda row: row.number)
    batch = [row for row in rows if row.number > member.after][: member.limit]
    for row in batch:
        tables.instances.change(row.number, fence=Fence(row.fence + NUMBERS_LIFTED))
    last = batch[-1].number if len(batch) == member.limit else None
    return RestoredInstances(fences=len(batch), external_attempts=0, last=last)
