"""L13: a group whose outcome is unknown is settled by asking the store; every member learns what came of it."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest

from holdfast.core.leases import WorkerKey
from holdfast.errors import StoreError
from holdfast.runtime.committer import Committer
from holdfast.runtime.platform import Platform
from holdfast.runtime.session import StoreSession
from holdfast.storage.contract import StoreDefaults
from holdfast.storage.members.instances import Release
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Applied, Failed, Outcome
from holdfast.storage.records import CommitId, Fence, InstanceNumber
from holdfast.storage.wakeups import Notify, ignore_wakeups

if TYPE_CHECKING:
    from holdfast.storage.contract import OpenableStore

MEMBER = Release(number=InstanceNumber(1), owner=WorkerKey("anna"), fence=Fence(1))


def session_of(store: object) -> StoreSession:
    return StoreSession(cast("OpenableStore", store), Platform())


class BrokenStore(StoreDefaults):
    """Refuses every commit, and says whether it went to disk all the same."""

    def __init__(self, answer: bool | Exception) -> None:
        self._answer = answer
        self.asked: list[CommitId] = []

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        del notify
        raise StoreError(f"{len(members)} members of group {commit_id} may be lost")

    async def was_committed(self, commit_id: CommitId) -> bool:
        self.asked.append(commit_id)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class CalmStore(StoreDefaults):
    """Takes everything."""

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        del commit_id, notify
        return [Applied() for _ in members]


@pytest.mark.parametrize(
    ("answer", "is_unknown"), [(True, True), (False, False), (StoreError("it cannot be read"), True)]
)
def test_L13_a_commit_that_failed_is_looked_up_and_its_outcome_is_unknown_unless_it_is_not_on_disk(
    answer: bool | Exception, is_unknown: bool
) -> None:
    store = BrokenStore(answer)
    committer = Committer(session_of(store))

    async def scenario() -> tuple[Outcome, Outcome]:
        return await asyncio.gather(committer.commit(MEMBER), committer.commit(MEMBER))

    outcomes = asyncio.run(scenario())
    assert [type(outcome) for outcome in outcomes] == [Failed, Failed]
    assert len(store.asked) == 1
    assert committer.outcome_unknown.is_set() is is_unknown


def test_a_receiver_that_fails_does_not_keep_outcomes_from_others() -> None:
    taken: list[Outcome] = []

    def refuse(outcome: Outcome) -> None:
        raise LookupError(f"nobody wants {outcome}")

    async def scenario() -> None:
        committer = Committer(session_of(CalmStore()))
        committer.submit(MEMBER, refuse)
        committer.submit(MEMBER, taken.append)
        await committer.drain()

    asyncio.run(scenario())
    assert taken == [Applied()]
