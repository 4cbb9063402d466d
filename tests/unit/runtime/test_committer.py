"""Whatever a store raises, every member learns it, and the committer goes on."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest
from tests.scenarios.support import until

import holdfast as hf
from holdfast.core.leases import WorkerKey
from holdfast.runtime.committer import Committer
from holdfast.runtime.platform import Platform
from holdfast.runtime.session import StoreSession
from holdfast.storage.contract import CLAIMS_APART, StoreDefaults
from holdfast.storage.members.attempts import ClaimAttempts
from holdfast.storage.members.instances import ClaimInstances
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Applied, Failed, Outcome
from holdfast.storage.records import CommitId
from holdfast.storage.wakeups import Notify, ignore_wakeups
from holdfast.testing.conformance.bench import start

if TYPE_CHECKING:
    from holdfast.storage.contract import OpenableStore


def session_of(store: object) -> StoreSession:
    return StoreSession(cast("OpenableStore", store), Platform())


class Moody(StoreDefaults):
    """A store that raises once."""

    def __init__(self, error: Exception) -> None:
        self._error: Exception | None = error

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        del commit_id, notify
        error, self._error = self._error, None
        if error is not None:
            raise error
        return [Applied() for _ in members]

    async def was_committed(self, commit_id: CommitId) -> bool:
        raise RuntimeError(f"{commit_id} cannot be looked up")


@pytest.mark.parametrize("error", [hf.StoreError("full"), RuntimeError("no thread"), OSError("no disk")])
def test_G11_an_error_of_whatever_kind_is_told_to_everyone_as_the_stores_and_the_next_group_is_written(
    error: Exception,
) -> None:
    async def scenario() -> None:
        committer = Committer(session_of(Moody(error)))
        outcomes = await asyncio.gather(committer.commit(start("a")), committer.commit(start("b")))
        for outcome in outcomes:
            assert isinstance(outcome, Failed)
            assert isinstance(outcome.error, hf.StoreError), (
                "no instance is to blame, and what must be kept is insisted on"
            )
            assert str(error) in str(outcome.error)
        assert committer.outcome_unknown.is_set(), "the group may be on disk"
        assert await committer.commit(start("c")) == Applied()
        assert committer.groups_decided == 2

    asyncio.run(scenario())


def test_L13_what_must_not_be_lost_is_tried_until_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.committer.RETRY_SECONDS", 0.0)

    async def scenario() -> None:
        committer = Committer(session_of(Moody(OSError("no disk"))))
        stored: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        member = start("a")
        committer.commit_eventually(member, stored.set_result)
        assert list(committer.undecided()) == [member]
        async with asyncio.timeout(10):
            assert await stored == Applied()
        await committer.drain()
        assert list(committer.undecided()) == []

    asyncio.run(scenario())


class Full(StoreDefaults):
    """A store that refuses every group until it was tried often enough."""

    def __init__(self, tries: int) -> None:
        self.left = tries

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        del commit_id, notify
        self.left -= 1
        if self.left >= 0:
            raise hf.StoreError("the disk is full")
        return [Applied() for _ in members]

    async def was_committed(self, commit_id: CommitId) -> bool:
        del commit_id
        return False


def test_L13_a_full_disk_is_one_line_for_all_rows_and_tries(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("holdfast.runtime.committer.RETRY_SECONDS", 0.0)

    async def scenario() -> None:
        committer = Committer(session_of(Full(tries=20)))
        outcomes: list[Outcome] = []
        for number in range(50):
            committer.commit_eventually(start(f"{number}"), outcomes.append)
        await until(lambda: len(outcomes) == 50)
        assert outcomes == [Applied()] * 50

    asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "work could not be stored and is tried again: the disk is full"
    ]


def test_files_that_were_replaced_are_final_and_the_session_learns_it_after_the_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        said: list[object] = []
        error = hf.errors.StoreReplaced("shop.db was removed")
        session = session_of(Moody(error))
        monkeypatch.setattr(session, "store_replaced", said.append)
        committer = Committer(session)
        committer.commit_eventually(start("a"), said.append)
        await until(lambda: len(said) == 2)
        assert said == [Failed(error=error), error]

    asyncio.run(scenario())


class Recording(StoreDefaults):
    """A store that accepts everything. Each group needs a permit."""

    def __init__(self, *capabilities: str) -> None:
        self.capabilities = frozenset(capabilities)
        self.groups: list[list[Member]] = []
        self.permits = asyncio.Semaphore(0)

    async def commit(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        del commit_id, notify
        self.groups.append(list(members))
        await self.permits.acquire()
        return [Applied() for _ in members]

    def permit(self, groups: int) -> None:
        for _ in range(groups):
            self.permits.release()


CLAIM = ClaimInstances(owner=WorkerKey("anna"), workflows=("flow",), limit=1)
OTHER_CLAIM = ClaimAttempts(owner=WorkerKey("anna"), queues=("default",), names=("step",), limit=1)


def test_G11_claims_are_committed_apart_from_other_members_if_the_store_asks_for_it() -> None:
    async def scenario() -> None:
        store = Recording(CLAIMS_APART)
        committer = Committer(session_of(store))
        first, second, third = (start(each) for each in "abc")
        running = asyncio.create_task(committer.commit(first))
        await until(lambda: len(store.groups) == 1)
        waiting = [asyncio.create_task(committer.commit(each)) for each in (second, CLAIM, third, OTHER_CLAIM)]
        await asyncio.sleep(0)
        drained = asyncio.create_task(committer.drain())
        await asyncio.sleep(0)
        store.permit(3)
        assert await asyncio.gather(running, *waiting) == [Applied()] * 5
        await drained
        assert store.groups == [[first], [second, third], [CLAIM, OTHER_CLAIM]]

    asyncio.run(scenario())


def test_G11_a_claim_waits_for_one_group_of_others_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.committer.MAX_GROUP", 2)

    async def scenario() -> None:
        store = Recording(CLAIMS_APART)
        committer = Committer(session_of(store))
        first, *others = (start(each) for each in "abcde")
        members: list[Member] = [first, others[0], CLAIM, *others[1:]]
        running = [asyncio.create_task(committer.commit(each)) for each in members]
        await until(lambda: len(store.groups) == 1)
        drained = asyncio.create_task(committer.drain())
        store.permit(5)
        await asyncio.gather(*running)
        await drained
        assert store.groups == [[first, others[0]], [CLAIM], others[1:3], others[3:]]

    asyncio.run(scenario())


def test_G11_claims_share_groups_with_other_members_otherwise() -> None:
    async def scenario() -> None:
        store = Recording()
        committer = Committer(session_of(store))
        first = start("a")
        store.permit(1)
        await asyncio.gather(committer.commit(first), committer.commit(CLAIM))
        assert store.groups == [[first, CLAIM]]

    asyncio.run(scenario())
