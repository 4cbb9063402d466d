"""Dimensions: where in cycles and fan-outs an activity runs (K8).

A flow begins in ``0/0``. Going round a cycle raises the number behind the slash: ``0/1``, ``0/2``. An item of a
fan-out opens a level of its own with its index in front: item 3 of a fan-out in ``0/1`` runs in ``0/1:3/0``. Every
dimension has its own attempts and ledgers.
"""

import re
from collections.abc import Mapping
from typing import Final, NewType, TypeVar

from holdfast.errors import CollationError

Dimension = NewType("Dimension", str)
Value = TypeVar("Value")

FIRST: Final = Dimension("0/0")
_LEVEL: Final = re.compile(r"(\d+)/(\d+)", re.ASCII)


def next_round(dimension: Dimension) -> Dimension:
    """The dimension of the next time round a cycle."""
    outer, item, rounds = _split(dimension)
    return Dimension(f"{outer}{item}/{rounds + 1}")


def item_dimension(dimension: Dimension, item: int) -> Dimension:
    """The dimension of one item of a fan-out that runs in `dimension`."""
    _split(dimension)
    if item < 0:
        raise CollationError(f"items count from 0, not {item}")
    return Dimension(f"{dimension}:{item}/0")


def shown_place(node: str, dimension: str) -> str:
    """An activity in a dimension: ``extract[1]`` is its item 1, ``extract[1] 0/2`` that item in the third round."""
    rounds, *items = dimension.split(":")
    index = "".join(f"[{item.partition('/')[0]}]" for item in items)
    return f"{node}{index}" if rounds in ("", FIRST) else f"{node}{index} {rounds}"


def nearest(outputs: Mapping[Dimension, Value], dimension: Dimension) -> Value | None:
    """What is read from `dimension`: its own output, else the latest earlier round's, else that of the level outside.

    None if the activity has not run where it could be seen from here. Items of a fan-out never see each other.
    """
    outer, item, rounds = _split(dimension)
    for earlier in range(rounds, -1, -1):
        candidate = Dimension(f"{outer}{item}/{earlier}")
        if candidate in outputs:
            return outputs[candidate]
    return nearest(outputs, Dimension(outer.removesuffix(":"))) if outer else None


def _split(dimension: Dimension) -> tuple[str, int, int]:
    """The levels outside, with their colon, and the last level's item and round."""
    *outside, last = dimension.split(":")
    levels = [_LEVEL.fullmatch(level) for level in (*outside, last)]
    innermost = levels[-1]
    if innermost is None or not all(levels):
        raise CollationError(f"{dimension!r} is no dimension; it looks like 0/2 or 0/2:5/0")
    outer = "".join(f"{level}:" for level in outside)
    return outer, int(innermost[1]), int(innermost[2])
