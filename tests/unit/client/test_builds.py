"""Which open instances need a build (R9), from rows of workers and counts of instances."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.views.builds import BuildView, judge_builds
from holdfast.core.leases import WorkerKey, WorkerState
from holdfast.storage.records import VersionCount, WorkerRow

NOW_MS = 1_000_000
LEASE_MS = 15_000


def worker(
    key: str,
    build: str,
    versions: Mapping[str, Sequence[str]],
    *,
    flows: Sequence[str] = (),
    is_live: bool = True,
    seen_ms: int = NOW_MS,
) -> WorkerRow:
    return WorkerRow(
        key=WorkerKey(key),
        state=WorkerState.ACTIVE if is_live else WorkerState.INACTIVE,
        token=1,
        deadline_ms=seen_ms + LEASE_MS,
        lease_ms=LEASE_MS,
        host=b"",
        queues="[]",
        build=build,
        registered_at_ms=0,
        workflows=json.dumps([*versions, *flows]),
        activities="[]",
        versions=json.dumps(versions),
    )


def group(instances: int, version: str | None = "1", owner: str | None = None, workflow: str = "w") -> VersionCount:
    return VersionCount(
        workflow=workflow, version=version, owner=None if owner is None else WorkerKey(owner), instances=instances
    )


def judged(rows: Sequence[WorkerRow], groups: Sequence[VersionCount], **loads: int) -> dict[str, BuildView]:
    held = {WorkerKey(key): count for key, count in loads.items()}
    return {view.build: view for view in judge_builds(rows, held, groups, {}, NOW_MS).builds}


def test_R9_an_instance_needs_the_only_live_build_that_has_its_version() -> None:
    rows = [worker("k1", "old", {"w": ["1"]}), worker("k2", "new", {"w": ["2"]})]
    found = judged(rows, [group(3), group(5, "2"), group(7, None)])
    assert {build: view.only_here for build, view in found.items()} == {"old": 3, "new": 5}
    both = judged([rows[0], worker("k2", "new", {"w": ["1", "2"]})], [group(3), group(5, "2")])
    assert {build: view.open for build, view in both.items()} == {"old": 0, "new": 5}
    assert both["old"].is_drained
    assert not both["new"].is_drained


def test_R9_what_a_worker_holds_needs_its_build_alone() -> None:
    rows = [worker("k1", "old", {"w": ["1"]}), worker("k2", "new", {"w": ["1", "2"]})]
    found = judged(rows, [group(3, owner="k1"), group(4, owner="k2")], k1=2)
    assert (found["old"].held, found["old"].open, found["old"].activities) == (3, 3, 2)
    assert (found["new"].held, found["new"].activities) == (4, 0)
    assert not judged(rows, [], k1=1)["old"].is_drained, "an activity still runs there"


def test_R9_a_build_without_live_workers_is_needed_until_another_one_has_its_versions() -> None:
    gone = worker("k1", "old", {"w": ["1"]}, is_live=False, seen_ms=NOW_MS - 60_000)
    found = judged([gone, worker("k2", "new", {"w": ["2"]})], [group(3)])
    assert (found["old"].workers, found["old"].open, found["new"].open) == (0, 3, 0)
    assert found["old"].last_seen == dt.datetime.fromtimestamp((NOW_MS - 60_000) / 1_000, dt.UTC)
    assert judged([gone, worker("k2", "new", {"w": ["1", "2"]})], [group(3)])["old"].is_drained
    late = judged([worker("k1", "old", {"w": ["1"]}, seen_ms=NOW_MS - LEASE_MS)], [group(3)])
    assert (late["old"].workers, late["old"].open) == (0, 3), "its lease has ended"


def test_R9_a_flow_is_run_by_every_worker_that_has_it() -> None:
    rows = [worker("k1", "old", {}, flows=["w"]), worker("k2", "new", {}, flows=["w"])]
    assert [view.open for view in judged(rows, [group(3), group(2, "x")]).values()] == [0, 0]
    assert judged(rows[:1], [group(3), group(2, "x")])["old"].only_here == 5


def test_R9_instances_that_no_known_build_has_are_named() -> None:
    found = judge_builds([worker("k1", "old", {"w": ["1"]})], {}, [group(3, "2"), group(1, "1")], {"old": 4}, NOW_MS)
    assert [(each.workflow, each.version, each.instances) for each in found.stranded] == [("w", "2", 3)]
    assert found.builds[0].blocked == 4


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from("12"), min_size=1), st.booleans()), max_size=5),
    st.lists(st.tuples(st.sampled_from("12"), st.integers(1, 5)), max_size=4),
)
def test_R9_stopping_a_drained_build_leaves_every_instance_with_a_worker(
    given_workers: list[tuple[str, set[str], bool]], counts: list[tuple[str, int]]
) -> None:
    rows = [
        worker(f"k{at}", build, {"w": sorted(versions)}, is_live=is_live)
        for at, (build, versions, is_live) in enumerate(given_workers)
    ]
    groups = [group(count, version) for version, count in counts]

    def served(left: Sequence[WorkerRow]) -> set[str]:
        live = [json.loads(row.versions or "{}")["w"] for row in left if row.state == WorkerState.ACTIVE]
        return {version for versions in live for version in versions}

    for build, view in judged(rows, groups).items():
        others = [row for row in rows if row.build != build]
        lost = served(rows) - served(others)
        assert not view.is_drained or not any(version in lost for version, _ in counts)
