"""L13: a group whose outcome is unknown is settled by asking the store; every member learns what came of it."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest

from holdfast.core.leases import WorkerKey
from holdfast.errors import StoreError
from holdfast.runtime.committer import Committer
from holdfast.runtime.signals import RepeatedTrouble
from holdfast.storage.members.instances import Release
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Applied, Failed, Outcome
from holdfast.storage.records import CommitId, Fence, InstanceNumber

if TYPE_CHECKING:
    from holdfast.storage.contract import Store

MEMBER = Release(number=InstanceNumber(1), owner=WorkerKey("anna"), fence=Fence(1))


def trouble() -> RepeatedTrouble:
    return RepeatedTrouble(lambda: 0.0)


class BrokenStore:
    """Refuses every commit, and says whether it went to disk all the same."""

    def __init__(self, answer: bool | Exception) -> None:
        self._answer = answer
        self.asked: list[CommitId] = []

    async def commit(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        raise StoreError(f"{len(members)} members of group {commit_id} may be lost")

    async def was_committed(self, commit_id: CommitId) -> bool:
        self.asked.append(commit_id)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class CalmStore:
    """Takes everything."""

    async def commit(self, commit_id: CommitId, members: Sequence[Member]) -> list[Outcome]:
        del commit_id
        return [Applied() for _ in members]


@pytest.mark.parametrize(("answer", "unsure"), [(True, 1), (False, 0), (StoreError("it cannot be read"), 1)])
def test_L13_a_commit_that_failed_is_looked_for_and_whoever_may_have_missed_something_is_told(
    answer: bool | Exception, unsure: int
) -> None:
    store = BrokenStore(answer)
    told: list[None] = []
    committer = Committer(cast("Store", store), lambda: 4_711, trouble(), unsure=lambda: told.append(None))

    async def scenario() -> tuple[Outcome, Outcome]:
        return await asyncio.gather(committer.commit(MEMBER), committer.commit(MEMBER))

    outcomes = asyncio.run(scenario())
    assert [type(outcome) for outcome in outcomes] == [Failed, Failed]
    assert store.asked == [4_711]
    assert len(told) == unsure


def test_one_who_cannot_take_its_outcome_keeps_nobody_from_theirs() -> None:
    taken: list[Outcome] = []

    def refuse(outcome: Outcome) -> None:
        raise LookupError(f"nobody wants {outcome}")

    async def scenario() -> None:
        committer = Committer(cast("Store", CalmStore()), lambda: 1, trouble())
        committer.submit(MEMBER, refuse)
        committer.submit(MEMBER, taken.append)
        await committer.drain()

    asyncio.run(scenario())
    assert taken == [Applied()]
