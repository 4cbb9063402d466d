"""The report of `holdfast replay`: instances that do not fit the code, in groups of one cause (R16)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.audit.replays import CodeCheck, Progress, closed_instances, open_instances
from holdfast.authoring.registry import Registry
from holdfast.client.views.reasons import reason_key
from holdfast.core.versions import version_text
from holdfast.storage.contract import CheckableStore
from holdfast.storage.records import InstanceRecord, LoadedInstance

MOST_GROUPS = 500
MOST_MEMBERS = 100
"""Instances of a group that are named; the others are counted."""
Failing = Callable[[InstanceRecord, LoadedInstance], None]
"""Is called with each instance that does not fit."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """An instance that does not fit the code."""

    id: str
    number: int
    state: str
    reason: str


@dataclass(slots=True)
class MisfitGroup:
    """Instances of one workflow that do not fit for the same reason."""

    workflow: str
    count: int = 0
    instances: list[Misfit] = field(default_factory=list[Misfit])


@dataclass(slots=True)
class ReplayReport:
    """What was checked, and what does not fit."""

    open: int = 0
    closed: int = 0
    open_failed: int = 0
    closed_failed: int = 0
    not_checked: Counter[str] = field(default_factory=Counter[str])
    """Open instances of workflows that the code does not have."""
    groups: dict[tuple[str, str], MisfitGroup] = field(default_factory=dict[tuple[str, str], MisfitGroup])

    @property
    def failed(self) -> int:
        return self.open_failed + self.closed_failed

    def add(self, record: InstanceRecord, reason: str) -> None:
        key = (record.workflow, reason_key(reason, record.id))
        if key not in self.groups and len(self.groups) >= MOST_GROUPS:
            key = (record.workflow, "")
        group = self.groups.setdefault(key, MisfitGroup(record.workflow))
        group.count += 1
        if len(group.instances) < MOST_MEMBERS:
            group.instances.append(Misfit(record.id, record.number, str(record.state), reason))


async def replay_store(
    store: CheckableStore,
    registry: Registry,
    *,
    workflow: str | None,
    closed: int,
    progress: Progress,
    failing: Failing,
) -> ReplayReport:
    """Check every open instance, and of each workflow the `closed` closed ones that were started last."""
    report = ReplayReport()
    with CodeCheck(store, registry) as check:

        def wanted(record: InstanceRecord) -> bool:
            return check.code_of(record) is not None and workflow in (None, record.workflow)

        async def replayed(record: InstanceRecord, loaded: LoadedInstance) -> bool:
            problem = (await check.check(record, loaded)).problem
            if problem:
                report.add(record, problem)
                failing(record, loaded)
            return bool(problem)

        async for record, loaded in open_instances(store, wanted, progress):
            if loaded is not None:
                report.open += 1
                report.open_failed += await replayed(record, loaded)
            elif check.has_other_version_of(record) and workflow in (None, record.workflow):
                report.open += 1
                report.open_failed += 1
                report.add(record, f"{record.workflow!r} with {version_text(record.version or '')} is not in this code")
            elif workflow is None:
                report.not_checked[record.workflow] += 1
        for name in sorted(registry.workflows) if workflow is None else [workflow]:
            async for record, loaded in closed_instances(store, name, closed):
                if check.code_of(record) is not None:  # a version that no open instance needs may be gone
                    report.closed += 1
                    report.closed_failed += await replayed(record, loaded)
    return report
