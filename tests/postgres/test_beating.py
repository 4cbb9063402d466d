"""Heartbeats whose connection is lost: what was never kept is sent again, and what may have been kept is not."""

import asyncio
import queue
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import pytest
from tests.postgres.cluster import FAST
from tests.postgres.fixtures import NewCluster
from tests.postgres.proxy import Fate, Proxy

from holdfast.core.leases import Heartbeat, HeartbeatReply, Renewed, TokenMismatch
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.runtime.signals import RepeatedTrouble
from holdfast.runtime.worker_lease import LeaseThread
from holdfast.storage.members.workers import Registration, ReplyLost
from holdfast.storage.postgres.store import PostgresStore
from holdfast.testing.conformance.bench import ANNA, HERE

if TYPE_CHECKING:
    from holdfast.storage.contract import Store

LEASE_MS = 4_000
PATIENCE_SECONDS = 20
COMMIT = b"COMMIT\0"
"""As it is sent. Without its end it would be in READ COMMITTED, too."""


class OnceAtCommit:
    """A rule: the next COMMIT has this fate."""

    def __init__(self, fate: Fate) -> None:
        self._fate = fate
        self._is_over = False

    def __call__(self, data: bytes) -> Fate:
        if self._is_over or COMMIT not in data:
            return Fate.ALLOW
        self._is_over = True
        return self._fate


class Heard:
    """A store whose replies to heartbeats are heard."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.replies: queue.SimpleQueue[HeartbeatReply | None] = queue.SimpleQueue()

    def heartbeat(self, beat: Heartbeat, registration: Registration) -> HeartbeatReply:
        try:
            reply = self._store.heartbeat(beat, registration)
        except ReplyLost:
            self.replies.put(None)
            raise
        self.replies.put(reply)
        return reply

    async def kinds(self, count: int) -> list[str]:
        """So many replies, by their kinds."""
        return [
            type(await asyncio.to_thread(self.replies.get, timeout=PATIENCE_SECONDS)).__name__ for _ in range(count)
        ]


def through_a_proxy(new_cluster: NewCluster, case: Callable[[PostgresStore, Proxy], Awaitable[None]]) -> None:
    async def scenario(proxy: Proxy, url: str) -> None:
        store = PostgresStore(url)
        await store.open()
        try:
            await case(store, proxy)
        finally:
            await store.close()

    cluster = new_cluster(FAST)
    with Proxy(cluster.port) as proxy:
        asyncio.run(scenario(proxy, cluster.url(port=proxy.port)))


def test_W9_a_beat_whose_reply_is_lost_is_not_sent_again_by_the_store(new_cluster: NewCluster) -> None:
    async def case(store: PostgresStore, proxy: Proxy) -> None:
        assert isinstance(store.heartbeat(Heartbeat(ANNA, None, LEASE_MS), HERE), Renewed)
        proxy.rule = OnceAtCommit(Fate.LOSE_AND_CUT)
        with pytest.raises(ReplyLost, match="was lost at the commit of a heartbeat"):
            store.heartbeat(Heartbeat(ANNA, 1, LEASE_MS), HERE)
        proxy.rule = OnceAtCommit(Fate.ALLOW_BUT_LOSE_ANSWER)
        with pytest.raises(ReplyLost, match="was lost at the commit of a heartbeat"):
            store.heartbeat(Heartbeat(ANNA, 1, LEASE_MS), HERE)
        assert proxy.harmed == 2
        assert store.heartbeat(Heartbeat(ANNA, 1, LEASE_MS), HERE) == TokenMismatch(2), "it was taken, once"
        proxy.cut()
        assert isinstance(store.heartbeat(Heartbeat(ANNA, 2, LEASE_MS), HERE), Renewed), "nothing was sent before"

    through_a_proxy(new_cluster, case)


def test_W4_a_worker_keeps_its_key_when_the_reply_to_a_beat_is_lost(new_cluster: NewCluster) -> None:
    """The registering beat, and a later one: after either the lease is renewed at once, without a pause."""
    lost: list[str] = []

    async def case(store: PostgresStore, proxy: Proxy) -> None:
        heard = Heard(store)
        keeper = LeaseThread(
            cast("Store", heard),
            SystemClockAndIds(),
            lambda: HERE,
            lease_ms=LEASE_MS,
            lost=lambda: lost.append(keeper.key),
            released=lambda: None,
            trouble=RepeatedTrouble(SystemClockAndIds().elapsed_ms),
        )
        proxy.rule = OnceAtCommit(Fate.ALLOW_BUT_LOSE_ANSWER)
        await keeper.start()
        try:
            assert keeper.fenced_at_ms > SystemClockAndIds().elapsed_ms()
            assert await heard.kinds(3) == ["NoneType", "TokenMismatch", "Renewed"]
            proxy.rule = OnceAtCommit(Fate.ALLOW_BUT_LOSE_ANSWER)
            assert await heard.kinds(3) == ["NoneType", "TokenMismatch", "Renewed"]
            assert proxy.harmed == 2
            assert keeper.fenced_at_ms > SystemClockAndIds().elapsed_ms()
        finally:
            await keeper.stop()
        assert [worker.key for worker in await store.workers()] == [keeper.key]

    through_a_proxy(new_cluster, case)
    assert lost == []
