"""Builds: the workers of each build of the code, and the open instances that need it (R9).

Everything is computed from the rows of workers and from counts of open instances. An instance does not record builds:
no commit of a turn writes anything for this.
"""

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from holdfast.client.views.overview import may_run, registered_names
from holdfast.core.deadlines import MILLISECONDS
from holdfast.core.leases import WorkerKey, WorkerState
from holdfast.errors import UsageError
from holdfast.storage.contract import Store, counting
from holdfast.storage.records import VersionCount, WorkerRow

MOST_GROUPS: Final = 10_000
"""Groups of open instances, and builds, that are read."""
MOST_KNOWN: Final = 10
"""Builds that an error lists."""


class BuildView(msgspec.Struct, frozen=True, kw_only=True):
    """A build of the code. It is known as long as the row of one of its workers: a day after the last one ended."""

    build: str
    workers: int
    """Its live workers."""
    open: int
    """The open instances that need it: `held` and `only_here`."""
    held: int
    """The open instances that its workers own."""
    only_here: int
    """The other open instances of versions that this build has and no live worker of another build."""
    activities: int
    """The activities that its workers hold."""
    blocked: int
    """The BLOCKED instances that it could not run."""
    last_seen: dt.datetime
    """The last heartbeat of its workers."""

    @property
    def is_drained(self) -> bool:
        """Whether no open instance needs it and its workers hold no activity."""
        return self.open == 0 and self.activities == 0


class StrandedInstances(msgspec.Struct, frozen=True, kw_only=True):
    """Open instances of a version that no known build has."""

    workflow: str
    version: str | None
    instances: int


class Builds(msgspec.Struct, frozen=True, kw_only=True):
    """The builds of a store, the one that was seen last first, and the open instances that none of them can run."""

    builds: Sequence[BuildView]
    stranded: Sequence[StrandedInstances]


async def read_builds(store: Store) -> Builds:
    """The builds of all workers that the store knows."""
    counts = counting(store)
    rows = await store.workers()
    loads = {load.key: load.attempts for load in await store.worker_loads()}
    groups = await counts.count_versions(MOST_GROUPS)
    return judge_builds(rows, loads, groups, await counts.count_blocked_by(MOST_GROUPS), store.now_ms())


async def read_build(store: Store, build: str) -> BuildView:
    """One build; a `UsageError` if the store knows no worker of it."""
    found = await read_builds(store)
    for each in found.builds:
        if each.build == build:
            return each
    known = ", ".join(each.build for each in found.builds[:MOST_KNOWN]) or "none"
    raise UsageError(f"the store knows no worker of build {build!r}; known: {known}")


def judge_builds(
    rows: Sequence[WorkerRow],
    loads: Mapping[WorkerKey, int],
    groups: Sequence[VersionCount],
    blocked: Mapping[str, int],
    now_ms: int,
) -> Builds:
    """The builds of `rows`. `loads`: the open attempts by owner; `groups`: the open instances; `blocked`: by build."""
    by_build: dict[str, list[WorkerRow]] = {}
    for row in rows:
        by_build.setdefault(row.build, []).append(row)
    live = {build: [row for row in found if _is_live(row, now_ms)] for build, found in by_build.items()}
    build_of = {row.key: row.build for row in rows}
    held: Counter[str] = Counter()
    only_here: Counter[str] = Counter()
    stranded: list[StrandedInstances] = []
    for group in groups:
        owner = None if group.owner is None else build_of.get(group.owner)
        if owner is not None:
            held[owner] += group.instances
            continue
        having = [build for build, found in by_build.items() if any(_has(row, group) for row in found)]
        if not having:
            stranded.append(
                StrandedInstances(workflow=group.workflow, version=group.version, instances=group.instances)
            )
        serving = {build for build in having if any(_has(row, group) for row in live[build])}
        for build in having:
            if not serving - {build}:
                only_here[build] += group.instances
    views = [
        BuildView(
            build=build,
            workers=len(live[build]),
            open=held[build] + only_here[build],
            held=held[build],
            only_here=only_here[build],
            activities=sum(loads.get(row.key, 0) for row in found),
            blocked=blocked.get(build, 0),
            last_seen=dt.datetime.fromtimestamp(max(map(_last_seen_ms, found)) / MILLISECONDS, dt.UTC),
        )
        for build, found in by_build.items()
    ]
    views.sort(key=lambda view: (view.last_seen, view.build), reverse=True)
    return Builds(builds=views, stranded=stranded)


def _is_live(row: WorkerRow, now_ms: int) -> bool:
    return row.state == WorkerState.ACTIVE and row.deadline_ms > now_ms


def _last_seen_ms(row: WorkerRow) -> int:
    return max(row.registered_at_ms, row.deadline_ms - row.lease_ms)


def _has(row: WorkerRow, group: VersionCount) -> bool:
    """Whether a worker registered the code of a group of instances. One of an older release does not say."""
    return registered_names(row.workflows) is not None and may_run(row, group.workflow, group.version)
