"""A coroutine that waits for an end gets it, also if a read fails or a wake-up is lost."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest

from holdfast.runtime import signals
from holdfast.runtime.signals import RepeatedTrouble, ResultWaiters
from holdfast.storage.contract import StoreDefaults
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord

if TYPE_CHECKING:
    from holdfast.storage.contract import OpenableStore


def test_an_error_of_a_look_is_not_the_end_of_looking(caplog: pytest.LogCaptureFixture) -> None:
    looks: list[InstanceNumber] = []
    caplog.set_level(logging.WARNING, logger="holdfast")

    class LockedOnce(StoreDefaults):
        async def read_instances(self, numbers: Sequence[InstanceNumber]) -> list[InstanceRecord]:
            looks.extend(numbers)
            if len(looks) == 1:
                raise OSError("the database is locked")
            return []

    async def scenario() -> None:
        waiters = ResultWaiters(cast("OpenableStore", LockedOnce()), RepeatedTrouble(lambda: 0.0))
        waiting = asyncio.create_task(waiters.wait(InstanceId("a"), InstanceNumber(7)))
        async with asyncio.timeout(10):
            while not waiting.done():
                waiters.poll()
                await asyncio.sleep(0)
        waiters.stop()

    asyncio.run(scenario())
    assert looks == [7, 7]
    assert "the database is locked" in caplog.text


def test_C15_all_instances_are_polled_while_wake_ups_name_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wake-up of instance 7 was lost, and those of instance 8 leave no quiet second."""
    monkeypatch.setattr(signals, "POLL_SECONDS", 0.02)

    class WithoutInstances(StoreDefaults):
        async def read_instances(self, numbers: Sequence[InstanceNumber]) -> list[InstanceRecord]:
            del numbers
            return []

    async def scenario() -> None:
        waiters = ResultWaiters(cast("OpenableStore", WithoutInstances()), RepeatedTrouble(lambda: 0.0))
        waiting = asyncio.create_task(waiters.wait(InstanceId("a"), InstanceNumber(7)))
        async with asyncio.timeout(10):
            while not waiting.done():
                waiters.woken([InstanceNumber(8)])
                await asyncio.sleep(0.001)
        waiters.stop()

    asyncio.run(scenario())


def test_C15_an_end_that_was_announced_before_the_wait_is_read_at_once() -> None:
    reads: list[InstanceNumber] = []

    class Recording(StoreDefaults):
        async def read_instances(self, numbers: Sequence[InstanceNumber]) -> list[InstanceRecord]:
            reads.extend(numbers)
            return []

    async def scenario() -> None:
        waiters = ResultWaiters(cast("OpenableStore", Recording()), RepeatedTrouble(lambda: 0.0))
        waiters.woken([InstanceNumber(7)])
        await asyncio.sleep(0)
        async with asyncio.timeout(signals.POLL_SECONDS / 2):
            await waiters.wait(InstanceId("a"), InstanceNumber(7))
        waiters.stop()

    asyncio.run(scenario())
    assert reads == [7]
