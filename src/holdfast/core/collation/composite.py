"""The composite key: the keys of awaited children, inside their parent's (K6).

Right after the digit of the activity that awaited a child stand `1`, the child's composite and `2`. Statuses are 3
to 9, so decoding is unambiguous: ``36636146636626`` is ``366366`` with ``466366`` inside its fifth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.core.collation.digits import STATUS, Digit
from holdfast.errors import MalformedKey

OPENS: Final = str(int(Digit.AWAIT_OPENS))
CLOSES: Final = str(int(Digit.AWAIT_CLOSES))
PADDING: Final = str(int(Digit.NOT_USED))
MAX_DEPTH: Final = 100
"""Children nested deeper than this are refused rather than recursed into."""


@dataclass(frozen=True, slots=True)
class Composite:
    """A key and, by the position of the activity that awaited them, its children's."""

    digits: str
    children: Mapping[int, tuple["Composite", ...]]

    def __str__(self) -> str:
        return compose(self.digits, {at: [str(child) for child in several] for at, several in self.children.items()})


def compose(key: object, children: Mapping[int, Sequence[object]]) -> str:
    """Put the composites of `children` behind the digits of `key` that awaited them.

    Everything may be given as text or as an object whose `str` is the text; positions count from 0.
    """
    digits = str(key).rstrip(PADDING)
    if stray := {digit for digit in digits if not _is_status(digit)}:
        raise MalformedKey(f"{digits!r} is no collation key: {', '.join(sorted(stray))} is not a status")
    for at in children:
        if not 0 <= at < len(digits):
            raise MalformedKey(f"a key of {len(digits)} digits has no position {at}")
    pieces: list[str] = []
    for at, digit in enumerate(digits):
        pieces.append(digit)
        for child in children.get(at, ()):
            text = str(child).rstrip(PADDING)
            decompose(text)
            pieces += (OPENS, text, CLOSES)
    return "".join(pieces)


def decompose(text: str) -> Composite:
    """Take a composite apart. A text that is none is a `MalformedKey` that names the place."""
    stripped = text.rstrip(PADDING)
    composite, end = _read_composite(stripped, 0, 0)
    if end != len(stripped):
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
            if not _is_status(text[at]):
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


def _is_status(digit: str) -> bool:
    return digit.isascii() and digit.isdigit() and int(digit) in STATUS
