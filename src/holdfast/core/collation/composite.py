"""The composite key: the keys of awaited children, inside their parent's (K6).

Right after the digit of the activity that awaited a child stand `1`, the child's composite and `2`. Statuses are 3
to 9, so decoding is unambiguous: ``36636146636626`` is ``366366`` with ``466366`` inside its fifth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.core.collation.digits import WORD, Digit, is_status
from holdfast.core.collation.key import CollationKey
from holdfast.errors import MalformedKey

OPENS: Final = Digit.AWAIT_OPENS.character
CLOSES: Final = Digit.AWAIT_CLOSES.character
PADDING: Final = Digit.NOT_USED.character
MAX_DEPTH: Final = 100
"""Children nested deeper than this are refused rather than recursed into."""


@dataclass(frozen=True, slots=True)
class Composite:
    """A key and, by the position of the activity that awaited them, its children's."""

    digits: str
    children: Mapping[int, tuple["Composite", ...]]

    def __str__(self) -> str:
        return compose(self.digits, self.children)


def compose(key: CollationKey | str, children: Mapping[str, Sequence[object]] | Mapping[int, Sequence[object]]) -> str:
    """Put the composites of `children` behind the digits of `key` that awaited them.

    Children are given by the activity that awaited them, or by its position from 0 (the only way where `key` is a
    text). Each child is a composite: a text, or an object whose `str` is one.
    """
    digits = str(key).rstrip(PADDING)
    if not digits or not all(map(is_status, digits)):
        raise MalformedKey(f"{str(key)!r} is no collation key: every digit must be a status (3 to 9)")
    awaited = {_position(key, at, len(digits)): several for at, several in children.items()}
    pieces: list[str] = []
    for at, digit in enumerate(digits):
        pieces.append(digit)
        for child in awaited.get(at, ()):
            text = str(child).rstrip(PADDING)
            _decompose(text, depth=1)
            pieces += (OPENS, text, CLOSES)
    return "".join(pieces)


def decompose(text: str) -> Composite:
    """Take a composite, or a plain key, apart. A text that is neither is a `MalformedKey` that names the place."""
    stripped = text.rstrip(PADDING)
    composite = _decompose(stripped, depth=0)
    if len(text) != len(stripped) and (composite.children or len(text) % WORD or len(text) - len(stripped) >= WORD):
        raise MalformedKey(f"the zeros behind {stripped} must fill it up to the next multiple of {WORD} digits")
    return composite


def _position(key: CollationKey | str, at: str | int, count: int) -> int:
    if isinstance(at, str):
        if isinstance(key, CollationKey):
            return key.roster.position(at)
        raise MalformedKey(f"a key that is a text has no activity {at!r}: give the position, or a CollationKey")
    if not 0 <= at < count:
        raise MalformedKey(f"a key of {count} digits has no position {at}")
    return at


def _decompose(text: str, *, depth: int) -> Composite:
    composite, end = _read_composite(text, 0, depth)
    if end != len(text):
        raise MalformedKey(f"{text!r} closes at digit {end + 1} what was never opened")
    return composite


def _read_composite(text: str, start: int, depth: int) -> tuple[Composite, int]:
    if depth > MAX_DEPTH:
        raise MalformedKey(f"children nested more than {MAX_DEPTH} deep")
    digits: list[str] = []
    children: dict[int, tuple[Composite, ...]] = {}
    at = start
    while at < len(text) and text[at] != CLOSES:
        if text[at] != OPENS:
            if not is_status(text[at]):
                raise MalformedKey(f"{text[at]!r} at digit {at + 1} of {text!r} is not a status (3 to 9)")
            digits.append(text[at])
            at += 1
            continue
        if not digits:
            raise MalformedKey(f"digit {at + 1} of {text!r} opens a child that no activity awaited")
        child, end = _read_composite(text, at + 1, depth + 1)
        if end >= len(text):
            raise MalformedKey(f"the child opened at digit {at + 1} of {text!r} is never closed")
        awaiting = len(digits) - 1
        children[awaiting] = (*children.get(awaiting, ()), child)
        at = end + 1
    if not digits:
        raise MalformedKey(f"there is no digit at place {start + 1} of {text!r}")
    return Composite("".join(digits), children), at
