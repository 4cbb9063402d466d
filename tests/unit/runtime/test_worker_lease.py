"""The thread that keeps a lease survives whatever a store raises, and registering does not hold up the loop."""

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, cast

import pytest

from holdfast.core.leases import Heartbeat, HeartbeatReply, Renewed
from holdfast.runtime.loop_watch import LoopRules
from holdfast.runtime.platform import SystemClockAndIds
from holdfast.runtime.signals import RepeatedTrouble
from holdfast.runtime.worker_lease import LeaseThread
from holdfast.testing.conformance.bench import HERE

if TYPE_CHECKING:
    from holdfast.storage.contract import Store

LEASE_MS = 40


class Registry:
    """Answers heartbeats as it is told, one after the other, and then well."""

    def __init__(self, *errors: Exception | None) -> None:
        self._errors = list(errors)
        self._token = 0
        self.answered = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def heartbeat(self, beat: Heartbeat, registration: object) -> HeartbeatReply:
        del registration
        self.may_answer.wait(10)
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        self._token += 1
        self.answered.release()
        return Renewed(self._token, 0, beat.lease_ms or 0)


def keeper_of(registry: Registry) -> LeaseThread:
    return LeaseThread(
        cast("Store", registry),
        SystemClockAndIds(),
        lambda: HERE,
        lease_ms=LEASE_MS,
        lost=lambda: pytest.fail("it was not lost"),
        released=lambda: pytest.fail("the loop runs"),
        trouble=RepeatedTrouble(SystemClockAndIds().elapsed_ms),
    )


def test_W9_a_heartbeat_without_a_reply_is_followed_by_the_next(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="holdfast")

    async def scenario() -> None:
        registry = Registry(None, RuntimeError("disk full"), OSError("no disk"))
        keeper = keeper_of(registry)
        await keeper.start()
        for _ in range(3):
            assert await asyncio.to_thread(registry.answered.acquire, timeout=10)
        await keeper.stop()

    asyncio.run(scenario())
    assert ["disk full" in caplog.text, "no disk" in caplog.text] == [True, False], "one line a minute"


def test_W1_a_refused_registration_is_raised() -> None:
    async def scenario() -> None:
        keeper = keeper_of(Registry(OSError("no disk")))
        with pytest.raises(OSError, match="no disk"):
            await keeper.start()

    asyncio.run(scenario())


def test_W1_the_loop_runs_while_a_registration_waits_for_the_store() -> None:
    async def scenario() -> None:
        registry = Registry()
        registry.may_answer.clear()
        keeper = keeper_of(registry)
        starting = asyncio.create_task(keeper.start())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not starting.done()
        registry.may_answer.set()
        await starting
        await keeper.stop()

    asyncio.run(scenario())


def test_W10_a_start_that_is_cancelled_waits_for_its_heartbeat_before_the_store_closes() -> None:
    async def scenario() -> None:
        registry = Registry()
        registry.may_answer.clear()
        keeper = keeper_of(registry)
        starting = asyncio.create_task(keeper.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.sleep(0)
        assert not starting.done()
        registry.may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert registry.answered.acquire(blocking=False), "the heartbeat has returned"

    asyncio.run(scenario())


def test_W1_a_closed_loop_ends_the_lease_and_fences_the_worker() -> None:
    """The lease has a minute left, and the thread ends although the store refuses what it says."""
    lost = threading.Event()
    made: list[LeaseThread] = []

    async def leave() -> None:
        keeper = LeaseThread(
            cast("Store", Registry()),
            SystemClockAndIds(),
            lambda: HERE,
            lease_ms=60_000,
            lost=lost.set,
            released=lambda: None,
            trouble=RepeatedTrouble(SystemClockAndIds().elapsed_ms),
            loop_rules=LoopRules(release_after_ms=30_000, end_after_ms=None),
        )
        await keeper.start()
        assert keeper.fenced_at_ms > SystemClockAndIds().elapsed_ms()
        made.append(keeper)

    asyncio.run(leave())
    assert lost.wait(10)
    assert made[0].fenced_at_ms == 0
