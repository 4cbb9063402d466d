"""Named bounds, and what the package never does."""

import re
from pathlib import Path

import pytest

import holdfast.payloads
from holdfast.errors import PayloadTooLarge
from holdfast.payloads.limits import INLINE_LIMIT_BYTES, PAYLOAD_WARNING_BYTES, PayloadLimit, is_inline, shorten

PACKAGE = Path(holdfast.payloads.__file__).parent


def test_a_payload_at_the_limit_is_accepted_and_one_above_is_not() -> None:
    limit = PayloadLimit(20_000)
    assert limit.checked(b"x" * 20_000, "the event") == b"x" * 20_000
    with pytest.raises(
        PayloadTooLarge, match=r"the event has 20,001 bytes, and payload_limit is 20,000.*raise payload_limit"
    ):
        limit.checked(b"x" * 20_001, "the event")


def test_a_large_payload_is_warned_of_once_for_each_name(caplog: pytest.LogCaptureFixture) -> None:
    large = bytes(PAYLOAD_WARNING_BYTES + 1)
    limit = PayloadLimit()
    limit.checked(large[1:], "quiet")
    for what in ("the result of a()", "the result of a()", "the result of b()"):
        limit.checked(large, what)
    limit.of_execution(4 * PAYLOAD_WARNING_BYTES).checked(large, "the result of a()")
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(" has ")[0] for line in said] == ["the result of a()", "the result of b()"]
    assert "2,097,153 bytes" in said[0]


def test_small_payloads_stay_in_the_row() -> None:
    assert is_inline(b"x" * INLINE_LIMIT_BYTES)
    assert not is_inline(b"x" * (INLINE_LIMIT_BYTES + 1))


def test_a_shortened_text_says_how_much_is_missing() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("a" * 5 + "b" * 1000 + "c" * 5, 10) == "aaaaa\n... 1,000 characters left out ...\nccccc"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_nothing_in_the_package_runs_or_imports_what_data_names(path: Path) -> None:
    forbidden = re.compile(
        r"\b(import pickle|pickle\.\w|marshal|shelve|eval\(|exec\(|__import__|import_module|importlib)"
    )
    assert not forbidden.search(path.read_text())
