"""Named bounds, and what the package never does."""

import re
from pathlib import Path

import pytest

import holdfast.payloads
from holdfast.errors import PayloadTooLarge
from holdfast.payloads import INLINE_LIMIT_BYTES, PAYLOAD_LIMIT_BYTES, check_size, is_inline
from holdfast.payloads.limits import shorten

PACKAGE = Path(holdfast.payloads.__file__).parent


def test_a_payload_at_the_limit_is_accepted_and_one_above_is_not() -> None:
    check_size(b"x" * PAYLOAD_LIMIT_BYTES, "the event")
    with pytest.raises(PayloadTooLarge, match="the event has 2,097,153 bytes and the limit is 2,097,152"):
        check_size(b"x" * (PAYLOAD_LIMIT_BYTES + 1), "the event")


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
