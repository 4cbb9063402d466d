"""A store that cannot be used is told in one line; what nobody foresaw is told whole."""

import pytest

from holdfast.errors import StoreError, StoreReplaced
from holdfast.runtime.telling import RepeatedTrouble, tell_trouble


def test_an_outage_of_the_store_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    tell_trouble("nothing was looked for", StoreError("the server is starting up"))
    assert caplog.text.count("\n") == 1
    assert "nothing was looked for: the server is starting up" in caplog.text


def test_what_nobody_foresaw_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError as error:
        tell_trouble("nothing was looked for", error)
    assert "Traceback" in caplog.text


def test_the_loss_of_the_files_is_not_repeated_by_those_who_meet_it(caplog: pytest.LogCaptureFixture) -> None:
    """The store has logged it."""
    tell_trouble("nothing was looked for", StoreReplaced("shop.db was removed"))
    assert not caplog.records


def test_repeated_trouble_is_one_line_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 0
    trouble = RepeatedTrouble(lambda: now_ms)
    for _ in range(240):
        trouble.tell("work could not be stored", StoreError("the disk is full"))
        now_ms += 250
    assert [record.getMessage() for record in caplog.records] == ["work could not be stored: the disk is full"]
    trouble.tell("work could not be stored", StoreError("the disk is full"))
    assert caplog.records[-1].getMessage() == (
        "work could not be stored (240 times since the last such line): the disk is full"
    )
    assert len(caplog.records) == 2
