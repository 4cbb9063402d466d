"""A store that cannot be used is told in one line; what nobody foresaw is told whole."""

import asyncio
import logging
from pathlib import Path

import pytest

from holdfast.errors import ClientClosed, StoreError, StoreReplaced
from holdfast.runtime.signals import PollSignal, RepeatedTrouble, log_failure, trouble_of


def test_an_outage_of_the_store_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    log_failure("nothing was looked for", StoreError("the server is starting up"))
    assert caplog.text.count("\n") == 1
    assert "nothing was looked for: the server is starting up" in caplog.text


def test_what_nobody_foresaw_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError as error:
        log_failure("nothing was looked for", error)
    assert "Traceback" in caplog.text


def test_the_loss_of_the_files_is_not_repeated_by_those_who_meet_it(caplog: pytest.LogCaptureFixture) -> None:
    """The store has logged it."""
    log_failure("nothing was looked for", StoreReplaced("shop.db was removed"))
    assert not caplog.records


def test_C15_a_poll_ends_the_wait_for_a_later_one() -> None:
    """It has seen what the wake-up was for; a wake-up during the poll asks for another one."""

    async def scenario() -> None:
        work = PollSignal()
        work.set_later(0.001)
        work.begin_poll()
        await asyncio.sleep(0.02)
        assert not work.is_set()
        work.set_later(0.001)
        work.set_later(60.0)
        async with asyncio.timeout(5):
            await work.wait()
        work.begin_poll()
        work.set_later(0.001)
        async with asyncio.timeout(5):
            await work.wait()

    asyncio.run(scenario())


class Clock:
    """Goes on when it is told to."""

    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_repeated_trouble_is_one_line_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    trouble = RepeatedTrouble(clock)
    for number in range(240):
        trouble.log(("work could not be stored", "nothing was looked for")[number % 2], StoreError("the disk is full"))
        clock.now_ms += 250
    assert lines(caplog) == ["work could not be stored: the disk is full"]
    trouble.log("nothing was looked for", StoreError("the disk is full"))
    assert lines(caplog)[1:] == ["nothing was looked for (240 errors since the last such line): the disk is full"]


def test_the_end_of_an_outage_is_one_line_with_the_count_and_the_duration(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="holdfast")
    clock = Clock()
    trouble = RepeatedTrouble(clock)
    trouble.succeeded()
    for _ in range(3):
        trouble.log("work could not be stored", StoreError("the disk is full"))
        clock.now_ms += 2_000
        trouble.succeeded()  # a small write, which a full disk takes now and then
    assert lines(caplog) == ["work could not be stored: the disk is full"]
    clock.now_ms += 3_000
    trouble.succeeded()
    trouble.succeeded()
    assert lines(caplog)[1:] == ["the store can be used again: it failed 3 times within 4.0 s"]
    trouble.log("work could not be stored", StoreError("the disk is full"))
    assert lines(caplog)[2:] == ["work could not be stored: the disk is full"], "another outage"


def test_other_errors_have_a_line_a_minute_for_each_thing_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    trouble = RepeatedTrouble(Clock())
    for _ in range(3):
        trouble.log("the janitor failed", ZeroDivisionError("by nothing"))
        trouble.log("a look failed", KeyError("nothing"))
        trouble.log("a look failed", StoreError("the disk is full"))
    assert lines(caplog) == [
        "the janitor failed: by nothing",
        "a look failed: 'nothing'",
        "a look failed: the disk is full",
    ]


def test_a_call_of_a_closed_client_is_no_outage_of_the_store(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="holdfast")
    clock = Clock()
    trouble = RepeatedTrouble(clock)
    trouble.log("work could not be stored", ClientClosed("the store was closed during this call"))
    clock.now_ms += 60_000
    trouble.succeeded()
    assert not caplog.records


def test_the_end_of_an_outage_of_one_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="holdfast")
    clock = Clock()
    trouble = RepeatedTrouble(clock)
    trouble.log("work could not be stored", StoreError("the disk is full"))
    clock.now_ms += 60_000
    trouble.succeeded()
    assert lines(caplog)[1:] == ["the store can be used again: it failed once"]


def test_stores_in_memory_share_no_trouble() -> None:
    one = trouble_of(Path(":memory:"), Clock())
    assert trouble_of(Path(":memory:"), Clock()) is not one


def test_all_who_use_a_store_in_a_process_share_its_trouble() -> None:
    one = trouble_of(Path("shop.db"), Clock())
    assert trouble_of(Path("shop.db"), Clock()) is one
    assert trouble_of(Path("other.db"), Clock()) is not one
