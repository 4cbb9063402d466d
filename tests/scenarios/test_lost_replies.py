"""A commit is on disk and nobody is told (W3): what nobody knows is found and run, and nothing else is disturbed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.scenarios.support import check_tables, engine_of, path_of, rows, together, until
from tests.support.inside import key_of, reconciler_of, turns_of, worker_of

import holdfast as hf
from holdfast.runtime.platform import FaultPoint
from holdfast.storage.members.attempts import ClaimAttempts, Completion, OpenNextAttempt
from holdfast.storage.members.instances import ClaimInstances, Start
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome, StartedInstance
from holdfast.storage.members.turns import Turn
from holdfast.storage.members.workers import ReleaseUnknown
from holdfast.storage.records import CommitId
from holdfast.storage.wakeups import Notify, ignore_wakeups

KINDS = (Start, Turn, Completion, OpenNextAttempt, ClaimAttempts, ClaimInstances)
bystanders: list[asyncio.Event] = []


@hf.activity(retry=hf.Retry(attempts=3, initial=0.01))
async def add(left: int, right: int) -> int:
    if right == 2 and hf.activity_info().attempt == 1:
        raise ConnectionError("try again")
    return left + right


@hf.workflow
async def adds() -> int:
    total = await add(0, 1)
    total += await add(0, 2)
    await asyncio.sleep(0.01)
    return await add(total, 3)


@hf.activity
async def stand_by() -> int:
    bystanders.append(asyncio.Event())
    await bystanders[-1].wait()
    return len(bystanders)


@hf.workflow
async def stands_by() -> int:
    return await stand_by()


class LoseReply:
    """Tells an error after the commit of the first member of a kind, once it is armed."""

    def __init__(self, kind: type[Member]) -> None:
        self._kind = kind
        self.is_armed = False
        self.has_lost = False

    def __call__(self, point: FaultPoint, members: Sequence[Member]) -> None:
        hit = point is FaultPoint.AFTER_COMMIT and any(isinstance(member, self._kind) for member in members)
        if hit and self.is_armed and not self.has_lost:
            self.has_lost = True
            raise hf.StoreError("the reply was lost")


@pytest.mark.parametrize("can_ask", [True, False], ids=["asked", "unasked"])
@pytest.mark.parametrize("cache_size", [0, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_W3_a_lost_reply_is_made_good_and_disturbs_nobody(
    tmp_path: Path, kind: type[Member], cache_size: int, can_ask: bool
) -> None:
    """Under the same key, and without a word to the bodies that run: not even when nobody can say what is on disk."""
    fault = LoseReply(kind)
    bystanders.clear()

    async def unable(commit_id: CommitId) -> bool:
        raise hf.StoreError(f"commit {commit_id} cannot be looked up")

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        options: dict[str, Any] = {"cache_size": cache_size, "fault_hook": fault, "lease": 60}
        async with engine_of(path, add, adds, stand_by, stands_by, **options) as engine:
            key = key_of(worker_of(engine))
            if not can_ask:
                engine._session.store.was_committed = unable  # type: ignore[method-assign]
            other = await engine.start(stands_by, id="other")
            await until(lambda: bystanders)
            fault.is_armed = True
            try:
                await engine.start(adds, id="a")
            except hf.StoreError:
                await engine.start(adds, id="a")
            assert await engine.get("a").result(timeout=8) == 6
            bystanders[0].set()
            assert await other.result(timeout=8) == 1, "its body was run again"
            assert key_of(worker_of(engine)) == key, "the worker began anew"
            assert fault.has_lost or cache_size, "a run in which the fault never happened is void"
        check_tables(path)

    together(scenario())


def test_W3_an_outcome_that_was_not_taken_is_found_with_the_next_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error is told to anybody who could ask for a look: only the net finds it."""

    async def scenario() -> None:
        async with engine_of(tmp_path / "shop.db", add, adds, lease=1) as engine:

            def stumble(*told: Any) -> None:
                monkeypatch.undo()
                assert isinstance(told[-1], StartedInstance)
                raise RuntimeError("the one who was told stumbled")

            monkeypatch.setattr(turns_of(worker_of(engine)), "_on_start", stumble)
            starting = asyncio.create_task(engine.start(adds, id="a"))
            await until(lambda: rows(path_of(engine), "SELECT 1 FROM attempts WHERE state = 'RUNNING'"))
            assert await engine.get("a").result(timeout=8) == 6
            losses = rows(path_of(engine), "SELECT max(losses) FROM attempts")
            assert losses == [(1,)], "A10: the attempt that nobody ran counts as lost"
            starting.cancel()
            check_tables(path_of(engine))

    together(scenario())


def test_W3_what_is_on_its_way_is_not_mistaken_for_lost(tmp_path: Path) -> None:
    """Groups are on disk long before their outcomes are told: looks meanwhile find strangers, and touch none."""
    is_told = asyncio.Event()
    disowned: list[Member] = []

    def listen(point: FaultPoint, members: Sequence[Member]) -> None:
        if point is FaultPoint.BEFORE_COMMIT:
            disowned.extend(member for member in members if isinstance(member, ReleaseUnknown))

    async def scenario() -> None:
        path = tmp_path / "shop.db"
        async with engine_of(path, add, adds, lease=60, fault_hook=listen) as engine:
            commit = engine._session.store.commit

            async def late(
                commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
            ) -> list[Outcome]:
                outcomes = await commit(commit_id, members, notify)
                await is_told.wait()
                return outcomes

            engine._session.store.commit = late  # type: ignore[method-assign]
            starting = asyncio.create_task(engine.start(adds, id="a"))
            await until(lambda: rows(path, "SELECT 1 FROM attempts WHERE state = 'RUNNING'"))
            try:
                async with asyncio.timeout(5):
                    for _ in range(5):
                        await reconciler_of(worker_of(engine)).reconcile()
            finally:
                is_told.set()  # also when a look gave something up, which waits for its turn
            await reconciler_of(worker_of(engine)).reconcile()
            assert await (await starting).result(timeout=8) == 6
            for _ in range(3):
                await reconciler_of(worker_of(engine)).reconcile()
        assert not disowned
        assert rows(path, "SELECT max(losses) FROM attempts") == [(0,)]

    together(scenario())
