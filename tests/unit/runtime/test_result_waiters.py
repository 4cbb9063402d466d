"""Whoever waits for an end is told, also when a look for it fails."""

import asyncio
import logging
from typing import TYPE_CHECKING, cast

import pytest

from holdfast.runtime.signals import RepeatedTrouble, ResultWaiters
from holdfast.storage.contract import StoreDefaults
from holdfast.storage.records import InstanceId, InstanceNumber

if TYPE_CHECKING:
    from holdfast.storage.contract import OpenableStore


def test_an_error_of_a_look_is_not_the_end_of_looking(caplog: pytest.LogCaptureFixture) -> None:
    looks: list[InstanceNumber] = []
    caplog.set_level(logging.WARNING, logger="holdfast")

    class LockedOnce(StoreDefaults):
        async def read_instance(self, number: InstanceNumber) -> None:
            looks.append(number)
            if len(looks) == 1:
                raise OSError("the database is locked")

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
