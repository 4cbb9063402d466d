"""How much work an expression may be: decided before it begins, because nobody can stop it once it runs.

The library stops after 10,000 rounds of loops in all. That is no bound of time: a round may join long texts, and the
lists that `map` and `filter` build are copied for each item. So what the work can grow to is estimated from the text
and from the size of what it reads, rather too high than too low, and too much is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from holdfast.errors import ExpressionError
from holdfast.flows.scanner import ExpressionUses

MOST_ROUNDS: Final = 10_000
"""The library's own bound."""
MOST_WORK: Final = 2_000_000_000
"""Bytes looked at. The worst that was found needs about a second."""
MOST_MATCHED: Final = 4_096
"""Bytes that an expression with a pattern reads in all: a pattern may need thousands of steps for each of them."""
LONGEST_BUILT_LIST: Final = 3_000
"""Items that `map` and `filter` go over: the time grows with the square, and this many take a third of a second."""


def check_work(text: str, uses: ExpressionUses, read: Mapping[str, Any]) -> None:
    """Refuse an evaluation that could take very long, or that the library would get wrong."""
    size = len(_encoded(text, read)) + len(text)
    if "matches" in text and size > MOST_MATCHED:
        raise ExpressionError(
            f"{text}: `matches` looks at {MOST_MATCHED:,} bytes at most, and this reads {size:,}; do it in an activity"
        )
    if not uses.macros and not uses.additions:
        return
    stages = uses.macros + 1
    growth = (1 + uses.additions / stages) ** stages
    longest = max(longest_in(read), uses.tokens) if uses.macros else 0
    length = longest * (growth if uses.macros > 1 else 1 + uses.outer_additions)
    if uses.builds_lists and length > LONGEST_BUILT_LIST:
        raise ExpressionError(
            f"{text}: map and filter go over at most {LONGEST_BUILT_LIST:,} items, and this may have "
            f"{length:,.0f}; do it in an activity, or use each"
        )
    rounds = min(MOST_ROUNDS, length**uses.nested)
    if size * growth * uses.tokens * rounds > MOST_WORK:
        raise ExpressionError(
            f"{text}: this would be too much work for an expression that looks at {size:,} bytes; do it in an activity"
        )


def _encoded(text: str, read: Mapping[str, Any]) -> bytes:
    """What is read, as JSON. The library cuts texts off at the character U+0000, so that one is refused."""
    try:
        encoded = msgspec.json.encode(read)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ExpressionError(f"{text}: what it reads is no JSON: {error}") from None
    if b"\\u0000" in encoded and any("\0" in one for one in _texts_in(read)):
        raise ExpressionError(f"{text}: what it reads has a text with the character U+0000, which is not supported")
    return encoded


def _texts_in(value: Any) -> Iterator[str]:
    """Every text and key in a value."""
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            several = cast(dict[str, Any], one)
            yield from several
            waiting.extend(several.values())
        elif isinstance(one, list):
            waiting.extend(cast(list[Any], one))  # type: ignore[redundant-cast]  # pyright sees a list of unknowns


def longest_in(value: Any) -> int:
    """How long the longest list or map in `value` is."""
    longest = 0
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend(cast(dict[str, Any], one).values())
        elif isinstance(one, list):
            waiting.extend(cast(list[Any], one))  # type: ignore[redundant-cast]  # pyright sees a list of unknowns
        else:
            continue
        longest = max(longest, len(one))  # pyright: ignore[reportUnknownArgumentType]  # of anything
    return longest
