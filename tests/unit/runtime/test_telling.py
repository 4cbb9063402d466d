"""A store that cannot be used is told in one line; what nobody foresaw is told whole."""

import pytest

from holdfast.errors import StoreError
from holdfast.runtime.telling import tell_trouble


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
