"""Labels of nodes, edges and digits in drawings."""

import unicodedata
from typing import Final, assert_never

from holdfast.core.collation import Digit
from holdfast.core.flow.definition import (
    After,
    AnyAction,
    ChildAction,
    CycleAction,
    Each,
    Hold,
    InterruptAction,
    Node,
    RaiseAction,
    RunAction,
    Span,
    TriggerAction,
    WaitAction,
    show_span,
)

ELLIPSIS: Final = "\u2026"
_WIDE: Final = frozenset("WF")
_STATES: Final = {
    Digit.PENDING: "pending",
    Digit.STARTED: "started",
    Digit.ERRORED: "failed",
    Digit.COMPLETED: "completed",
    Digit.PAUSED: "waiting",
    Digit.RELEASED: "released",
    Digit.SKIPPED: "skipped",
}


def kind_of(action: AnyAction) -> str:
    """The key of YAML for what a node does: the tag under which a definition stores the action."""
    return str(action.__struct_config__.tag)


def detail_of(action: AnyAction) -> str:
    """What a node does, in a few words."""
    match action:
        case TriggerAction():
            return "trigger"
        case RunAction():
            return f"{_each(action.each)}{action.activity}"
        case ChildAction():
            return f"{_each(action.each)}flow {action.workflow}{' (detached)' if action.detached else ''}"
        case WaitAction(event="", timeout=timeout):
            return f"wait {_span(timeout)}"
        case WaitAction(event=event, timeout=timeout):
            return f"event {event}{'' if timeout is None else f', at most {_span(timeout)}'}"
        case CycleAction():
            return f"again from {action.target}{f', after {_span(action.delay)}' if action.delay else ''}"
        case RaiseAction():
            return f"raise {action.event}"
        case InterruptAction():
            return f"interrupt {action.target or 'self'}"
        case _:
            assert_never(action)


def _each(each: Each | None) -> str:
    if each is None:
        return ""
    what = f"each response of {each.stream}" if each.stream else "each"
    return f"{what}: " if each.limit is None else f"{what}, {each.limit} at a time: "


def hold_label(hold: Hold | None) -> str:
    """The hold of a node in a few words; empty if it has none."""
    if hold is None:
        return ""
    return "hold" if hold.timeout is None else f"hold, at most {_span(hold.timeout)}"


def _span(span: Span | None) -> str:
    return span if isinstance(span, str) else str(show_span(span or 0))


def edge_label(node: Node, edge: After) -> str:
    """The label of an edge into a node."""
    if edge.catch is None and edge.source == node.stream:
        return "responses"
    caught = "" if edge.catch is None else f"on {', '.join(edge.catch)}"
    return " and ".join(part for part in (caught, edge.when, "otherwise" if edge.otherwise else "") if part)


def state_of(digit: str, hold: Hold | None = None) -> str:
    """The state of an activity by its digit of the key; empty if it is not a digit."""
    if hold is not None and digit == Digit.PAUSED.character:
        return "held"
    return _STATES.get(Digit(int(digit)), "") if digit.isdecimal() and len(digit) == 1 else ""


def safe(text: str) -> str:
    """A string on one line, without characters that cannot be drawn."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text.replace("\n", " "))


def shorten(text: str, columns: int) -> str:
    """As much of a string as fits; wide characters take two columns."""
    text = safe(text)
    if sum(map(_columns, text)) <= columns:
        return text
    used = 0
    for place, character in enumerate(text):
        used += _columns(character)
        if used >= columns:
            return text[:place] + ELLIPSIS
    return text


def _columns(character: str) -> int:
    return 1 + (unicodedata.east_asian_width(character) in _WIDE)
